//! Where `--svg` writes: a new file, an older picture's place, or a pipe.

use crate::cli::occupied::{self, Looks};
use crate::cli::output::Out;
use anyhow::{Context, Result, bail};
use nix::unistd::{AccessFlags, access};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use weightfs::bytes::line::InLine;

/// A place that can be written to.
#[derive(Debug)]
enum Place {
    /// A new file, or one that is replaced and had these permissions. Symlinks are resolved: they
    /// stay, and go on leading there.
    File(PathBuf, Option<Permissions>),
    /// What takes bytes as they come.
    Stream,
    /// What the other output goes to as well: behind that.
    Stdout,
    Stderr,
}

/// Fails where no picture can be written to, before all the work is done.
pub(super) fn check(path: &Path) -> Result<()> {
    place(path).map(drop).with_context(|| told(path))
}

/// Writes the picture. What is there by now is looked at once more: a long time has passed.
pub(super) fn write(path: &Path, text: &str, out: &mut Out) -> Result<()> {
    let written = place(path).and_then(|place| Ok(put(path, &place, text.as_bytes(), out)?));
    written.with_context(|| told(path))
}

fn told(path: &Path) -> String {
    format!("{}: --svg", path.in_line())
}

/// Whether it is written `-`. A file of that name is `./-`.
pub(super) fn is_stdout(path: &Path) -> bool {
    path == Path::new("-")
}

fn place(path: &Path) -> Result<Place> {
    if is_stdout(path) {
        return Ok(Place::Stdout);
    }
    let about = match path.metadata() {
        Ok(about) => about,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if path.is_symlink() {
                bail!("a symlink that leads to nothing");
            }
            may_write_in(path)?;
            return Ok(Place::File(path.to_owned(), None));
        }
        Err(error) => return Err(error.into()),
    };
    if occupied::is_same(&about, io::stdout()) {
        return Ok(Place::Stdout);
    }
    if occupied::is_same(&about, io::stderr()) {
        return Ok(Place::Stderr);
    }
    if occupied::is_stream(about.file_type()) {
        return Ok(Place::Stream);
    }
    if !about.is_file() {
        bail!("neither a file nor a pipe");
    }
    let what = match occupied::looks(path)?.0 {
        Looks::Empty | Looks::Drawing => {
            let file = path.canonicalize()?;
            may_write_in(&file)?;
            return Ok(Place::File(file, Some(about.permissions())));
        }
        Looks::Text => "a file of text",
        Looks::Document(what) => what,
    };
    bail!("it is {what}, which no picture takes the place of: name a new file, or remove it first")
}

/// Whether a file can be made beside `file`.
fn may_write_in(file: &Path) -> io::Result<()> {
    Ok(access(directory(file), AccessFlags::W_OK | AccessFlags::X_OK)?)
}

fn directory(file: &Path) -> &Path {
    file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn put(path: &Path, place: &Place, text: &[u8], out: &mut Out) -> io::Result<()> {
    match place {
        Place::File(file, permissions) => replace(file, permissions.as_ref(), text),
        Place::Stream => {
            let mut file =
                OpenOptions::new().write(true).custom_flags(libc::O_NOCTTY).open(path)?;
            file.write_all(text)
        }
        Place::Stdout => out.exact().write_all(text).and_then(|()| out.flush()),
        Place::Stderr => io::stderr().lock().write_all(text),
    }
}

/// Gives `file` its new content at once: who looks sees the old or the new, never a part.
fn replace(file: &Path, permissions: Option<&Permissions>, text: &[u8]) -> io::Result<()> {
    let draft = directory(file).join(format!(".weightfs-svg.{}", std::process::id()));
    let fill = |mut to: File| {
        to.write_all(text)?;
        if let Some(permissions) = permissions {
            to.set_permissions(permissions.clone())?;
        }
        std::fs::rename(&draft, file)
    };
    let done = fill(File::create_new(&draft)?);
    if done.is_err() {
        // The error that is told is the first.
        let _ = std::fs::remove_file(&draft);
    }
    done
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn put_at(path: &Path) -> Result<()> {
        check(path)?;
        write(path, "<svg new", &mut Out::new())
    }

    #[test]
    fn only_nothing_and_older_pictures_are_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        for (old, replaced) in [
            (None, true),
            (Some(&b""[..]), true),
            (Some(b"<svg old"), true),
            (Some(b"<?xml old"), true),
            (Some(b"my notes"), false),
            (Some(b"{}"), false),
            (Some(b"GGUF\x03\0\0\0"), false),
        ] {
            if let Some(old) = old {
                std::fs::write(&path, old).unwrap();
            }
            let done = put_at(&path);
            assert_eq!(done.is_ok(), replaced, "{done:?}");
            let want = if replaced { b"<svg new" } else { old.unwrap() };
            assert_eq!(std::fs::read(&path).unwrap(), want);
            if let Err(error) = done {
                let text = format!("{error:#}");
                assert!(
                    text.starts_with(path.to_str().unwrap()) && text.contains("it is"),
                    "{text}"
                );
            }
            assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no draft is left");
        }
    }

    #[test]
    fn a_link_stays_and_so_do_the_permissions_of_what_it_leads_to() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("f"), dir.path().join("link"));
        std::fs::write(&path, "<svg old").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        symlink("f", &link).unwrap();
        put_at(&link).unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read(&path).unwrap(), b"<svg new");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        symlink("nowhere", dir.path().join("dangling")).unwrap();
        put_at(&dir.path().join("dangling")).unwrap_err();
    }

    #[test]
    fn a_device_is_written_to_and_a_directory_is_not() {
        put_at(Path::new("/dev/null")).unwrap();
        put_at(Path::new("/")).unwrap_err();
    }
}
