//! Stores over sources that fail as they are told: the ladder, the latches and the breakers.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::seal::tests::Case;
use crate::source::{Door, IoMode};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

/// Which of the reads that touch a place go wrong, and how.
struct Script {
    /// Place in the file.
    at: u64,
    /// Reads that touched it, by door.
    usual: AtomicUsize,
    others: AtomicUsize,
}

impl Script {
    /// Counts a read if it touches the place; its number by this door, from 0.
    fn hit(&self, door: Door, offset: u64, out: &[u8]) -> Option<usize> {
        if !(offset..offset + out.len() as u64).contains(&self.at) {
            return None;
        }
        let counter = if door == Door::Usual { &self.usual } else { &self.others };
        Some(counter.fetch_add(1, Ordering::Relaxed))
    }

    fn reads(&self) -> usize {
        self.usual.load(Ordering::Relaxed) + self.others.load(Ordering::Relaxed)
    }
}

/// Offset of byte 100 of chunk `chunk` of tensor 2, the one of many chunks of 4 KiB.
fn place(case: &Case, chunk: u64) -> u64 {
    case.extent(2).offset + chunk * 4096 + 100
}

/// A sealed store whose reads of `at` go through `fault`: door, number of the read by this
/// door, whether a flip is wanted or an error.
fn faulty(
    case: &Case,
    at: u64,
    fault: impl Fn(Door, usize) -> Result<bool, io::Error> + Send + Sync + 'static,
) -> (Store, Arc<Script>) {
    faulty_by(IoMode::Mmap, case, at, fault)
}

fn faulty_by(
    io: IoMode,
    case: &Case,
    at: u64,
    fault: impl Fn(Door, usize) -> Result<bool, io::Error> + Send + Sync + 'static,
) -> (Store, Arc<Script>) {
    let store = case.sealed(io);
    let script = Arc::new(Script { at, usual: 0.into(), others: 0.into() });
    let counted = Arc::clone(&script);
    store.sources()[0].set_fault(Box::new(move |door, offset, out| {
        if let Some(number) = counted.hit(door, offset, out)
            && fault(door, number)?
        {
            out[(counted.at - offset) as usize] ^= 0x20;
        }
        Ok(())
    }));
    (store, script)
}

fn sealed() -> Case {
    let case = Case::new();
    case.seal();
    case
}

#[test]
fn a_bad_copy_in_the_page_cache_is_healed_unseen_a_hundred_times() {
    let case = sealed();
    let (store, _) = faulty(&case, place(&case, 5), |door, _| Ok(door == Door::Usual));
    for round in 0..100 {
        let mut out = vec![0; 20_000];
        store.read(case.extent(2), 15_000, &mut out).unwrap();
        assert_eq!(out, case.tensor(2)[15_000..35_000], "round {round}");
    }
    let status = store.status();
    assert_eq!((status.mismatches, status.healed, status.bad_chunks), (100, 100, 0));
    assert_eq!(store.tensor_state(2), TensorState::Verified);
}

#[test]
fn a_source_that_stumbles_is_waited_for_within_the_budget() {
    for flips in [true, false] {
        let case = sealed();
        // By every door the first reads fail; the last by a further door is good. A read that
        // the source refuses may cost three, and leaves one.
        let last = if flips { 2 } else { 0 };
        let (store, script) = faulty(&case, place(&case, 5), move |door, number| {
            let fails = door == Door::Usual || number < last;
            match (fails, flips) {
                (true, false) => Err(io::Error::from_raw_os_error(libc::EIO)),
                (fails, _) => Ok(fails),
            }
        });
        let started = Instant::now();
        let (out, result) = super::tests::read(&store, case.extent(2));
        result.unwrap();
        assert_eq!(out, case.tensor(2));
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(60), "it was not waited for: {took:?}");
        assert_eq!(script.others.load(Ordering::Relaxed), last + 1);
        assert_eq!(store.status().healed, 1);
    }
}

