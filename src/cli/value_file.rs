//! The FILE of `set=KEY=@FILE`: read whole, within limits of size and time.

use super::patience;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::Duration;
use weightfs::bytes::line::InLine;

/// Longest value. Chat templates, for which this is made, have some kilobytes.
const MAX: u64 = 64 << 20;
/// How long a pipe, or a file on a disk far away, may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The bytes of a regular file or a pipe; `<(command)` of a shell is a pipe.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>> {
    read_within(path, MAX, PATIENCE).with_context(|| path.in_line().to_string())
}

fn read_within(path: &Path, max: u64, patience: Duration) -> Result<Vec<u8>> {
    let limit = format!("at most {max} bytes from a regular file or a pipe are taken");
    let owned = path.to_path_buf();
    let done = patience::within(patience, move || -> Result<Vec<u8>> {
        // Looked at before it is opened: a device may act upon being opened.
        let kind = owned.metadata()?;
        if !kind.is_file() && !kind.file_type().is_fifo() {
            bail!("neither a regular file nor a pipe: {limit}");
        }
        let mut bytes = Vec::new();
        if kind.len() <= max {
            File::open(&owned)?.take(max + 1).read_to_end(&mut bytes)?;
        }
        if kind.len().max(bytes.len() as u64) > max {
            bail!("too long: {limit}");
        }
        Ok(bytes)
    });
    done.with_context(|| format!("its end did not come within {} s", patience.as_secs()))?
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use std::io::Write;

    const SOON: Duration = Duration::from_millis(50);

    #[test]
    fn a_file_is_read_up_to_the_limit_and_not_beyond() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"12345").unwrap();
        assert_eq!(read_within(file.path(), 5, PATIENCE).unwrap(), b"12345");
        let text = read_within(file.path(), 4, PATIENCE).unwrap_err().to_string();
        assert!(text.contains("too long: at most 4 bytes"), "{text}");
    }

    #[test]
    fn a_device_is_refused_with_the_limit() {
        let text = format!("{:#}", read(Path::new("/dev/zero")).unwrap_err());
        assert!(text.starts_with("/dev/zero: neither") && text.contains("67108864"), "{text}");
        assert!(read(Path::new("/")).is_err());
    }

    #[test]
    fn a_pipe_is_read_to_its_end_or_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        let text = read_within(&pipe, 10, SOON).unwrap_err().to_string();
        assert!(text.contains("did not come"), "{text}");
        let pipe = dir.path().join("other");
        nix::unistd::mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).unwrap();
        for (text, fits) in [("ten bytes!", true), ("ten bytes!!", false)] {
            let to = pipe.clone();
            let writer = std::thread::spawn(move || std::fs::write(to, text));
            let read = read_within(&pipe, 10, PATIENCE);
            assert_eq!(read.is_ok(), fits, "{read:?}");
            let _ = writer.join();
        }
    }
}
