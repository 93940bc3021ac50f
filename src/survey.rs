//! What the values of tensors are: their statistics, where in the model they stand, and how two
//! models differ.
//!
//! Values are read through the store, so they are checked like any other read, in pieces of a
//! fixed number of elements. All cores work on pieces; what they find is put together in the order
//! of the pieces, so a result does not depend on the number of threads. Memory is a few MiB per
//! thread, whatever the size of a tensor.
//!
//! A weight is taken as the float views show it: quantised ones decoded, codes with scales times
//! their scales, F16 and smaller floats as F32. F64, integers and booleans are taken as they are,
//! complex numbers by their magnitude (by their parts where two models are compared). What has no
//! values (packed codes whose scales are unknown, types of a big-endian file that nobody defines)
//! is listed without numbers. Must not know files or the command line.

pub mod diff;
pub mod heatmap;
mod histogram;
mod lane;
mod moments;
pub mod place;
pub mod stats;
mod tally;
mod values;

pub use histogram::{BINS, Histogram};
pub use lane::ValueKind;
pub use tally::{Number, Tally, json};

use crate::store::ReadFailure;

/// Threads that work on pieces: all cores.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Why the values of a tensor are not known.
#[derive(Debug, thiserror::Error)]
#[error("tensor {name:?}: {source}")]
pub struct SurveyError {
    /// Name of the tensor; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// What its bytes are not, and where.
    pub source: ReadFailure,
}
