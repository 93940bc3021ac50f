//! The bytes themselves against what was written down about them.

use super::xxh64::Xxh64;
use super::{Claim, Sum};
use crate::bytes::hex::{crc_hex, hex};
use crate::model::{Extent, Model};
use crate::source::{Source, SourceError};
use sha2::{Digest, Sha256};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Bytes copied at a time.
const STEP: u64 = 1 << 20;
/// What stands in the place of a digest begins with, where there are no bytes.
pub const UNREADABLE: &str = "unreadable: ";

/// Of what something is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// A whole file.
    File,
    /// The tensors' bytes of a file, one after the other.
    Payload,
    /// A range of a file.
    Part,
    /// A tensor.
    Tensor,
}

/// Bytes that are not what was written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// What is not.
    pub of: Of,
    /// Index of the tensor; `None` where it is a file or a part of one.
    pub tensor: Option<u32>,
    /// Number of the file.
    pub shard: u32,
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// What was written down, in hexadecimal.
    pub expected: String,
    /// What the bytes have, or [`UNREADABLE`] and why.
    pub found: String,
    /// Where in the file the damage may be, narrowed down as far as can be told: first byte
    /// and number of bytes.
    pub suspect: Vec<(u64, u64)>,
}

/// The outcome of [`compare`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompareReport {
    /// In order of the files, each file before its parts and tensors.
    pub bad: Vec<Mismatch>,
    /// Files that were compared as a whole, or in parts that together are all of it.
    pub files: u64,
    /// Tensors that were compared.
    pub tensors: u64,
    /// Bytes that were read.
    pub bytes: u64,
    /// Files about which nothing is said, wholly or in part.
    pub uncovered: Vec<u32>,
}

/// One thing to compute.
enum Job<'a> {
    File(&'a [u8; 32]),
    FileCrc(u32),
    Payload(&'a [u8; 32]),
    Range(u64, u64, &'a [u8; 32]),
    Tensor(u32, &'a Sum),
}

impl Job<'_> {
    fn bytes(&self, model: &Model, shard: u32) -> u64 {
        match self {
            Job::File(_) | Job::FileCrc(_) => model.shards[shard as usize].len,
            Job::Payload(_) => tensors_of(model, shard).map(|(_, extent)| extent.len).sum(),
            // One that ends behind the file is not read.
            Job::Range(_, to, _) if *to > model.shards[shard as usize].len => 0,
            Job::Range(from, to, _) => to - from,
            Job::Tensor(index, _) => model.tensors[*index as usize].extent.len,
        }
    }
}

/// Bytes that [`compare`] reads for claims, of which there is one per file of `model`.
pub fn work(claims: &[Claim], model: &Model) -> u64 {
    let of_file =
        |(shard, claim)| sum(jobs(shard, claim, model).iter().map(|job| job.bytes(model, shard)));
    sum((0..).zip(claims).map(of_file))
}

/// Bytes of many jobs: what strangers ask for may pass all numbers.
fn sum(bytes: impl Iterator<Item = u64>) -> u64 {
    bytes.fold(0, u64::saturating_add)
}

/// What there is to compute for a claim.
fn jobs<'a>(shard: u32, claim: &'a Claim, model: &Model) -> Vec<Job<'a>> {
    let mut jobs: Vec<Job<'a>> = claim.sha256.iter().map(Job::File).collect();
    // Whoever has the right SHA-256 has the right CRC32.
    let crc32 = claim.crc32.filter(|_| claim.sha256.is_none());
    jobs.extend(crc32.map(Job::FileCrc));
    // All tensors together are what they are one by one.
    let payload = claim.payload.iter().filter(|_| !is_by_tensors(shard, claim, model));
    jobs.extend(payload.map(Job::Payload));
    jobs.extend(claim.ranges.iter().map(|r| Job::Range(r.from, r.to, &r.sha256)));
    jobs.extend(claim.tensors.iter().map(|(index, sum)| Job::Tensor(*index, sum)));
    jobs
}

