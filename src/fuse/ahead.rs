//! Who reads on and on gets bytes that were made ready before the question.
//!
//! Between an answer and the next question of the same reader the processor has
//! nothing to do: the reader has to wake up, and so has whoever serves it. The thread that gave an
//! answer uses the time to copy, check and decode what is likely to be asked for next. When the
//! question comes before that is done, it is handed to the thread that is at it: what it has made
//! is still in its own processor's cache, and to move it to another costs more than to make it.
//!
//! Nothing here waits for anything. What was made was checked as any other read is, from a private
//! copy, moments before; what is not good at the first look is thrown away, and the question is
//! answered in the usual way, with all that belongs to it.

use super::lanes::{Patient, Reply};
use super::room::Room;
use crate::layout::Ino;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Readers that are watched.
const WATCHED: usize = 32;
/// From so many bytes in a row on, somebody reads on.
const RUN: u64 = 384 << 10;
/// Smaller questions are not answered in advance: the way to the kernel and back is all they cost.
const SMALL: u64 = 32 << 10;
/// The largest question there is, but for kernels that were told to ask for more.
const LARGE: u64 = 1 << 20;
/// Answers made in advance per reader: one may be on its way while the next is made.
const DEPTH: usize = 2;
/// Answers made in advance for all readers: what they may take of memory, a huge page each.
const ANSWERS: usize = 6;
/// Questions of one reader overtake each other by so much at the most: the kernel sends what it
/// reads ahead in pieces.
const SLACK: u64 = 1 << 20;
/// Who has not asked for so long is not reading now.
const RECENT: Duration = Duration::from_millis(3);

/// Some bytes of an answer made in advance.
#[derive(Debug)]
pub(super) struct Part {
    bytes: Arc<Room>,
    range: Range<usize>,
}

impl Part {
    /// The bytes.
    pub(super) fn get(&self) -> &[u8] {
        self.bytes.bytes().get(self.range.clone()).unwrap_or_default()
    }
}

/// What became of a question.
#[derive(Debug)]
pub(super) enum Taken<Q> {
    /// Its answer is ready.
    Ready(Part, Q),
    /// The thread that makes the answer will give it.
    Handed,
    /// It has to be answered in the usual way.
    Missing(Q),
}

/// An answer to be made in advance.
#[derive(Debug)]
pub(super) struct Plan {
    /// Which bytes of the file.
    pub(super) range: Range<u64>,
    /// Where they go.
    pub(super) bytes: Room,
    number: u64,
}

/// All readers, and what was made for them. `Q` is a question with all that it takes to answer it.
#[derive(Debug)]
pub(super) struct Ahead<Q> {
    state: Mutex<State<Q>>,
    /// Processors; half of them may work in advance.
    cores: usize,
}

#[derive(Debug)]
struct State<Q> {
    /// Who has asked last comes last.
    readers: Vec<Reader<Q>>,
    /// Memory of answers that were given, or still are.
    old: Vec<Arc<Room>>,
    /// Numbers of plans.
    last: u64,
}

/// Somebody who reads a file from some place on.
#[derive(Debug)]
struct Reader<Q> {
    ino: Ino,
    /// The end of what was asked for.
    next: u64,
    /// Bytes asked for in a row.
    run: u64,
    /// Bytes of the last large question.
    size: u64,
    /// Bytes of small questions since then, and before it: a buffer that does not begin on a page
    /// is filled in a large piece and a small one, again and again.
    small: u64,
    gap: u64,
    /// Size of the file, once there was reason to look; 0 for one that is not worth it.
    len: Option<u64>,
    answers: VecDeque<Answer<Q>>,
    asked: Instant,
}

#[derive(Debug)]
struct Answer<Q> {
    number: u64,
    range: Range<u64>,
    progress: Progress<Q>,
}

#[derive(Debug)]
enum Progress<Q> {
    /// Somebody is at it, and has been asked by now or not.
    Making(Option<Q>),
    Made(Arc<Room>),
}

