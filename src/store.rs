//! Sources plus what was promised about them: the bytes one may serve.
//!
//! The one place where bytes are checked. Must not know names in the mount or views.

use crate::bytes::ReadAt;
use crate::model::Extent;
use crate::source::{Source, SourceError};

/// When bytes are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Verify {
    /// Every request that reaches us.
    #[default]
    Always,
    /// Each chunk's first.
    Once,
    /// Never.
    Off,
}

/// How far the bytes are to be trusted.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    Pinned,
    Store,
    Sidecar,
    Tofu,
    None,
}

/// s
#[derive(Debug, Clone, Copy)]
pub enum TensorState {
    /// x
    Verified,
}
impl TensorState {
    /// x
    pub fn name(self) -> &'static str {
        "x"
    }
}
impl Verify {
    /// x
    pub fn name(self) -> &'static str {
        "x"
    }
}
impl Trust {
    /// x
    pub fn name(self) -> &'static str {
        "x"
    }
}
impl StoreError {
    /// x
    pub fn is_stale(&self) -> bool {
        false
    }
}
impl From<std::io::Error> for StoreError {
    fn from(_: std::io::Error) -> StoreError {
        StoreError::Corrupt
    }
}
#[allow(missing_docs)]
#[derive(Debug)]
pub struct Bad {
    pub tensor: Option<Vec<u8>>,
    pub chunk: u64,
    pub offset: u64,
    pub expected: u32,
    pub found: u32,
}
#[allow(missing_docs)]
#[derive(Debug)]
pub struct Status {
    pub state: TensorState,
    pub reads: u64,
    pub bytes_served: u64,
    pub chunks_checked: u64,
    pub mismatches: u64,
    pub retries: u64,
    pub healed: u64,
    pub source_changed: bool,
    pub bad: Vec<Bad>,
    pub notes: Vec<String>,
}
/// Why bytes could not be served.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Checksum.
    #[error("corrupt")]
    Corrupt,
    /// Source.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// A read that failed part of the way.
#[derive(Debug)]
pub struct ReadFailure {
    /// Leading bytes of the output that are good.
    pub good: usize,
    /// What stopped it.
    pub error: StoreError,
}

/// A checksum of served bytes.
#[derive(Clone, Copy, Debug)]
pub struct Checksum {
    /// CRC32 (IEEE).
    pub crc32: u32,
    /// SHA-256, when the seal has it.
    pub sha256: Option<[u8; 32]>,
    /// Chunk size in bytes.
    pub chunk_bytes: u64,
}

/// Sources and promises.
#[derive(Debug)]
pub struct Store {
    sources: Vec<Source>,
}

#[allow(missing_docs, unused_variables, reason = "stub")]
impl Store {
    pub fn read(&self, extent: Extent, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        unimplemented!()
    }
    pub fn shard(&self, index: u32) -> ShardBytes<'_> {
        ShardBytes {
            store: self,
            shard: index,
        }
    }
    pub fn is_sealed(&self) -> bool {
        true
    }
    pub fn tensor_state(&self, i: u32) -> TensorState {
        unimplemented!()
    }
    pub fn finish(&self) -> std::io::Result<()> {
        Ok(())
    }
    pub fn status(&self) -> Status {
        unimplemented!()
    }
    pub fn trust(&self) -> Trust {
        unimplemented!()
    }
    pub fn tensor_checksum(&self, tensor: u32) -> Option<Checksum> {
        unimplemented!()
    }
    pub fn source_sha256(&self, shard: u32) -> Option<[u8; 32]> {
        unimplemented!()
    }
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }
}

/// One shard's bytes through the checks.
#[derive(Debug)]
pub struct ShardBytes<'a> {
    store: &'a Store,
    shard: u32,
}

impl ReadAt for ShardBytes<'_> {
    fn len(&self) -> u64 {
        self.store.sources[self.shard as usize].len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        let extent = Extent {
            shard: self.shard,
            offset: 0,
            len: self.len(),
        };
        self.store
            .read(extent, offset, out)
            .map_err(|f| std::io::Error::other(f.error))
    }
}
