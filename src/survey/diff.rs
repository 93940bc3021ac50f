//! What differs between the tensors of two models.
//!
//! Tensors are paired by name. Where type and shape are the same, bytes are compared first:
//! those that both seals give the same SHA-256 are not even read, as long as nothing has been
//! written to the files since they were sealed. Where bytes differ, values are.

use super::lane::{BLOCK, Lane};
use super::values::{PIECE, Subject, read_range};
use super::{SurveyError, threads};
use crate::content::Content;
use crate::dtype::DType;
use crate::naming::{Catalog, Mounted};
use crate::ordered::in_order;
use crate::store::{ReadFailure, Store};
use crate::view::{self, Repr, Stock, document};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// One of the two models.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// Its tensors and scales.
    pub stock: Stock<'a>,
    /// The names that they are compared under.
    pub catalog: &'a Catalog,
    /// Its bytes.
    pub store: &'a Store,
}

impl<'a> Side<'a> {
    fn tensors(self) -> impl Iterator<Item = Mounted<'a>> {
        let Side { stock, catalog, .. } = self;
        (0..catalog.len(stock.model)).map(move |i| catalog.get(stock.model, i))
    }
}

/// A tensor of one side.
#[derive(Clone, Debug)]
pub struct Shown<'a> {
    /// Type as served in `tensors/`.
    pub dtype: DType,
    /// Shape of its values.
    pub shape: Cow<'a, [u64]>,
}

/// How it is known that bytes are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// They were read.
    Read,
    /// Both seals have the same SHA-256, and are as old as the last change of the files.
    Seals,
}

/// What is known of two tensors of one name.
#[derive(Debug)]
pub enum Verdict {
    /// Type, shape and every byte are the same.
    Same(Evidence),
    /// Not so, and yet every value is equal.
    Equal(Difference),
    /// Values differ.
    Differs(Difference),
    /// The shapes differ: nothing was compared.
    Shape,
    /// The bytes or types differ, and there are no values to compare.
    Bytes,
    /// Only the first model has it.
    OnlyA,
    /// Only the second model has it.
    OnlyB,
    /// One of the two could not be read.
    Failed(SurveyError),
}

impl Verdict {
    /// The word in JSON.
    pub const fn name(&self) -> &'static str {
        match self {
            Verdict::Same(_) => "same",
            Verdict::Equal(_) => "equal",
            Verdict::Differs(_) => "differs",
            Verdict::Shape => "shape",
            Verdict::Bytes => "bytes",
            Verdict::OnlyA => "only_a",
            Verdict::OnlyB => "only_b",
            Verdict::Failed(_) => "failed",
        }
    }
}

/// How much two tensors differ. A NaN equals a NaN, an infinity itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Difference {
    /// Values of each.
    pub elements: u64,
    /// Values that are not equal.
    pub differing: u64,
    /// Of these, those of which one is NaN.
    pub nan: u64,
    /// Largest distance of two values, infinite where only one is; NaN does not count.
    pub max_abs: f64,
    /// Sums over the places where both values are finite.
    squares: f64,
    finite: u64,
    aa: f64,
    bb: f64,
    ab: f64,
}

impl Difference {
    /// Root of the mean square of the distances, where both are finite.
    pub fn rms(&self) -> Option<f64> {
        (self.finite > 0).then(|| (self.squares / self.finite as f64).sqrt())
    }

    /// Cosine of the angle between the two, as vectors of the places where both are finite; `None`
    /// where one of them is zero or too long for f64.
    pub fn cosine(&self) -> Option<f64> {
        let cosine = self.ab / (self.aa.sqrt() * self.bb.sqrt());
        cosine.is_finite().then(|| cosine.clamp(-1.0, 1.0))
    }

    fn merge(&mut self, next: &Difference) {
        self.elements += next.elements;
        self.differing += next.differing;
        self.nan += next.nan;
        self.max_abs = self.max_abs.max(next.max_abs);
        self.squares += next.squares;
        self.finite += next.finite;
        self.aa += next.aa;
        self.bb += next.bb;
        self.ab += next.ab;
    }