impl<Q> State<Q> {
    /// Memory for an answer, if there may be one more.
    fn room(&mut self) -> Option<Room> {
        for i in 0..self.old.len() {
            if Arc::strong_count(&self.old[i]) == 1
                && let Some(bytes) = Arc::into_inner(self.old.swap_remove(i))
            {
                return Some(bytes);
            }
        }
        let made: usize = self.readers.iter().map(|reader| reader.answers.len()).sum();
        (made + self.old.len() < ANSWERS).then(Room::default)
    }

    /// Has one who has not asked for a while give up an answer, if there is any: the first of them.
    fn reclaim(&mut self, now: Instant) {
        let made = |answer: &Answer<Q>| matches!(answer.progress, Progress::Made(_));
        let idle = self.readers.iter_mut().filter(|reader| !reader.is_reading(now));
        let answer = idle.flat_map(|reader| {
            let at = reader.answers.iter().position(made)?;
            reader.answers.remove(at)
        });
        let answer = { answer }.next();
        self.retire(answer);
    }

    fn retire(&mut self, answers: impl IntoIterator<Item = Answer<Q>>) {
        for answer in answers {
            if let Progress::Made(bytes) = answer.progress {
                self.old.push(bytes);
            }
        }
    }
}

impl<Q> Answer<Q> {
    /// Whether a question was handed over: it must not be forgotten.
    fn is_asked(&self) -> bool {
        matches!(self.progress, Progress::Making(Some(_)))
    }
}

impl<Q> Reader<Q> {
    /// Whether a question was handed over.
    fn is_asked(&self) -> bool {
        self.answers.iter().any(Answer::is_asked)
    }

    /// Whether he has asked a moment ago.
    fn is_reading(&self, now: Instant) -> bool {
        now.duration_since(self.asked) < RECENT
    }

    fn new(ino: Ino, range: &Range<u64>) -> Reader<Q> {
        Reader {
            ino,
            next: range.end,
            run: range.end - range.start,
            size: range.end - range.start,
            small: 0,
            gap: 0,
            len: None,
            answers: VecDeque::new(),
            asked: Instant::now(),
        }
    }

    /// Whether a question for `range` goes on where the last ones were.
    fn goes_on(&self, range: &Range<u64>) -> bool {
        range.start <= self.next.saturating_add(SLACK)
            && range.end.saturating_add(SLACK) > self.next
    }

    /// Takes note of a question.
    fn note(&mut self, range: &Range<u64>) {
        let size = range.end.saturating_sub(range.start);
        self.run = self.run.saturating_add(size);
        self.next = self.next.max(range.end);
        self.asked = Instant::now();
        if size >= SMALL {
            (self.size, self.gap, self.small) = (size, self.small, 0);
        } else {
            self.small = self.small.saturating_add(size);
        }
    }

    /// What is likely to be asked for next, of what is not being made.
    fn guess(&self) -> Option<Range<u64>> {
        let len = self.len.filter(|_| self.run >= RUN && self.size >= SMALL)?;
        // A small question is answered in the usual way.
        let gap = if self.gap < SMALL { self.gap } else { 0 };
        let after = match self.answers.back() {
            Some(last) => last.range.end.checked_add(gap)?,
            None => self.next.checked_add(gap.saturating_sub(self.small))?,
        };
        let end = after.checked_add(self.size.min(LARGE))?.min(len);
        (end.saturating_sub(after) >= SMALL).then_some(after..end)
    }
}

impl<Q: Reply + std::fmt::Debug> Patient for Ahead<Q> {
    fn waiting(&self, for_: Duration) -> usize {
        let state = self.lock();
        let late = state.readers.iter().filter(|reader| reader.asked.elapsed() >= for_);
        late.filter(|reader| reader.is_asked()).count()
    }

