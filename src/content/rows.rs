//! Rows in another order than they are stored in: a row is whole blocks, so nothing is
//! decoded.
//!
//! A request reads the stored bytes that its rows lie in, once each, and picks the rows from
//! there: every read is checked chunk by chunk, so a read per row would check the same chunk
//! again and again. Where that fails the request is halved, down to single rows, until what is
//! good in front of the failure has been served.

use super::{Body, Bytes};
use crate::model::Extent;
use crate::store::{ReadFailure, Store};
use std::cell::RefCell;
use std::ops::Range;

/// Runs of rows from this many bytes on are read straight to where they go.
const DIRECT: u64 = 128 << 10;
/// Bytes of rows that are picked together. Windows are at most twice that and a little more.
const BATCH: u64 = 1 << 20;
/// Streams of stored rows that one order draws from, at most.
const STREAMS: usize = 3;

thread_local! {
    /// Stored rows of one request.
    static WINDOW: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where rows come from.
#[derive(Clone, Debug)]
pub enum Part {
    /// Stored bytes.
    Span(Extent),
    /// What another body makes of them.
    Body(Box<Body>),
}

impl Bytes for Part {
    fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        match self {
            Part::Span(extent) => store.read(*extent, from, out),
            Part::Body(body) => body.read(store, from, out),
        }
    }
}

/// Which stored row is served where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// With `D` rows per head, row `h*D + t` is stored row `h*D + 2*(t % (D/2)) + t / (D/2)`.
    Rope {
        /// `D`: even, at least 2.
        rows: u64,
    },
    /// `[heads, 3, rows]` out of `[3, heads, rows]`.
    Qkv3 {
        /// Attention heads.
        heads: u64,
        /// Rows per head, at least 1.
        rows: u64,
    },
    /// Per key head its `heads / kv_heads` query heads, its key and its value, out of all
    /// query heads, all keys, all values.
    Falcon {
        /// Query heads.
        heads: u64,
        /// Key heads; they divide `heads`.
        kv_heads: u64,
        /// Rows per head, at least 1.
        rows: u64,
    },
    /// Rows of two parts in turn.
    Interleave,
}

/// A row's place: which stream of stored rows it is in, and its number in its part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    stream: usize,
    row: u64,
}

impl Order {
    fn locate(self, row: u64) -> Place {
        match self {
            Order::Rope { rows } => {
                let (start, t) = (row - row % rows, row % rows);
                let half = rows / 2;
                Place { stream: 0, row: start + 2 * (t % half) + t / half }
            }
            Order::Qkv3 { heads, rows } => {
                let (head, which, at) = (row / (3 * rows), row / rows % 3, row % rows);
                Place { stream: which as usize, row: (which * heads + head) * rows + at }
            }
            Order::Falcon { heads, kv_heads, rows } => {
                let queries = heads / kv_heads;
                let group = row / ((queries + 2) * rows);
                let (slot, at) = (row / rows % (queries + 2), row % rows);
                let (stream, head) = match slot.checked_sub(queries) {
                    None => (0, group * queries + slot),
                    Some(0) => (1, heads + group),
                    Some(_) => (2, heads + kv_heads + group),
                };
                Place { stream, row: head * rows + at }
            }
            Order::Interleave => Place { stream: (row % 2) as usize, row: row / 2 },
        }
    }

    /// The last place inside `rows` where the stored rows of both sides are far apart.
    fn seam(self, rows: &Range<u64>) -> Option<u64> {
        let Order::Rope { rows: head } = self else {
            return None;
        };
        let seam = (rows.end - 1) / (head / 2) * (head / 2);
        (seam > rows.start).then_some(seam)
    }

    /// So many rows follow one another in the store too, from every multiple of it on.
    fn run(self) -> u64 {
        match self {
            Order::Rope { .. } | Order::Interleave => 1,
            Order::Qkv3 { rows, .. } | Order::Falcon { rows, .. } => rows,
        }
    }
}

/// Rows in an order.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The stored rows.
    pub part: Part,
    /// Those of the second part, of an order that has two.
    pub other: Option<Part>,
    /// Bytes of a row, at least 1.
    pub row_bytes: u64,
    /// Rows served.
    pub rows: u64,
    /// Their order.
    pub order: Order,
}

/// The stored rows of one stream that a request needs, and those between.
#[derive(Clone, Debug, Default)]
struct Window {
    rows: Range<u64>,
    /// Where its bytes begin among those read.
    at: usize,
}

