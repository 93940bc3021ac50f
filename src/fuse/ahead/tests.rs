//! What is guessed, what is handed over, and that no question is lost.
#![allow(clippy::unwrap_used)]

use super::*;
use std::num::NonZeroU64;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// Size of the files.
const LEN: u64 = 64 * MIB + 12_345;

/// A question is what it asks for.
type Question = Range<u64>;

fn file(number: u64) -> Ino {
    Ino(NonZeroU64::new(number).unwrap())
}

fn byte(at: u64) -> u8 {
    (at / 3 % 251) as u8
}

fn is_right(bytes: &[u8], range: &Range<u64>) -> bool {
    bytes.len() as u64 == range.end - range.start
        && bytes.iter().zip(range.clone()).all(|(&found, at)| found == byte(at))
}

fn make(plan: &mut Plan) {
    let range = plan.range.clone();
    plan.bytes.bytes_mut().iter_mut().zip(range).for_each(|(out, at)| *out = byte(at));
}

/// Asks, and whether the answer was ready; makes what is planned then.
fn ask(ahead: &Ahead<Question>, ino: Ino, range: Range<u64>) -> bool {
    let ready = match ahead.take(ino, range.clone(), range.clone()) {
        Taken::Ready(part, question) => {
            assert_eq!(question, range);
            let end = range.end.min(LEN);
            assert!(is_right(part.get(), &(range.start..end)), "{range:?}");
            true
        }
        Taken::Handed => panic!("nobody is at it"),
        Taken::Missing(_) => false,
    };
    if let Some(mut plan) = ahead.plan(ino, || Some(LEN)) {
        make(&mut plan);
        assert!(ahead.made(plan, true, Clone::clone).is_none());
    }
    ready
}

/// Asks for all of a file in pieces of these sizes in turn; how many answers were ready, of how
/// many.
fn read_all(ahead: &Ahead<Question>, ino: Ino, sizes: &[u64]) -> (u64, u64) {
    let (mut at, mut ready, mut all) = (0, 0, 0);
    for size in sizes.iter().cycle() {
        if at >= LEN {
            break;
        }
        ready += u64::from(ask(ahead, ino, at..at + size));
        all += 1;
        at += size;
    }
    (ready, all)
}

#[test]
fn who_reads_on_finds_the_answers_ready() {
    for size in [MIB, 128 * KIB, 100_000] {
        let (ready, all) = read_all(&Ahead::new(2), file(1), &[size]);
        assert!(ready + 8 > all, "{size}: {ready} of {all}");
    }
    // A megabyte into a buffer that does not begin on a page.
    let (ready, all) = read_all(&Ahead::new(2), file(1), &[MIB - 48, 48]);
    assert!(2 * ready + 12 > all, "{ready} of {all}");
}

#[test]
fn who_reads_here_and_there_is_left_alone() {
    let ahead = Ahead::new(2);
    for i in 0..1000u64 {
        let at = i * 7919 * 4096 % (60 * MIB);
        assert!(!ask(&ahead, file(1), at..at + 4096));
    }
    assert_eq!(ahead.lock().last, 0, "something was planned");
}

#[test]
fn small_files_and_single_processors_are_not_read_ahead() {
    let ahead = Ahead::new(2);
    for i in 0..8 {
        let range = i * MIB..(i + 1) * MIB;
        assert!(matches!(ahead.take(file(1), range.clone(), range), Taken::Missing(_)));
        assert!(ahead.plan(file(1), || None).is_none());
    }
    let (ready, _) = read_all(&Ahead::new(1), file(1), &[MIB]);
    assert_eq!(ready, 0);
}

#[test]
fn a_busy_machine_does_nothing_in_advance() {
    let ahead = Ahead::new(2);
    for i in 0..8 {
        for ino in [file(1), file(2)] {
            let range = i * MIB..(i + 1) * MIB;
            assert!(!matches!(ahead.take(ino, range.clone(), range), Taken::Ready(..)));
        }
        assert!(ahead.plan(file(1), || Some(LEN)).is_none());
    }
}

/// A reader of whom one answer is being made.
fn reading() -> (Ahead<Question>, Plan) {
    let ahead = Ahead::new(2);
    for i in 0.. {
        let range = i * MIB..(i + 1) * MIB;
        assert!(matches!(ahead.take(file(1), range.clone(), range), Taken::Missing(_)));
        if let Some(mut plan) = ahead.plan(file(1), || Some(LEN)) {
            make(&mut plan);
            assert_eq!(plan.range, (i + 1) * MIB..(i + 2) * MIB);
            return (ahead, plan);
        }
    }
    unreachable!()
}

#[test]
fn a_question_goes_to_who_makes_its_answer() {
    let (ahead, plan) = reading();
    let range = plan.range.clone();
    assert!(matches!(ahead.take(file(1), range.clone(), range.clone()), Taken::Handed));
    let (question, part) = ahead.made(plan, true, Clone::clone).unwrap();
    assert_eq!(question, range);
    assert!(is_right(part.unwrap().get(), &range));
}

