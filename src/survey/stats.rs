//! Statistics of tensors.

use super::histogram::{BINS, Edges};
use super::lane::Lane;
use super::values::Subject;
use super::{Histogram, Number, SurveyError, Tally, ValueKind, threads};
use crate::dtype::DType;
use crate::naming::Mounted;
use crate::ordered::in_order;
use crate::store::{ReadFailure, Store};
use crate::view::Stock;
use std::borrow::Cow;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};

/// Tensors that are worked on together: so many bytes of the source, or so many. What has to be
/// read a second time for its histogram is still in the page cache then.
const BATCH: (u64, usize) = (256 << 20, 4096);

/// What is known of a tensor's values.
#[derive(Clone, Debug)]
pub struct Stats {
    /// What the numbers are.
    pub kind: ValueKind,
    /// What was counted.
    pub tally: Tally,
    /// Least and greatest finite value.
    pub extremes: Option<(Number, Number)>,
    /// How they spread, where that was asked for and there is a finite one.
    pub histogram: Option<Box<Histogram>>,
}

/// A tensor with its statistics.
#[derive(Debug)]
pub struct Surveyed<'a> {
    /// Name of its values.
    pub name: Cow<'a, [u8]>,
    /// Type as served in `tensors/`.
    pub dtype: DType,
    /// Shape of its values.
    pub shape: Cow<'a, [u64]>,
    /// `None`: it has no values.
    pub stats: Result<Option<Stats>, SurveyError>,
}

/// Bytes that the survey of `tensors` has to go through: what its progress runs up to.
pub fn bytes<'a>(tensors: impl Iterator<Item = Mounted<'a>>) -> u64 {
    tensors.fold(0, |sum, tensor| sum.saturating_add(tensor.extent.len))
}

/// Surveys `tensors` and gives them to `sink` in their order. A tensor that cannot be read is
/// given with its error, and the others are surveyed all the same; an error of `sink` ends it.
/// `progress` is told, on this thread, the bytes of the source that are done.
pub fn stats<'a, E>(
    stock: Stock<'_>,
    store: &Store,
    mut tensors: impl Iterator<Item = Mounted<'a>>,
    histograms: bool,
    progress: &dyn Fn(u64),
    mut sink: impl FnMut(Surveyed<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let done = AtomicU64::new(0);
    loop {
        let (mut plans, mut sum) = (Vec::new(), 0u64);
        while sum < BATCH.0 && plans.len() < BATCH.1 {
            let Some(tensor) = tensors.next() else { break };
            let subject = Subject::new(stock, &tensor);
            sum = sum.saturating_add(subject.nbytes);
            plans.push(Plan::new(subject, histograms));
        }
        if plans.is_empty() {
            return Ok(());
        }
        let batch = Batch { plans, store, done: &done, progress };
        let mut found: Vec<Found> = batch.plans.iter().map(|_| Found::default()).collect();
        batch.count(&mut found, histograms);
        if histograms {
            batch.spread(&mut found);
        }
        let plans = batch.plans.into_iter();
        plans.zip(found).try_for_each(|(plan, found)| sink(plan.finish(found)))?;
    }
}

/// A tensor to be surveyed.
struct Plan<'a> {
    subject: Subject<'a>,
    pieces: u64,
    /// Passes that are made over the pieces.
    passes: u64,
    /// The first piece that could not be read; those behind it need not be.
    failed_at: AtomicU64,
}

/// What is known of a tensor so far.
#[derive(Default)]
struct Found {
    tally: Tally,
    bins: Option<(Edges, [u64; BINS])>,
    failure: Option<ReadFailure>,
}

impl<'a> Plan<'a> {
    fn new(subject: Subject<'a>, histograms: bool) -> Plan<'a> {
        let pieces = subject.values.as_ref().map_or(0, |values| values.pieces());
        // The bins of one piece are filled while it is at hand.
        let passes = if histograms && pieces > 1 { 2 } else { 1 };
        Plan { subject, pieces, passes, failed_at: AtomicU64::new(u64::MAX) }
    }

    /// Reads a piece. `None`: there is nothing to read any more.
    fn piece<R>(
        &self,
        store: &Store,
        piece: u64,
        work: impl FnOnce(Lane, &[u8]) -> R,
    ) -> Option<Result<R, ReadFailure>> {
        let values = self.subject.values.as_ref()?;
        // One in front of it is read all the same: the first failure is told, whoever is faster.
        if self.failed_at.load(Ordering::Relaxed) < piece {
            return None;
        }
        let read = values.piece(store, piece, |bytes| work(values.lane, bytes));
        if read.is_err() {
            self.failed_at.fetch_min(piece, Ordering::Relaxed);
        }
        Some(read)
    }

    /// Bytes of the source that one pass over `piece` stands for.
    fn share(&self, piece: u64) -> u64 {
        let upto = |piece| self.subject.share(piece, self.pieces);
        (upto(piece + 1) - upto(piece)) / self.passes
    }

    fn finish(self, found: Found) -> Surveyed<'a> {
        let Plan { subject, .. } = self;
        let Found { tally, bins, failure } = found;
        let stats = match (failure, &subject.values) {
            (Some(failure), _) => Err(subject.failed(failure)),
            (None, None) => Ok(None),
            (None, Some(values)) => {
                let kind = values.lane.kind();
                let integers = matches!(kind, ValueKind::Integer | ValueKind::Boolean);
                let histogram = bins.map(|(edges, counts)| Box::new(edges.histogram(counts)));
                Ok(Some(Stats { kind, tally, extremes: tally.extremes(integers), histogram }))
            }
        };
        Surveyed { name: subject.name, dtype: subject.dtype, shape: subject.shape, stats }
    }
}