#[test]
fn a_sum_that_was_computed_wrongly_is_computed_again() {
    // The first look sees the flip, the next by the same door does not: as if the sum was wrong.
    let case = sealed();
    let (store, script) = faulty(&case, place(&case, 5), |_, number| Ok(number == 0));
    read_all(&store, &case);
    assert_eq!(script.others.load(Ordering::Relaxed), 0, "nothing past the page cache");
    assert_eq!((store.status().healed, store.status().retries), (1, 1));
}

fn read_all(store: &Store, case: &Case) {
    let (out, result) = super::tests::read(store, case.extent(2));
    result.unwrap();
    assert_eq!(out, case.tensor(2));
}

#[test]
fn a_chunk_that_stays_bad_costs_its_ladder_once_and_nothing_after() {
    let case = sealed();
    let (store, script) = faulty(&case, place(&case, 5), |_, _| Ok(true));
    let started = Instant::now();
    let mut out = [0; 100];
    let failure = store.read(case.extent(2), 5 * 4096, &mut out).unwrap_err();
    assert!(matches!(failure.error, StoreError::Corrupt(_)), "{failure}");
    // A quarter of a second on a machine that has nothing else to do.
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let looks = script.reads();
    assert!(looks <= 5, "{looks} looks, of which one by the same copy");
    for _ in 0..1000 {
        let again = store.read(case.extent(2), 5 * 4096 + 50, &mut out).unwrap_err();
        assert_eq!(again.to_string(), failure.to_string());
    }
    assert_eq!(script.reads(), looks, "not looked at any more");
    // In one read with others only they are read.
    let (got, result) = super::tests::read(&store, case.extent(2));
    assert_eq!(result.unwrap_err().good, 5 * 4096);
    assert_eq!(got[..5 * 4096], case.tensor(2)[..5 * 4096]);
    assert_eq!(script.reads(), looks);
}

/// By whatever read it is met, and however it is bad.
#[test]
fn a_chunk_that_stays_bad_costs_its_source_four_reads() {
    for (io, flips) in
        [(IoMode::Pread, true), (IoMode::Pread, false), (IoMode::Mmap, true), (IoMode::Mmap, false)]
    {
        // A part of it, all of it, it and others.
        for (from, len) in [(5 * 4096 + 50, 100), (5 * 4096, 4096), (0, 20 * 4096)] {
            let case = sealed();
            let (store, script) = faulty_by(io, &case, place(&case, 5), move |_, _| match flips {
                true => Ok(true),
                false => Err(io::Error::from_raw_os_error(libc::EIO)),
            });
            let mut out = vec![0; len];
            for _ in 0..100 {
                store.read(case.extent(2), from, &mut out).unwrap_err();
            }
            let usual = script.usual.load(Ordering::Relaxed);
            // The page of a mapping is there, however often it is copied.
            let usual = if io == IoMode::Mmap { usual.min(1) } else { usual };
            let reads = usual + script.others.load(Ordering::Relaxed);
            // At most; on a busy machine the budget of time may end sooner.
            assert!((2..=4).contains(&reads), "{reads} reads, {io:?}, {flips}, {len} bytes");
        }
    }
}

#[test]
fn readers_that_meet_a_bad_chunk_together_climb_one_ladder() {
    for times in [usize::MAX, 2] {
        let case = sealed();
        let (started, all_there) = (Instant::now(), Barrier::new(8));
        // Bad for good, or until the second look past the page cache; the usual copy is bad
        // as long as that.
        let healed = Arc::new(AtomicBool::new(false));
        let (store, script) = faulty(&case, place(&case, 5), move |door, number| {
            if door != Door::Usual && number + 1 >= times {
                healed.store(true, Ordering::Relaxed);
            }
            Ok(!healed.load(Ordering::Relaxed))
        });
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    all_there.wait();
                    let mut out = [0; 100];
                    let result = store.read(case.extent(2), 5 * 4096, &mut out);
                    assert_eq!(result.is_ok(), times == 2, "{result:?}");
                });
            }
        });
        let looks = script.others.load(Ordering::Relaxed);
        let slow = started.elapsed() > Duration::from_secs(1); // the latch has let one through
        assert!(slow || looks == times.min(3), "{looks} looks past the page cache");
    }
}

