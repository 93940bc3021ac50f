//! The tokenizer's files and `generation_config.json`.

use super::meta::Meta;
use super::{File, Plan};
use std::io;

/// Adds the files that there are to `plan`, or a warning that says why there are none. Looks
/// at keys, counts and lengths alone.
pub(super) fn plan(_meta: Meta<'_>, _plan: &mut Plan) {}

/// The bytes of `file`.
pub(super) fn write(_meta: Meta<'_>, _file: File) -> io::Result<Vec<u8>> {
    Err(io::ErrorKind::Unsupported.into())
}