    /// Of two runs of as many numbers.
    fn of(lanes: (Lane, Lane), a: &[u8], b: &[u8]) -> Difference {
        let mut all = Difference::default();
        let (mut xs, mut ys) = ([0.0; BLOCK], [0.0; BLOCK]);
        let blocks = a.chunks(BLOCK * lanes.0.width()).zip(b.chunks(BLOCK * lanes.1.width()));
        for (a, b) in blocks {
            let n = a.len() / lanes.0.width();
            lanes.0.fill(a, &mut xs[..n]);
            lanes.1.fill(b, &mut ys[..n]);
            let mut block = block(&xs[..n], &ys[..n]);
            if lanes.0.is_wide() && lanes.1.is_wide() {
                exact(lanes, a, b, &mut block);
            }
            all.merge(&block);
        }
        all
    }
}

/// Of a block of numbers.
fn block(xs: &[f64], ys: &[f64]) -> Difference {
    const N: usize = 8;
    let [mut squares, mut aa, mut bb, mut ab, mut most, mut differing] = [[0.0; N]; 6];
    let mut add = |i: usize, x: f64, y: f64| {
        let distance = (x - y).abs();
        squares[i] += distance * distance;
        aa[i] += x * x;
        bb[i] += y * y;
        ab[i] += x * y;
        most[i] = if distance > most[i] { distance } else { most[i] };
        // Counted as a number of the same width, which the compiler adds beside the others.
        differing[i] += if x != y { 1.0 } else { 0.0 };
    };
    let ((xs_of_8, xs_left), (ys_of_8, ys_left)) = (xs.as_chunks::<N>(), ys.as_chunks::<N>());
    for (xs, ys) in xs_of_8.iter().zip(ys_of_8) {
        (0..N).for_each(|i| add(i, xs[i], ys[i]));
    }
    xs_left.iter().zip(ys_left).enumerate().for_each(|(i, (&x, &y))| add(i, x, y));
    let mut found = Difference { elements: xs.len() as u64, ..Difference::default() };
    let total = super::moments::total;
    (found.squares, found.aa, found.bb, found.ab) =
        (total(squares), total(aa), total(bb), total(ab));
    found.differing = total(differing) as u64;
    found.max_abs = most.iter().copied().fold(0.0, f64::max);
    found.finite = found.elements;
    // All that is not finite shows in one of the squares; so do numbers whose squares are not.
    if (found.aa + found.bb).is_finite() { found } else { odd(xs, ys) }
}

/// The same, of a block in which something is not finite.
fn odd(xs: &[f64], ys: &[f64]) -> Difference {
    let mut found = Difference { elements: xs.len() as u64, ..Difference::default() };
    for (&x, &y) in xs.iter().zip(ys) {
        if x.is_finite() && y.is_finite() {
            let distance = (x - y).abs();
            found.finite += 1;
            found.squares += distance * distance;
            found.aa += x * x;
            found.bb += y * y;
            found.ab += x * y;
            found.max_abs = found.max_abs.max(distance);
            found.differing += u64::from(x != y);
        } else if x.is_nan() || y.is_nan() {
            let one = x.is_nan() != y.is_nan();
            found.differing += u64::from(one);
            found.nan += u64::from(one);
        } else if x != y {
            found.differing += 1;
            found.max_abs = f64::INFINITY;
        }
    }
    found
}

/// What f64 does not tell apart of wide integers.
fn exact(lanes: (Lane, Lane), a: &[u8], b: &[u8], found: &mut Difference) {
    let pairs = lanes.0.integers(a).zip(lanes.1.integers(b));
    let (mut differing, mut most) = (0, 0);
    for (x, y) in pairs {
        differing += u64::from(x != y);
        most = most.max((x - y).unsigned_abs());
    }
    found.differing = differing;
    found.max_abs = most as f64;
}

/// Two tensors of one name, or one that is alone.
#[derive(Debug)]
pub struct Compared<'a> {
    /// Their name.
    pub name: Cow<'a, [u8]>,
    /// The tensor of the first model.
    pub a: Option<Shown<'a>>,
    /// The tensor of the second model.
    pub b: Option<Shown<'a>>,
    /// What is known of them.
    pub verdict: Verdict,
}

