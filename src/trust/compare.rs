//! The bytes themselves against what was written down about them.

use super::clash::{self, Clash};
use super::disagree::known_sum;
use super::xxh64::Xxh64;
use super::{Claim, Known, Of, Sum};
use crate::model::{Extent, Model};
use crate::source::{Source, SourceError};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes copied at a time.
const STEP: u64 = 1 << 20;
/// What stands in the place of a digest begins with, where there are no bytes.
pub const UNREADABLE: &str = "unreadable: ";

/// Bytes that are not what was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What is not.
    pub of: Of,
    /// What was written down.
    pub sum: Sum,
    /// Number of the file.
    pub shard: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// What the bytes have, or [`UNREADABLE`] and why.
    pub found: String,
    /// Where in the file the damage may be, narrowed down as far as can be told: first byte
    /// and number of bytes.
    pub suspect: Vec<(u64, u64)>,
}

impl Mismatch {
    /// Index of the tensor; `None` where it is a file or a part of one.
    pub fn tensor(&self) -> Option<u32> {
        match self.of {
            Of::Tensor(index) => Some(index),
            Of::File | Of::Payload | Of::Part(..) => None,
        }
    }

    /// Whether there are bytes that it is about.
    pub fn is_readable(&self) -> bool {
        !self.found.starts_with(UNREADABLE)
    }

    /// Whether the bytes are what is known of them; `None` where that is nothing.
    pub fn is_known(&self, known: &dyn Known) -> Option<bool> {
        let known = known_sum(known, self.shard as usize, self.of, &self.sum)?;
        Some(known.digits() == self.found)
    }
}

/// The outcome of [`compare`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompareReport {
    /// In order of the files, each file before its parts and tensors; of sums of the same bytes
    /// the one that says most.
    pub bad: Vec<Mismatch>,
    /// Where what is written down contradicts itself: the first of `bad` whose bytes are what
    /// others say of them.
    pub clash: Option<Clash>,
    /// Files that were compared as a whole, or in parts that together are all of it.
    pub files: u64,
    /// Tensors that were compared.
    pub tensors: u64,
    /// Bytes of the files that were compared, each counted once, whatever is said about it.
    pub bytes: u64,
    /// Files about which nothing is said, wholly or in part.
    pub uncovered: Vec<u32>,
}

/// Bytes that [`compare`] reads for claims, of which there is one per file of `model`.
pub fn work(claims: &[Claim], model: &Model) -> u64 {
    sum(jobs(claims).map(|(shard, of)| bytes_of(of, shard, model)))
}

/// Bytes of many jobs: what strangers ask for may pass all numbers.
fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// What there is to read: each once, whatever is said about it.
fn jobs(claims: &[Claim]) -> impl Iterator<Item = (u32, Of)> + '_ {
    (0u32..).zip(claims).flat_map(|(shard, claim)| {
        let mut last = None;
        let mut is_new = move |of| last.replace(of) != Some(of);
        claim.entries().filter_map(move |(of, _)| is_new(of).then_some((shard, of)))
    })
}

/// Bytes of a job.
fn bytes_of(of: Of, shard: u32, model: &Model) -> u64 {
    match of {
        // A part that ends behind the file is not read.
        Of::Part(_, to) if to > model.shards[shard as usize].len => 0,
        _ => sum(spans(of, shard, model).map(|(_, len)| len)),
    }
}

/// Bytes of the files that `jobs`, which are in order of the files, look at: what a file and its
/// tensors are both looked at for counts once.
fn reach(jobs: &[(u32, Of)], model: &Model) -> u64 {
    let files = jobs.chunk_by(|a, b| a.0 == b.0).map(|jobs| {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for &(shard, of) in jobs.iter().filter(|(shard, of)| bytes_of(*of, *shard, model) > 0) {
            runs.extend(spans(of, shard, model));
            if of == Of::File {
                // It holds whatever else is said.
                break;
            }
        }
        runs.sort_unstable();
        let (mut end, mut bytes) = (0, 0u64);
        for (from, len) in runs {
            let to = from.saturating_add(len);
            bytes += to.saturating_sub(from.max(end));
            end = to.max(end);
        }
        bytes
    });
    sum(files)
}

/// Where in the file it is: first byte and number of bytes of each run.
pub(super) fn spans(of: Of, shard: u32, model: &Model) -> impl Iterator<Item = (u64, u64)> + '_ {
    let one = match of {
        Of::File => Some((0, model.shards[shard as usize].len)),
        Of::Part(from, to) => Some((from, to - from)),
        Of::Tensor(index) => {
            let extent = model.tensors[index as usize].extent;
            Some((extent.offset, extent.len))
        }
        Of::Payload => None,
    };
    let all = (of == Of::Payload).then(|| tensors_of(model, shard)).into_iter().flatten();
    one.into_iter().chain(all.map(|(_, extent)| (extent.offset, extent.len)))
}