#[test]
fn a_question_is_given_back_when_there_is_no_answer() {
    let (ahead, plan) = reading();
    let range = plan.range.clone();
    assert!(matches!(ahead.take(file(1), range.clone(), range.clone()), Taken::Handed));
    // Neither a file that is closed nor many other readers make it be forgotten.
    ahead.forget(file(1));
    for other in 2..100 {
        let _ = ahead.take(file(other), 0..10, 0..10);
    }
    let elsewhere = 40 * MIB..41 * MIB;
    let _ = ahead.take(file(1), elsewhere.clone(), elsewhere);
    let (question, part) = ahead.made(plan, false, Clone::clone).unwrap();
    assert_eq!(question, range);
    assert!(part.is_none());
    assert!(matches!(ahead.take(file(1), range.clone(), range), Taken::Missing(_)));
}

#[test]
fn a_second_question_for_the_same_is_not_lost() {
    let (ahead, plan) = reading();
    let range = plan.range.clone();
    assert!(matches!(ahead.take(file(1), range.clone(), range.clone()), Taken::Handed));
    let Taken::Missing(second) = ahead.take(file(1), range.clone(), range.clone()) else {
        panic!("there is one place");
    };
    assert_eq!(second, range);
    assert!(ahead.made(plan, true, Clone::clone).is_some());
}

#[test]
fn part_of_an_answer_leaves_the_rest() {
    let (ahead, plan) = reading();
    let range = plan.range.clone();
    let half = range.start..range.start + MIB / 2;
    assert!(matches!(ahead.take(file(1), half.clone(), half.clone()), Taken::Handed));
    let (_, part) = ahead.made(plan, true, Clone::clone).unwrap();
    assert!(is_right(part.unwrap().get(), &half));
    let rest = half.end..range.end;
    let Taken::Ready(part, _) = ahead.take(file(1), rest.clone(), rest.clone()) else {
        panic!("it was made");
    };
    assert!(is_right(part.get(), &rest));
}

#[test]
fn behind_the_end_there_is_nothing() {
    let ahead = Ahead::new(2);
    // All but the last bytes, so that their answer stays.
    let (size, mut at) = (1_000_000, 0);
    while at + size < LEN {
        ask(&ahead, file(1), at..at + size);
        at += size;
    }
    for start in [LEN, LEN + 1, LEN + 5 * MIB, u64::MAX - 5] {
        let range = start..start.saturating_add(MIB);
        assert!(matches!(ahead.take(file(1), range.clone(), range), Taken::Missing(_)), "{start}");
    }
    assert!(ask(&ahead, file(1), at..at + size), "the answer that goes up to the end");
}

#[test]
fn memory_is_bounded_and_goes_back() {
    let ahead = Ahead::new(64);
    let mut kept = Vec::new();
    for ino in 1..=20 {
        for i in 0..8 {
            let range = i * MIB..(i + 1) * MIB;
            if let Taken::Ready(part, _) = ahead.take(file(ino), range.clone(), range) {
                kept.push(part); // on its way to the reader
            }
            if let Some(plan) = ahead.plan(file(ino), || Some(LEN)) {
                assert!(ahead.made(plan, true, Clone::clone).is_none());
            }
            let state = ahead.lock();
            let made: usize = state.readers.iter().map(|reader| reader.answers.len()).sum();
            assert!(made + state.old.len() <= ANSWERS);
        }
    }
    assert!(kept.len() > 1);
    (1..=20).for_each(|ino| ahead.forget(file(ino)));
    assert!(ahead.lock().old.is_empty());
}

#[test]
fn what_lies_past_the_end_has_no_answer() {
    // The file's last answer is ready, or being made.
    let (ahead, plan) = reading();
    let last = plan.range.clone();
    let len = last.end;
    let mut state = ahead.lock();
    state.readers.iter_mut().for_each(|reader| reader.len = Some(len));
    drop(state);
    // From here on what lies a little past the end is near enough to go on.
    let half = last.start..last.start + MIB / 2;
    assert!(matches!(ahead.take(file(1), half.clone(), half.clone()), Taken::Handed));
    let past = [len..len + 1, len + 5..len + 105, u64::MAX - 1..u64::MAX];
    for range in past.clone() {
        assert!(matches!(ahead.take(file(1), range.clone(), range), Taken::Missing(_)));
    }
    assert!(ahead.made(plan, true, Clone::clone).is_some());
    for range in past {
        assert!(matches!(ahead.take(file(1), range.clone(), range), Taken::Missing(_)));
    }
    let over = half.end..len + MIB;
    let Taken::Ready(part, _) = ahead.take(file(1), over.clone(), over) else {
        panic!("it was made");
    };
    assert!(is_right(part.get(), &(half.end..len)));
}

#[test]
fn who_has_stopped_half_way_does_not_keep_others_from_it() {
    let ahead = Ahead::new(64);
    for ino in 1..=10 {
        let (mut ready, mut at) = (0, 0);
        while at < 12 * MIB {
            ready += u64::from(ask(&ahead, file(ino), at..at + MIB));
            at += MIB;
        }
        assert!(ready >= 8, "reader {ino} found {ready}");
        std::thread::sleep(RECENT);
        let state = ahead.lock();
        let made: usize = state.readers.iter().map(|reader| reader.answers.len()).sum();
        assert!(made + state.old.len() <= ANSWERS);
    }
}