/// Bytes that the comparison of two models may have to go through.
pub fn bytes(a: Side<'_>, b: Side<'_>) -> u64 {
    let sum = |side: Side<'_>| super::stats::bytes(side.tensors());
    sum(a).saturating_add(sum(b))
}

/// Compares all tensors and gives them to `sink`: those of `a` in their order, then those that
/// only `b` has. `progress` is told, on this thread, the bytes of both models that are done.
pub fn diff<'a, E>(
    a: Side<'a>,
    b: Side<'a>,
    progress: &dyn Fn(u64),
    mut sink: impl FnMut(Compared<'a>) -> Result<(), E>,
) -> Result<(), E> {
    let subject = |side: Side<'a>, tensor: &Mounted<'a>| Subject::new(side.stock, tensor);
    let mut others: HashMap<Cow<'a, [u8]>, (usize, bool)> = HashMap::new();
    for (i, tensor) in b.tensors().enumerate() {
        others.entry(subject(b, &tensor).name).or_insert((i, false));
    }
    let mut done = 0u64;
    for tensor in a.tensors() {
        let ours = subject(a, &tensor);
        let size = ours.nbytes;
        let Some((index, met)) = others.get_mut(&ours.name) else {
            let shown = Some(shown(&ours));
            sink(Compared { name: ours.name, a: shown, b: None, verdict: Verdict::OnlyA })?;
            done = done.saturating_add(size);
            continue;
        };
        *met = true;
        let other = b.catalog.get(b.stock.model, *index);
        let theirs = subject(b, &other);
        let size = size.saturating_add(theirs.nbytes);
        let (shown_a, shown_b) = (shown(&ours), shown(&theirs));
        let name = ours.name.clone();
        let pair = Pair { sides: (a, b), tensors: (&tensor, &other), size };
        let verdict = pair.compare(ours, theirs, &|part| progress(done.saturating_add(part)));
        done = done.saturating_add(size);
        progress(done);
        sink(Compared { name, a: Some(shown_a), b: Some(shown_b), verdict })?;
    }
    for tensor in b.tensors() {
        let theirs = subject(b, &tensor);
        if others.get(&theirs.name).is_some_and(|(_, met)| !met) {
            let shown = Some(shown(&theirs));
            sink(Compared { name: theirs.name, a: None, b: shown, verdict: Verdict::OnlyB })?;
        }
    }
    Ok(())
}

fn shown<'a>(subject: &Subject<'a>) -> Shown<'a> {
    Shown { dtype: subject.dtype, shape: subject.shape.clone() }
}

/// Two tensors of one name.
struct Pair<'p, 'a> {
    sides: (Side<'a>, Side<'a>),
    tensors: (&'p Mounted<'a>, &'p Mounted<'a>),
    size: u64,
}

/// A read of one of the two that failed; the second, or else the first.
type Failure = (bool, ReadFailure);

impl Pair<'_, '_> {
    fn compare(&self, a: Subject<'_>, b: Subject<'_>, progress: &dyn Fn(u64)) -> Verdict {
        if a.shape != b.shape {
            return Verdict::Shape;
        }
        let failed = |(second, failure): Failure| {
            Verdict::Failed(if second { b.failed(failure) } else { a.failed(failure) })
        };
        if a.dtype == b.dtype && !a.scaled && !b.scaled {
            match self.same_bytes(progress) {
                Ok(Some(evidence)) => return Verdict::Same(evidence),
                Ok(None) => {}
                Err(failure) => return failed(failure),
            }
        }
        let (Some(x), Some(y)) = (&a.values, &b.values) else {
            return Verdict::Bytes;
        };
        let complex = (x.lane == Lane::Complex, y.lane == Lane::Complex);
        let ((lane_a, content_a), (lane_b, content_b)) = (x.parts(), y.parts());
        let (lanes, contents) = ((lane_a, lane_b), (content_a, content_b));
        let widths = (lane_a.width() as u64, lane_b.width() as u64);
        let n = content_a.len() / widths.0;
        if complex.0 != complex.1 || n != content_b.len() / widths.1 {
            return Verdict::Bytes;
        }
        let mut all = Difference::default();
        let look = |a: &[u8], b: &[u8]| Difference::of(lanes, a, b);
        let merged = self.pieces(contents, n, widths, look, progress, |part| {
            all.merge(&part);
            true
        });
        match merged {
            Err(failure) => failed(failure),
            Ok(()) if all.differing == 0 => Verdict::Equal(all),
            Ok(()) => Verdict::Differs(all),
        }
    }