#[test]
fn after_its_cool_down_a_chunk_is_looked_at_again_and_found_good() {
    let case = sealed();
    let good = Arc::new(AtomicBool::new(false));
    let now_good = Arc::clone(&good);
    let (store, script) =
        faulty(&case, place(&case, 5), move |_, _| Ok(!now_good.load(Ordering::Relaxed)));
    let mut out = [0; 100];
    store.read(case.extent(2), 5 * 4096, &mut out).unwrap_err();
    assert_eq!(store.tensor_state(2), TensorState::Degraded);
    good.store(true, Ordering::Relaxed);
    store.read(case.extent(2), 5 * 4096, &mut out).unwrap_err();
    let looks = script.reads();
    std::thread::sleep(Duration::from_millis(1050));
    read_all(&store, &case);
    assert_eq!(script.reads(), looks + 1);
    assert_eq!((store.status().bad_chunks, store.status().healed), (0, 1));
    assert_eq!(store.tensor_state(2), TensorState::Verified);
}

#[test]
fn an_open_breaker_ends_waits_and_never_fails_a_good_chunk() {
    let case = sealed();
    let store = case.sealed(IoMode::Mmap);
    let extent = case.extent(2);
    let chunks = extent.len / 4096;
    assert!(chunks > 20, "a tensor of many chunks");
    let reads = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&reads);
    let base = extent.offset;
    // Odd chunks are bad.
    store.sources()[0].set_fault(Box::new(move |_, offset, out| {
        counted.fetch_add(1, Ordering::Relaxed);
        for (at, byte) in (offset..).zip(out) {
            if at >= base && (at - base) / 4096 % 2 == 1 && (at - base) % 4096 == 7 {
                *byte ^= 1;
            }
        }
        Ok(())
    }));
    let chunk = |i: u64| {
        let mut out = vec![0; 4096];
        let result = store.read(extent, i * 4096, &mut out);
        if result.is_ok() {
            assert_eq!(out, case.tensor(2)[(i * 4096) as usize..][..4096], "chunk {i}");
        }
        result.is_ok()
    };
    for i in 0..10 {
        assert_eq!(chunk(i), i % 2 == 0);
    }
    assert_eq!(store.tensor_state(2), TensorState::Open);
    let status = store.status();
    assert_eq!(status.state, TensorState::Open);
    let [breaker] = &status.breakers[..] else { panic!("{:?}", status.breakers) };
    assert_eq!((breaker.tensor, breaker.half_open), (Some(2), false));
    assert!(breaker.remaining > Duration::from_secs(8), "{breaker:?}");
    // What is good is served; what is bad for the first time costs no waits any more.
    let started = Instant::now();
    for i in 10..20 {
        assert_eq!(chunk(i), i % 2 == 0);
    }
    // Five ladders with waits would take half a second at least.
    assert!(started.elapsed() < Duration::from_millis(400), "{:?}", started.elapsed());
    let before = reads.load(Ordering::Relaxed);
    (1..20).step_by(2).for_each(|i| assert!(!chunk(i)));
    assert_eq!(reads.load(Ordering::Relaxed), before, "no I/O for what has failed");
    // Another tensor is not concerned.
    super::tests::read(&store, case.extent(0)).1.unwrap();
    assert_eq!(store.tensor_state(0), TensorState::Verified);
}