    fn refuse(&self, patience: Duration) {
        let mut state = self.lock();
        let late = state.readers.iter_mut().filter(|reader| reader.asked.elapsed() >= patience);
        let handed = |answer: &mut Answer<Q>| match &mut answer.progress {
            Progress::Making(asked) => asked.take(),
            Progress::Made(_) => None,
        };
        let late: Vec<Q> =
            late.flat_map(|reader| reader.answers.iter_mut()).filter_map(handed).collect();
        drop(state);
        late.into_iter().for_each(Q::refuse);
    }
}

impl<Q> Ahead<Q> {
    /// Nothing is made in advance yet.
    pub(super) fn new(cores: usize) -> Ahead<Q> {
        let state = State { readers: Vec::new(), old: Vec::new(), last: 0 };
        Ahead { state: Mutex::new(state), cores }
    }

    fn lock(&self) -> MutexGuard<'_, State<Q>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the answer to a question for `range` of the file `ino`.
    pub(super) fn take(&self, ino: Ino, mut range: Range<u64>, question: Q) -> Taken<Q> {
        if self.cores < 2 {
            return Taken::Missing(question);
        }
        let mut state = self.lock();
        let mine = |reader: &Reader<Q>| reader.ino == ino && reader.goes_on(&range);
        let Some(at) = state.readers.iter().rposition(mine) else {
            if state.readers.len() >= WATCHED
                && let Some(at) = state.readers.iter().position(|reader| !reader.is_asked())
            {
                let gone = state.readers.remove(at);
                state.retire(gone.answers);
            }
            state.readers.push(Reader::new(ino, &range));
            return Taken::Missing(question);
        };
        let mut reader = state.readers.remove(at);
        if let Some(len) = reader.len.filter(|&len| len > 0) {
            range.end = range.end.min(len);
        }
        if range.is_empty() {
            // Behind the end of the file: the kernel asks for that, too.
            state.readers.push(reader);
            return Taken::Missing(question);
        }
        reader.note(&range);
        // What begins before the question's end and does not hold it is of no use any more.
        let holds =
            |answer: &Answer<Q>| answer.range.start <= range.start && range.end <= answer.range.end;
        let past = |answer: &mut Answer<Q>| {
            answer.range.start < range.end && !holds(answer) && !answer.is_asked()
        };
        let gone: Vec<_> = extract(&mut reader.answers, past);
        state.retire(gone);
        let taken = match reader.answers.iter().position(holds) {
            Some(at) => from_answer(&mut state, &mut reader, at, &range, question),
            None => Taken::Missing(question),
        };
        state.readers.push(reader);
        taken
    }

    /// What the thread that has dealt with a question about `ino` may do in advance. `len` tells
    /// the size of the file, if it is worth it at all.
    pub(super) fn plan(&self, ino: Ino, len: impl Fn() -> Option<u64>) -> Option<Plan> {
        let mut state = self.lock();
        // Who asked last is last.
        let at = state.readers.iter().rposition(|reader| reader.ino == ino)?;
        if state.readers[at].run < RUN {
            return None;
        }
        let now = Instant::now();
        let reads = |reader: &&Reader<Q>| reader.is_reading(now);
        if 2 * state.readers.iter().filter(reads).count() > self.cores {
            return None;
        }
        if state.readers[at].len.is_none() {
            // Not under the lock: it is found out once.
            drop(state);
            let len = len().unwrap_or(0);
            state = self.lock();
            let at = state.readers.iter().rposition(|reader| reader.ino == ino)?;
            state.readers[at].len = Some(len);
            return None;
        }
        let range = state.readers[at].guess()?;
        if state.readers[at].answers.len() >= DEPTH {
            return None;
        }
        let mut bytes = match state.room() {
            Some(bytes) => bytes,
            None => {
                // Who has stopped half way does not keep it from who reads.
                state.reclaim(now);
                state.room()?
            }
        };
        state.last += 1;
        let number = state.last;
        let progress = Progress::Making(None);
        state.readers[at].answers.push_back(Answer { number, range: range.clone(), progress });
        drop(state);
        // At most LARGE.
        bytes.resize((range.end - range.start) as usize);
        Some(Plan { range, bytes, number })
    }

