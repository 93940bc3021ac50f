//! Why bytes cannot be served.

use crate::seal::SealError;
use crate::source::SourceError;
use std::io;

/// Bytes that are not the promised ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file}: {what} chunk {chunk}: {len} bytes at {offset}: expected CRC32 {expected}, found {found}"
)]
pub struct Corrupt {
    /// The source file.
    pub file: String,
    /// The tensor with its name, or "header", "padding", "trailing".
    pub what: String,
    /// Number of the chunk in it.
    pub chunk: u64,
    /// First byte of the chunk in the file.
    pub offset: u64,
    /// Number of bytes of the chunk.
    pub len: u64,
    /// The promised sum, or "unknown".
    pub expected: String,
    /// The sum of what is there, or "unreadable: ...".
    pub found: String,
}

/// Why bytes cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// They are not the promised ones.
    #[error(transparent)]
    Corrupt(Box<Corrupt>),
    /// The file is no longer the one that was opened.
    #[error(transparent)]
    Stale(SourceError),
    /// The system could not read them.
    #[error(transparent)]
    Io(SourceError),
    /// The seal could not be read any more.
    #[error(transparent)]
    Seal(SealError),
    /// Something that is decoded on demand could not be read.
    #[error("{0}")]
    Document(#[source] io::Error),
    /// They were read ahead of their reader, and something is wrong with them: who asks is told.
    #[error("not good at the first look")]
    Unasked,
    /// The caller asked for what is not in the file: a fault of this program.
    #[error("{len} bytes at {offset} of file {shard} are outside of it")]
    Outside {
        /// Number of the file.
        shard: u32,
        /// First byte asked for.
        offset: u64,
        /// Number of bytes asked for.
        len: u64,
    },
}

impl From<SourceError> for StoreError {
    fn from(error: SourceError) -> StoreError {
        StoreError::from_source(error)
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> StoreError {
        StoreError::Document(error)
    }
}

impl StoreError {
    /// Whether the reason is that the file is no longer the one that was opened.
    pub fn is_stale(&self) -> bool {
        match self {
            StoreError::Stale(_) => true,
            StoreError::Document(error) => {
                let mut cause: Option<&(dyn std::error::Error + 'static)> =
                    error.get_ref().map(|e| e as _);
                while let Some(error) = cause {
                    if let Some(error) = error.downcast_ref::<StoreError>() {
                        return error.is_stale();
                    }
                    if let Some(failure) = error.downcast_ref::<ReadFailure>() {
                        return failure.error.is_stale();
                    }
                    cause = match error.downcast_ref::<io::Error>() {
                        // An io::Error's source is its cause's source: look at the cause itself.
                        Some(io) => io.get_ref().map(|e| e as _),
                        None => error.source(),
                    };
                }
                false
            }
            _ => false,
        }
    }

    /// Tells a changed file from one that cannot be read.
    pub(super) fn from_source(error: SourceError) -> StoreError {
        match error {
            SourceError::Changed { .. } => StoreError::Stale(error),
            _ => StoreError::Io(error),
        }
    }
}

/// A read that did not give all it should.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct ReadFailure {
    /// So many bytes at the front of the buffer are good all the same.
    pub good: usize,
    /// What is wrong with the next.
    #[source]
    pub error: StoreError,
}