/// Whether something is said about every tensor of the file.
pub(super) fn is_by_tensors(shard: u32, claim: &Claim, model: &Model) -> bool {
    !claim.tensors.is_empty() && claim.tensor_count() == tensors_of(model, shard).count()
}

/// The tensors of a file, in tensor order.
fn tensors_of(model: &Model, shard: u32) -> impl Iterator<Item = (u32, Extent)> {
    let all = model.tensors.iter().enumerate().filter(move |(_, t)| t.extent.shard == shard);
    // Indices were counted with u32.
    all.map(|(index, tensor)| (index as u32, tensor.extent))
}

/// Compares the files of `model` with `claims`, of which there is one per file. `progress`
/// is called on this thread, now and then, with the number of bytes done; [`work`] says how
/// many there are.
pub fn compare(
    claims: &[Claim],
    model: &Model,
    sources: &[Source],
    progress: &dyn Fn(u64),
) -> Result<CompareReport, SourceError> {
    let mut report = CompareReport::default();
    let todo: Vec<(u32, Of)> = jobs(claims).collect();
    for (shard, claim) in (0u32..).zip(claims) {
        let in_parts = is_covered(claim, model.shards[shard as usize].len);
        if claim.sha256.is_some() || claim.crc32.is_some() || in_parts {
            report.files += 1;
        } else if !claim.has_payload() && !is_by_tensors(shard, claim, model) {
            // What is said about some of its tensors says nothing about the others.
            report.uncovered.push(shard);
        }
        report.tensors += match claim.has_payload() {
            true => tensors_of(model, shard).count() as u64,
            false => claim.tensor_count() as u64,
        };
    }
    for source in sources {
        source.check_unchanged()?;
    }
    report.bytes = reach(&todo, model);
    let mut found = run(&todo, claims, model, sources, progress)?;
    for source in sources {
        source.check_unchanged()?;
    }
    found.sort_by_key(|finding| finding.number);
    report.clash = clash::first(&found, &todo, claims, model);
    report.bad = found.into_iter().map(|finding| finding.mismatch).collect();
    narrow(&mut report.bad, claims, model);
    Ok(report)
}

/// Where tensors tell more about damage than what they are part of.
fn narrow(bad: &mut Vec<Mismatch>, claims: &[Claim], model: &Model) {
    let of_tensors: HashSet<u32> =
        bad.iter().filter(|bad| bad.tensor().is_some()).map(|bad| bad.shard).collect();
    let by_tensors: Vec<bool> =
        (0..).zip(claims).map(|(shard, claim)| is_by_tensors(shard, claim, model)).collect();
    let is_told =
        |bad: &Mismatch| by_tensors[bad.shard as usize] && of_tensors.contains(&bad.shard);
    bad.retain(|bad| bad.of != Of::Payload || !is_told(bad));
    for mismatch in bad.iter_mut().filter(|bad| bad.of == Of::File) {
        if by_tensors[mismatch.shard as usize] {
            mismatch.suspect = between(model, mismatch.shard);
        }
    }
}

/// Whether the parts that are spoken of leave nothing out.
fn is_covered(claim: &Claim, len: u64) -> bool {
    let end = claim
        .ranges
        .iter()
        .try_fold(0u64, |end, range| (range.from <= end).then_some(end.max(range.to)));
    !claim.ranges.is_empty() && end.is_some_and(|end| end >= len)
}

/// What is no tensor: header, padding and what follows the last.
fn between(model: &Model, shard: u32) -> Vec<(u64, u64)> {
    let mut extents: Vec<_> = tensors_of(model, shard).map(|(_, extent)| extent).collect();
    extents.sort_unstable_by_key(|extent| extent.offset);
    let mut gaps = Vec::new();
    let mut at = 0;
    for extent in extents {
        if extent.offset > at {
            gaps.push((at, extent.offset - at));
        }
        at = at.max(extent.offset + extent.len);
    }
    let len = model.shards[shard as usize].len;
    if len > at {
        gaps.push((at, len - at));
    }
    gaps
}

/// What a job found that is not as it should be.
pub(super) struct Finding {
    /// Which job.
    pub(super) number: usize,
    pub(super) mismatch: Mismatch,
    /// Another sum of the same bytes, which is right.
    pub(super) held: Option<Sum>,
}