    /// The answer was made, or could not be. Gives back the question that was handed over
    /// meanwhile, with its part of the answer if that is good; `range` tells what it asks for.
    pub(super) fn made(
        &self,
        plan: Plan,
        good: bool,
        range: impl FnOnce(&Q) -> Range<u64>,
    ) -> Option<(Q, Option<Part>)> {
        let bytes = Arc::new(plan.bytes);
        let mut state = self.lock();
        let found = state.readers.iter_mut().find_map(|reader| {
            let at = reader.answers.iter().position(|answer| answer.number == plan.number)?;
            Some((reader, at))
        });
        let Some((reader, at)) = found else {
            // Nobody wants it any more.
            state.old.push(bytes);
            return None;
        };
        let asked = match &mut reader.answers[at].progress {
            Progress::Making(asked) => asked.take(),
            Progress::Made(_) => None,
        };
        let Some(question) = asked else {
            if good {
                reader.answers[at].progress = Progress::Made(bytes);
            } else {
                reader.answers.remove(at);
                state.old.push(bytes);
            }
            return None;
        };
        let mut wanted = range(&question);
        wanted.end = wanted.end.min(plan.range.end);
        if good && wanted.end < plan.range.end {
            reader.answers[at].progress = Progress::Made(Arc::clone(&bytes));
        } else {
            reader.answers.remove(at);
            state.old.push(Arc::clone(&bytes));
        }
        let from = wanted.start.saturating_sub(plan.range.start) as usize;
        let to = wanted.end.saturating_sub(plan.range.start) as usize;
        Some((question, good.then_some(Part { bytes, range: from..to })))
    }

    /// Nobody reads `ino` from here on, as far as is known.
    pub(super) fn forget(&self, ino: Ino) {
        let mut state = self.lock();
        let gone = |reader: &mut Reader<Q>| reader.ino == ino && !reader.is_asked();
        let gone: Vec<_> = state.readers.extract_if(.., gone).collect();
        gone.into_iter().for_each(|reader| state.retire(reader.answers));
        // Memory goes back when nobody reads on at all.
        if state.readers.iter().all(|reader| reader.answers.is_empty()) {
            let old = std::mem::take(&mut state.old);
            drop(state);
            drop(old);
        }
    }
}

/// From one of the reader's answers, which holds `range`.
fn from_answer<Q>(
    state: &mut State<Q>,
    reader: &mut Reader<Q>,
    at: usize,
    range: &Range<u64>,
    question: Q,
) -> Taken<Q> {
    let answer = &mut reader.answers[at];
    let bytes = match &mut answer.progress {
        Progress::Making(Some(_)) => return Taken::Missing(question),
        Progress::Making(asked) => {
            *asked = Some(question);
            return Taken::Handed;
        }
        Progress::Made(bytes) => Arc::clone(bytes),
    };
    // Inside an answer, whose length is a usize.
    let from = (range.start - answer.range.start) as usize;
    let to = (range.end - answer.range.start) as usize;
    if range.end == answer.range.end {
        state.retire(reader.answers.remove(at));
    }
    Taken::Ready(Part { bytes, range: from..to }, question)
}

/// Takes out those that `which` chooses.
fn extract<T>(all: &mut VecDeque<T>, mut which: impl FnMut(&mut T) -> bool) -> Vec<T> {
    let mut out = Vec::new();
    let mut i = 0;
    while i < all.len() {
        if which(&mut all[i]) {
            out.extend(all.remove(i));
        } else {
            i += 1;
        }
    }
    out
}

#[cfg(test)]
#[path = "ahead/tests.rs"]
mod tests;
