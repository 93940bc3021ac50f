//! The FILE of `--against`: one that can be opened again and again, or what a pipe gave once.

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::IntoRawFd;
use std::path::{Path, PathBuf};
use weightfs::bytes::line::{InLine, Safe};
use weightfs::model::Model;
use weightfs::source::Source;
use weightfs::trust::List;

/// Bytes that are taken from a pipe: as many as of a document.
const MAX: u64 = 64 << 20;

/// A file that the user named.
pub(super) struct Given {
    /// What the user calls it.
    typed: PathBuf,
    /// Where its bytes can be had, as often as they are asked for.
    pub(super) path: PathBuf,
}

impl Given {
    /// A regular file as it is. Of a pipe or a terminal, `<(command)` of a shell and `-` for
    /// standard input among them, all that comes, which is kept in memory.
    pub(super) fn new(typed: &Path) -> Result<Given> {
        let is_stdin = typed == Path::new("-") && typed.symlink_metadata().is_err();
        let file = if is_stdin { Path::new("/dev/stdin") } else { typed };
        let told = || typed.in_line().to_string();
        let about = file.metadata().with_context(told)?;
        let path = match crate::cli::occupied::is_stream(about.file_type()) {
            true => kept(file).with_context(told)?,
            false if about.is_file() => file.to_path_buf(),
            false => bail!("{}: neither a regular file nor a pipe", typed.in_line()),
        };
        Ok(Given { typed: typed.to_path_buf(), path })
    }

    /// What messages call it.
    pub(super) fn name(&self) -> String {
        Safe(self.typed.as_os_str().as_encoded_bytes()).to_string()
    }

    /// As [`List::read_for`].
    pub(super) fn list(&self, model: &Model, sources: &[Source]) -> Result<List> {
        if self.path == self.typed {
            return Ok(List::read_for(&self.path, model, sources)?);
        }
        let (kept, typed) = (self.path.in_line().to_string(), self.typed.in_line().to_string());
        let mut list = List::read_for(&self.path, model, sources)
            .map_err(|error| anyhow!(error.to_string().replace(&kept, &typed)))?;
        list.path.clone_from(&self.typed);
        for warning in &mut list.warnings {
            *warning = warning.replace(&kept, &typed);
        }
        Ok(list)
    }
}

/// Reads a pipe to its end, and gives a path to what came.
fn kept(pipe: &Path) -> io::Result<PathBuf> {
    let mut text = Vec::new();
    File::open(pipe)?.take(MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > MAX {
        let what = format!("at most {MAX} bytes are read from what is no regular file");
        return Err(io::Error::other(what));
    }
    let mut memory = File::from(memfd_create("weightfs-against", MFdFlags::MFD_CLOEXEC)?);
    memory.write_all(&text)?;
    memory.rewind()?;
    // Open for as long as the process runs, so that the path leads there.
    Ok(format!("/proc/self/fd/{}", memory.into_raw_fd()).into())
}