/// Does the jobs on all cores.
fn run(
    todo: &[(u32, Of)],
    claims: &[Claim],
    model: &Model,
    sources: &[Source],
    progress: &dyn Fn(u64),
) -> Result<Vec<Finding>, SourceError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(todo.len());
    let (next, done, stop) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let running = AtomicUsize::new(threads);
    let bad = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    let work = || {
        let mut room = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(shard, of)) = todo.get(number) else {
                break;
            };
            let sums = claims[shard as usize].sums(of);
            match one(of, &sums, shard, model, sources, &mut room, &done) {
                Ok(None) => {}
                Ok(Some((mismatch, held))) => {
                    let mut bad = bad.lock().unwrap_or_else(PoisonError::into_inner);
                    bad.push(Finding { number, mismatch, held });
                }
                Err(error) => {
                    stop.store(true, Ordering::Relaxed);
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
            }
        }
        running.fetch_sub(1, Ordering::Relaxed);
    };
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
        while running.load(Ordering::Relaxed) > 0 {
            progress(done.load(Ordering::Relaxed));
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    progress(done.into_inner());
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(bad.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// The checksum that a job asks for.
enum Hasher {
    Sha256(Sha256),
    Xxh64(Xxh64),
    Crc32(crc32fast::Hasher),
}

impl Hasher {
    fn like(sum: &Sum) -> Hasher {
        match sum {
            Sum::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Sum::Xxh64(_) => Hasher::Xxh64(Xxh64::new()),
            Sum::Crc32(_) => Hasher::Crc32(crc32fast::Hasher::new()),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(sha) => sha.update(bytes),
            Hasher::Xxh64(sum) => sum.update(bytes),
            Hasher::Crc32(crc) => crc.update(bytes),
        }
    }

    fn finish(self) -> Sum {
        match self {
            Hasher::Sha256(sha) => Sum::Sha256(sha.finalize().into()),
            Hasher::Xxh64(sum) => Sum::Xxh64(sum.finish()),
            Hasher::Crc32(crc) => Sum::Crc32(crc.finalize()),
        }
    }
}

/// One job, for which the bytes are read once; if one of the sums is not theirs the first of
/// those, and one that is. Only a file that changed is an error: what cannot be read is damage.
fn one(
    of: Of,
    sums: &[Sum],
    shard: u32,
    model: &Model,
    sources: &[Source],
    room: &mut Vec<u8>,
    done: &AtomicU64,
) -> Result<Option<(Mismatch, Option<Sum>)>, SourceError> {
    let source = &sources[shard as usize];
    let len = source.len();
    let (offset, size) = match of {
        Of::Payload => (0, len),
        _ => spans(of, shard, model).next().unwrap_or_default(),
    };
    let mismatch = |sum: Sum, found| Mismatch {
        of,
        sum,
        shard,
        offset,
        len: size,
        found,
        suspect: vec![(offset, size)],
    };
    let mut hashers: Vec<_> = sums.iter().map(Hasher::like).collect();
    let mut take = |bytes: &[u8]| hashers.iter_mut().for_each(|hasher| hasher.update(bytes));
    let read = match of {
        Of::Part(_, to) if to > len => Err(format!("the file ends at {len}")),
        _ => match spans(of, shard, model)
            .try_for_each(|(at, len)| each_step(source, at, len, room, done, &mut take))
        {
            Err(error @ SourceError::Changed { .. }) => return Err(error),
            read => read.map_err(|error| error.to_string()),
        },
    };
    if let Err(why) = read {
        let first = sums.first().map(|sum| mismatch(*sum, format!("{UNREADABLE}{why}")));
        return Ok(first.map(|mismatch| (mismatch, None)));
    }
    let found = hashers.into_iter().map(Hasher::finish).zip(sums);
    let (right, wrong): (Vec<_>, Vec<_>) = found.partition(|(found, sum)| found == *sum);
    let held = right.first().map(|(sum, _)| *sum);
    let first = wrong.first().map(|(found, sum)| (mismatch(**sum, found.digits()), held));
    Ok(first)
}

/// Gives `take` a range of a file, step by step, from private copies.
fn each_step(
    source: &Source,
    offset: u64,
    len: u64,
    room: &mut Vec<u8>,
    done: &AtomicU64,
    take: &mut impl FnMut(&[u8]),
) -> Result<(), SourceError> {
    let mut at = 0;
    while at < len {
        let step = STEP.min(len - at);
        room.resize(step as usize, 0);
        source.read_once(offset + at, room)?;
        take(room);
        at += step;
        done.fetch_add(step, Ordering::Relaxed);
    }
    Ok(())
}