#[test]
fn damage_served_on_purpose_is_served_at_once_while_latched() {
    let case = sealed();
    let at = place(&case, 5);
    let options = StoreOptions { on_corruption: OnCorruption::Log, ..StoreOptions::default() };
    let store = case.store(IoMode::Mmap, options);
    store.sources()[0].set_fault(Box::new(move |_, offset, out| {
        if (offset..offset + out.len() as u64).contains(&at) {
            out[(at - offset) as usize] ^= 4;
        }
        Ok(())
    }));
    for _ in 0..50 {
        let (out, result) = super::tests::read(&store, case.extent(2));
        result.unwrap();
        assert_eq!(out[5 * 4096 + 100], case.tensor(2)[5 * 4096 + 100] ^ 4);
    }
    assert_eq!((store.status().bad_chunks, store.status().mismatches), (1, 1));
}

/// What a CRC32 of a chunk is worth against damage of many bits: WEIGHTFS_PATTERNS=1000000 shows
/// it.
#[test]
fn patterns_of_many_bits_and_bursts_change_the_sum_of_a_chunk() {
    let patterns: u64 = std::env::var("WEIGHTFS_PATTERNS").map_or(10_000, |n| n.parse().unwrap());
    let mut seed = 0x0123_4567_89ab_cdefu64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    let mut chunk: Vec<u8> = (0..65536).map(|_| random(256) as u8).collect();
    let good = crc32fast::hash(&chunk);
    let mut missed = 0;
    for number in 0..patterns {
        let mut bits = Vec::new();
        if number % 2 == 0 {
            // 2 to 64 bits anywhere.
            let count = 2 + random(63) as usize;
            while bits.len() < count {
                let bit = random(8 * 65536);
                if !bits.contains(&bit) {
                    bits.push(bit);
                }
            }
        } else {
            // A burst: its first and last bit, and what lies between at random.
            let length = 2 + random(2000);
            let first = random(8 * 65536 - length);
            bits.extend([first, first + length - 1]);
            bits.extend((first + 1..first + length - 1).filter(|_| random(2) == 0));
        }
        let flip = |chunk: &mut Vec<u8>| {
            bits.iter().for_each(|&bit| chunk[bit as usize / 8] ^= 1 << (bit % 8));
        };
        flip(&mut chunk);
        missed += u64::from(crc32fast::hash(&chunk) == good);
        flip(&mut chunk);
    }
    assert_eq!(crc32fast::hash(&chunk), good);
    println!("{patterns} patterns, {missed} missed");
    assert_eq!(missed, 0, "of {patterns}");
}

/// Every class of fault at random under many readers: never a wrong byte.
#[test]
fn a_soak_with_faults_of_all_classes_serves_no_wrong_byte() {
    let reads: u64 = std::env::var("WEIGHTFS_SOAK_READS").map_or(20_000, |n| n.parse().unwrap());
    let case = sealed();
    let store = case.sealed(IoMode::Mmap);
    let dice = Mutex::new(0x1234_5678_9abc_def0u64);
    let roll = move || {
        let mut seed = dice.lock().unwrap();
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        *seed >> 33
    };
    store.sources()[0].set_fault(Box::new(move |_, _, out| {
        match roll() % 4000 {
            0 => return Err(io::Error::from_raw_os_error(libc::EIO)),
            1 => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            2 if !out.is_empty() => {
                let at = roll() as usize % out.len();
                out[at] ^= 1 << (roll() % 8);
            }
            3 => out.fill(0),
            _ => {}
        }
        Ok(())
    }));
    let (good, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..8u64 {
            let (store, case, good, failed) = (&store, &case, &good, &failed);
            scope.spawn(move || {
                let mut seed = reader + 1;
                for _ in 0..reads / 8 {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(9);
                    let len = case.extent(2).len;
                    let from = (seed >> 20) % len;
                    let take = ((seed >> 8) % 9000).min(len - from);
                    let mut out = vec![0; take as usize];
                    let result = store.read(case.extent(2), from, &mut out);
                    let served = result.as_ref().map_or_else(|f| f.good, |()| out.len());
                    assert_eq!(out[..served], case.tensor(2)[from as usize..][..served]);
                    if result.is_ok() { good } else { failed }.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let (good, failed) = (good.into_inner(), failed.into_inner());
    assert!(good > failed, "{good} good, {failed} failed");
    assert!(store.status().healed > 0);
}