impl Rows {
    /// Bytes served.
    pub fn len(&self) -> u64 {
        self.rows * self.row_bytes
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn part(&self, stream: usize) -> &Part {
        match &self.other {
            Some(other) if stream == 1 => other,
            _ => &self.part,
        }
    }

    /// Each run of rows straight to its place; exact where it fails.
    fn runs(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        let run_bytes = self.order.run() * self.row_bytes;
        let mut done = 0;
        while done < out.len() {
            let at = from + done as u64;
            let place = self.order.locate(at / self.row_bytes);
            let stored = place.row * self.row_bytes + at % self.row_bytes;
            let left = run_bytes - at % run_bytes;
            let take = usize::try_from(left).map_or(out.len() - done, |l| l.min(out.len() - done));
            self.part(place.stream)
                .read(store, stored, &mut out[done..done + take])
                .map_err(|f| ReadFailure { good: f.good + done, ..f })?;
            done += take;
        }
        Ok(())
    }

    /// Fills `out`, or as much of it as is good.
    fn span(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        let end = from + out.len() as u64;
        let rows = from / self.row_bytes..end.div_ceil(self.row_bytes);
        if rows.end - rows.start <= 1 {
            return self.runs(store, from, out);
        }
        let windows = self.windows(rows.clone());
        let needed: u64 = windows.iter().map(|w| w.end - w.start).sum();
        let middle = rows.start + (rows.end - rows.start) / 2;
        let middle = if needed * self.row_bytes > 2 * (BATCH + self.row_bytes) {
            // The end of a half of a head and the start of the next are far from each other.
            self.order.seam(&rows).unwrap_or(middle)
        } else {
            match self.pick(store, windows, rows, from, out) {
                Ok(()) => return Ok(()),
                Err(failure) if failure.error.is_stale() => {
                    return Err(ReadFailure { good: 0, ..failure });
                }
                Err(_) => middle,
            }
        };
        let (left, right) = out.split_at_mut((middle * self.row_bytes - from) as usize);
        self.span(store, from, left)?;
        self.span(store, middle * self.row_bytes, right)
            .map_err(|f| ReadFailure { good: f.good + left.len(), ..f })
    }

    /// All of `rows`, of which `out` is the bytes from `from` on.
    fn pick(
        &self,
        store: &Store,
        windows: [Range<u64>; STREAMS],
        rows: Range<u64>,
        from: u64,
        out: &mut [u8],
    ) -> Result<(), ReadFailure> {
        let bytes = self.row_bytes;
        WINDOW.with_borrow_mut(|buffer| {
            let mut length = 0;
            let windows = windows.map(|rows| {
                let at = length;
                length += ((rows.end - rows.start) * bytes) as usize;
                Window { rows, at }
            });
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            for (stream, window) in windows.iter().enumerate() {
                let length = ((window.rows.end - window.rows.start) * bytes) as usize;
                if length > 0 {
                    let into = &mut buffer[window.at..window.at + length];
                    self.part(stream).read(store, window.rows.start * bytes, into)?;
                }
            }
            // The first and the last row may be asked for in part.
            let width = bytes as usize;
            let skip = (from - rows.start * bytes) as usize;
            let mut done = 0;
            for row in rows {
                let place = self.order.locate(row);
                let window = &windows[place.stream];
                let at = window.at + ((place.row - window.rows.start) * bytes) as usize;
                let first = if done == 0 { skip } else { 0 };
                let take = (width - first).min(out.len() - done);
                out[done..done + take].copy_from_slice(&buffer[at + first..at + first + take]);
                done += take;
            }
            Ok(())
        })
    }

    /// Per stream, the stored rows from the first that is needed to the last.
    fn windows(&self, rows: Range<u64>) -> [Range<u64>; STREAMS] {
        let mut windows: [Range<u64>; STREAMS] = Default::default();
        for row in rows {
            let place = self.order.locate(row);
            let window = &mut windows[place.stream];
            if window.is_empty() {
                *window = place.row..place.row + 1;
            } else {
                window.start = window.start.min(place.row);
                window.end = window.end.max(place.row + 1);
            }
        }
        windows
    }
}

impl Bytes for Rows {
    fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        if self.order.run() * self.row_bytes >= DIRECT {
            return self.runs(store, from, out);
        }
        let mut done = 0;
        while done < out.len() {
            // Up to the end of a batch, so that the pieces of a long read begin with rows.
            let at = from + done as u64;
            let batch = (BATCH / self.row_bytes).max(1) * self.row_bytes;
            let take = (out.len() - done).min((batch - at % self.row_bytes) as usize);
            self.span(store, at, &mut out[done..done + take])
                .map_err(|f| ReadFailure { good: f.good + done, ..f })?;
            done += take;
        }
        Ok(())
    }
}
