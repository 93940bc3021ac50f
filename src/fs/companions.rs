//! The files of `hf/` beside the weights: made when they are first asked for, then kept.
//!
//! A tokenizer of 262,144 tokens takes a third of a second and 12 MB, so nothing is made at
//! mount or for a listing. It is made once, however many ask: two at a time would double the
//! memory.

use super::{FsError, Hf, Parts};
use crate::dtype::{DType, Kind};
use crate::hf::{self, File, Weights};
use crate::quant::Target;
use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

/// What has been made.
#[derive(Debug, Default)]
pub(super) struct Companions {
    files: Vec<(File, OnceLock<Box<[u8]>>)>,
    making: Mutex<()>,
}

impl Companions {
    pub(super) fn new(hf: Option<&Hf>) -> Companions {
        let files = hf.map(|hf| &*hf.files).unwrap_or_default();
        let files = files.iter().map(|&file| (file, OnceLock::new())).collect();
        Companions { files, making: Mutex::default() }
    }

    /// The bytes of `file` where they have been made.
    fn slot(&self, file: File) -> Option<&OnceLock<Box<[u8]>>> {
        self.files.iter().find(|(f, _)| *f == file).map(|(_, slot)| slot)
    }

    /// Whether `file` has been made, so that its size is known.
    pub(super) fn is_made(&self, file: File) -> bool {
        self.slot(file).is_some_and(|slot| slot.get().is_some())
    }

    /// The bytes of `file`.
    pub(super) fn bytes(&self, parts: &Parts, file: File) -> Result<&[u8], FsError> {
        let slot = self.slot(file).ok_or(FsError::NotFound)?;
        if let Some(bytes) = slot.get() {
            return Ok(bytes);
        }
        let _alone = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = slot.get() {
            return Ok(bytes);
        }
        let meta = hf::meta::Meta::new(&parts.model, &parts.store);
        let bytes = hf::write(meta, file, weights(parts)).inspect_err(|error| {
            log::error!("hf/: {file:?} cannot be made: {error}");
        })?;
        Ok(slot.get_or_init(|| bytes.into()))
    }
}

/// The type that most of the weights in `hf/` have.
fn weights(parts: &Parts) -> Weights {
    match parts.hf_dtype() {
        Some(Target::F32) => return Weights::Float32,
        Some(Target::F16) => return Weights::Float16,
        Some(Target::BF16) => return Weights::Bfloat16,
        None => {}
    }
    let mut shares: BTreeMap<&str, u64> = BTreeMap::new();
    for tensor in &parts.model.tensors {
        if tensor.dtype.kind() == Kind::Quantised {
            return Weights::Bfloat16;
        }
        *shares.entry(tensor.dtype.name()).or_default() += tensor.elements();
    }
    let share = |dtype: DType| shares.get(dtype.name()).copied().unwrap_or(0);
    let most = [
        (share(DType::F32), Weights::Float32),
        (share(DType::F16), Weights::Float16),
        (share(DType::BF16), Weights::Bfloat16),
    ];
    most.into_iter().max_by_key(|(share, _)| *share).map_or(Weights::Float32, |(_, name)| name)
}
