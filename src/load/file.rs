//! One file: opened when it is a regular one, and known for what its bytes are.

use super::LoadError;
use super::names::{is_piece, is_unfinished};
use crate::format::{Detected, EMPTY, LFS_POINTER, detect};
use crate::source::{IoMode, Source};
use std::fs::FileType;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// An open file with what it looks like.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) source: Source,
    pub(super) detected: Detected,
}

/// The bytes of a path's last component.
pub(super) fn name_of(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_default().as_bytes()
}

/// Opens `path` and looks at its first bytes. What is no regular file is not opened, so
/// nothing here waits for a pipe.
pub(super) fn open(path: &Path, io: IoMode) -> Result<Opened, LoadError> {
    let failed = |op| move |source| LoadError::Io { file: path.into(), op, source };
    let kind = std::fs::metadata(path).map_err(failed("open it"))?.file_type();
    if let Some(what) = other_than_file(kind) {
        return Err(LoadError::NotAFile { file: path.into(), what });
    }
    let source = Source::open(path, io)?;
    if is_unfinished(name_of(path)) || is_unfinished(name_of(source.canonical_path())) {
        return Err(LoadError::Unfinished { file: path.into() });
    }
    let detected = detect(&source).map_err(|e| unreadable(path, e))?;
    Ok(Opened { source, detected })
}

/// A failed read: a source has named its file already.
pub(super) fn unreadable(path: &Path, error: std::io::Error) -> LoadError {
    match error.downcast() {
        Ok(error) => LoadError::Source(error),
        Err(source) => LoadError::Io { file: path.into(), op: "read it", source },
    }
}

fn other_than_file(kind: FileType) -> Option<&'static str> {
    match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_fifo() => Some("a named pipe"),
        () if kind.is_socket() => Some("a socket"),
        () if kind.is_char_device() => Some("a character device"),
        () if kind.is_block_device() => Some("a block device"),
        () => Some("of an unknown kind"),
    }
}

/// The refusal of a file that is something else.
pub(super) fn not_a_model(path: &Path, what: &str) -> LoadError {
    let hint = match what {
        LFS_POINTER => "; run `git lfs pull` in its repository",
        EMPTY => "; it was created but never filled",
        _ => "",
    };
    LoadError::NotAModel { file: path.into(), what: what.into(), hint }
}

/// Adds to an error that the file is a piece of one, when its name says so.
pub(super) fn with_piece_hint(path: &Path, error: LoadError) -> LoadError {
    match error {
        LoadError::Io { .. } | LoadError::Source(_) => error,
        _ if is_piece(name_of(path)) => {
            LoadError::Piece { file: path.into(), source: Box::new(error) }
        }
        _ => error,
    }
}