/// Whether something is said about every tensor of the file.
pub(super) fn is_by_tensors(shard: u32, claim: &Claim, model: &Model) -> bool {
    !claim.tensors.is_empty() && claim.tensors.len() == tensors_of(model, shard).count()
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
    let mut todo: Vec<(u32, Job<'_>)> = Vec::new();
    for (shard, claim) in (0u32..).zip(claims) {
        let in_parts = is_covered(claim, model.shards[shard as usize].len);
        if claim.sha256.is_some() || claim.crc32.is_some() || in_parts {
            report.files += 1;
        } else if !claim.ranges.is_empty()
            || claim.payload.is_none() && !is_by_tensors(shard, claim, model)
        {
            // What is said about some of its tensors says nothing about the others.
            report.uncovered.push(shard);
        }
        report.tensors += match claim.payload {
            Some(_) => tensors_of(model, shard).count() as u64,
            None => claim.tensors.len() as u64,
        };
        todo.extend(jobs(shard, claim, model).into_iter().map(|job| (shard, job)));
    }
    for source in sources {
        source.check_unchanged()?;
    }
    report.bytes = sum(todo.iter().map(|(shard, job)| job.bytes(model, *shard)));
    let mut bad = run(&todo, model, sources, progress)?;
    for source in sources {
        source.check_unchanged()?;
    }
    bad.sort_by_key(|(number, _)| *number);
    report.bad = bad.into_iter().map(|(_, mismatch)| mismatch).collect();
    for mismatch in &mut report.bad {
        let claim = &claims[mismatch.shard as usize];
        let whole =
            mismatch.tensor.is_none() && mismatch.len == model.shards[mismatch.shard as usize].len;
        if whole && is_by_tensors(mismatch.shard, claim, model) {
            mismatch.suspect = between(model, mismatch.shard);
        }
    }
    Ok(report)
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

/// Does the jobs on all cores.
fn run(
    jobs: &[(u32, Job<'_>)],
    model: &Model,
    sources: &[Source],
    progress: &dyn Fn(u64),
) -> Result<Vec<(usize, Mismatch)>, SourceError> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    let (next, done, stop) = (AtomicUsize::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let running = AtomicUsize::new(threads);
    let bad = Mutex::new(Vec::new());
    let failed = Mutex::new(None);
    let work = || {
        let mut room = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some((shard, job)) = jobs.get(number) else {
                break;
            };
            match one(job, *shard, model, sources, &mut room, &done) {
                Ok(None) => {}
                Ok(Some(mismatch)) => {
                    let mut bad = bad.lock().unwrap_or_else(PoisonError::into_inner);
                    bad.push((number, mismatch));
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
    fn update(&mut self, bytes: &[u8]) {
        match self {
            Hasher::Sha256(sha) => sha.update(bytes),
            Hasher::Xxh64(sum) => sum.update(bytes),
            Hasher::Crc32(crc) => crc.update(bytes),
        }
    }

    fn digits(self) -> String {
        match self {
            Hasher::Sha256(sha) => hex(&sha.finalize()),
            Hasher::Xxh64(sum) => Sum::Xxh64(sum.finish()).digits(),
            Hasher::Crc32(crc) => crc_hex(crc.finalize()),
        }
    }
}

/// One job; a mismatch if there is one. Only a file that changed is an error: what cannot be
/// read is damage.
fn one(
    job: &Job<'_>,
    shard: u32,
    model: &Model,
    sources: &[Source],
    room: &mut Vec<u8>,
    done: &AtomicU64,
) -> Result<Option<Mismatch>, SourceError> {
    let source = &sources[shard as usize];
    let len = source.len();
    let (of, tensor, offset, size, expected) = match job {
        Job::File(sha) => (Of::File, None, 0, len, hex(*sha)),
        Job::FileCrc(crc) => (Of::File, None, 0, len, crc_hex(*crc)),
        Job::Payload(sha) => (Of::Payload, None, 0, len, hex(*sha)),
        Job::Range(from, to, sha) => (Of::Part, None, *from, to - from, hex(*sha)),
        Job::Tensor(index, sum) => {
            let extent = model.tensors[*index as usize].extent;
            (Of::Tensor, Some(*index), extent.offset, extent.len, sum.digits())
        }
    };
    let mismatch = |found| Mismatch {
        of,
        tensor,
        shard,
        offset,
        len: size,
        expected: expected.clone(),
        found,
        suspect: vec![(offset, size)],
    };
    let mut hasher = match job {
        Job::FileCrc(_) | Job::Tensor(_, Sum::Crc32(_)) => Hasher::Crc32(crc32fast::Hasher::new()),
        Job::Tensor(_, Sum::Xxh64(_)) => Hasher::Xxh64(Xxh64::new()),
        _ => Hasher::Sha256(Sha256::new()),
    };
    let mut take = |bytes: &[u8]| hasher.update(bytes);
    let read = match job {
        Job::Payload(_) => tensors_of(model, shard)
            .try_for_each(|(_, e)| each_step(source, e.offset, e.len, room, done, &mut take)),
        Job::Range(_, to, _) if *to > len => {
            let found = format!("{UNREADABLE}the file ends at {len}");
            return Ok(Some(mismatch(found)));
        }
        _ => each_step(source, offset, size, room, done, &mut take),
    };
    let found = match read {
        Ok(()) => hasher.digits(),
        Err(error @ SourceError::Changed { .. }) => return Err(error),
        Err(error) => format!("{UNREADABLE}{error}"),
    };
    let differs = found != expected;
    Ok(differs.then(|| mismatch(found)))
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
        source.read_at(offset + at, room)?;
        take(room);
        at += step;
        done.fetch_add(step, Ordering::Relaxed);
    }
    Ok(())
}