/// Tensors that are worked on together.
struct Batch<'b, 'a> {
    plans: Vec<Plan<'a>>,
    store: &'b Store,
    done: &'b AtomicU64,
    progress: &'b dyn Fn(u64),
}

/// What one look at a piece gives, of the tensor and with what came of reading it.
type Looked<R> = (usize, Option<Result<R, ReadFailure>>);

impl Batch<'_, '_> {
    /// Looks at every piece of the tensors that `of` gives something for, with that, and hands
    /// what is seen to `sink`, in order.
    fn pass<X: Copy + Send, R: Send>(
        &self,
        of: impl Fn(usize, &Plan<'_>) -> Option<X> + Send + Sync,
        look: impl Fn(X, Lane, &[u8]) -> R + Sync,
        mut sink: impl FnMut(usize, Result<R, ReadFailure>),
    ) {
        let (plans, store, done) = (&self.plans, self.store, self.done);
        let jobs =
            plans.iter().enumerate().filter_map(|(at, plan)| Some((at, plan, of(at, plan)?)));
        let jobs = jobs.flat_map(|(at, plan, with)| (0..plan.pieces).map(move |p| (at, p, with)));
        let work = |(at, piece, with): (usize, u64, X)| -> Result<Looked<R>, Infallible> {
            let plan: &Plan<'_> = &plans[at];
            let seen = plan.piece(store, piece, |lane, bytes| look(with, lane, bytes));
            done.fetch_add(plan.share(piece), Ordering::Relaxed);
            Ok((at, seen))
        };
        let take = |(at, seen): Looked<R>| {
            if let Some(seen) = seen {
                sink(at, seen);
            }
            Ok(())
        };
        let tick = || (self.progress)(done.load(Ordering::Relaxed));
        let Ok(()) = in_order(threads(), jobs, work, take, tick);
    }

    /// Counts the values; of a tensor of one piece the histogram as well, where that is wanted.
    fn count(&self, found: &mut [Found], histograms: bool) {
        let look = |bins: bool, lane: Lane, bytes: &[u8]| {
            let tally = Tally::of(lane, bytes);
            let edges = tally.range().filter(|_| bins).map(Edges::new);
            (tally, edges.map(|edges| (edges.count(lane, bytes), edges)))
        };
        self.pass(
            |_, plan| Some(histograms && plan.pieces == 1),
            look,
            |at, seen| match seen {
                Ok((tally, bins)) => {
                    found[at].tally.merge(&tally);
                    found[at].bins = bins.map(|(counts, edges)| (edges, counts));
                }
                Err(failure) => fail(&mut found[at], failure),
            },
        );
    }

    /// Fills the bins of the tensors of several pieces.
    fn spread(&self, found: &mut [Found]) {
        for (plan, found) in self.plans.iter().zip(&mut *found) {
            if plan.pieces > 1 && found.failure.is_none() {
                found.bins = found.tally.range().map(|range| (Edges::new(range), [0; BINS]));
            }
        }
        let edges: Vec<Option<Edges>> = self
            .plans
            .iter()
            .zip(&*found)
            .map(|(plan, found)| {
                let bins = found.bins.as_ref().filter(|_| plan.pieces > 1);
                bins.map(|(edges, _)| edges.clone())
            })
            .collect();
        self.pass(
            |at, _| edges[at].as_ref(),
            |edges, lane, bytes| edges.count(lane, bytes),
            |at, seen| match seen {
                Ok(counts) => {
                    let bins = found[at].bins.iter_mut().flat_map(|(_, all)| all);
                    bins.zip(counts).for_each(|(all, count)| *all += count);
                }
                Err(failure) => fail(&mut found[at], failure),
            },
        );
    }
}

/// Keeps the first failure.
fn fail(found: &mut Found, failure: ReadFailure) {
    found.failure.get_or_insert(failure);
}