    /// Whether the bytes are the same, and how that is known, of tensors of one type and shape.
    fn same_bytes(&self, progress: &dyn Fn(u64)) -> Result<Option<Evidence>, Failure> {
        let sealed = |side: Side<'_>, tensor: &Mounted<'_>| {
            let plain = document::is_stored_tensor(side.stock.model, tensor);
            let sum = side.store.fresh_checksum(tensor.source as usize).filter(|_| plain)?;
            sum.sha256
        };
        let sums = (sealed(self.sides.0, self.tensors.0), sealed(self.sides.1, self.tensors.1));
        if let (Some(a), Some(b)) = sums {
            return Ok((a == b).then_some(Evidence::Seals));
        }
        let content = |side: Side<'_>, tensor| view::bin(side.stock, tensor, Repr::Stored);
        let contents =
            (content(self.sides.0, self.tensors.0), content(self.sides.1, self.tensors.1));
        let (Some(a), Some(b)) = contents else { return Ok(None) };
        if a.len() != b.len() {
            return Ok(None);
        }
        let mut same = true;
        self.pieces(
            (&a, &b),
            a.len(),
            (1, 1),
            |a, b| a == b,
            progress,
            |equal| {
                same &= equal;
                same
            },
        )?;
        Ok(same.then_some(Evidence::Read))
    }

    /// Looks at pieces of both of `n` elements of these widths, in order, as long as `take` says.
    fn pieces<R: Send>(
        &self,
        (a, b): (&Content<'_>, &Content<'_>),
        n: u64,
        widths: (u64, u64),
        look: impl Fn(&[u8], &[u8]) -> R + Sync,
        progress: &dyn Fn(u64),
        mut take: impl FnMut(R) -> bool,
    ) -> Result<(), Failure> {
        // Elements of one byte are bytes: as long a piece as of others.
        let step = if widths == (1, 1) { PIECE * 4 } else { PIECE };
        let (stores, pieces) = ((self.sides.0.store, self.sides.1.store), n.div_ceil(step));
        let done = AtomicU64::new(0);
        let work = |piece: u64| -> Result<R, Option<Failure>> {
            let (start, end) = (piece * step, (piece * step).saturating_add(step).min(n));
            BUFFERS.with_borrow_mut(|(left, right)| {
                let range = |width| start * width..end * width;
                let a = read_range(a, stores.0, range(widths.0), left);
                let a = a.map_err(|failure| Some((false, failure)))?;
                let b = read_range(b, stores.1, range(widths.1), right);
                let b = b.map_err(|failure| Some((true, failure)))?;
                done.fetch_add(1, Ordering::Relaxed);
                Ok(look(a, b))
            })
        };
        let sink = |seen| if take(seen) { Ok(()) } else { Err(None) };
        let tick = || {
            let share = u128::from(self.size) * u128::from(done.load(Ordering::Relaxed));
            progress(u64::try_from(share / u128::from(pieces.max(1))).unwrap_or(self.size));
        };
        let mut sink = sink;
        // Threads for one piece would cost more than they bring.
        let outcome = match pieces {
            1 => work(0).and_then(&mut sink),
            _ => in_order(threads(), 0..pieces, work, sink, tick),
        };
        match outcome {
            Ok(()) | Err(None) => Ok(()),
            Err(Some(failure)) => Err(failure),
        }
    }
}

thread_local! {
    /// The pieces that a thread compares.
    static BUFFERS: RefCell<(Vec<u8>, Vec<u8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}
