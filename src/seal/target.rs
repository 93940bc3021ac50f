//! What a new seal may take the place of: an older seal, and nothing else.

use super::peek::peek;
use super::read::open;
use super::{SealError, SealOptions};
use crate::bytes::line::InLine;
use crate::source::Source;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What seals begin with, apart from spacing: all that this program wrote with the first.
const BEGINNINGS: [&[u8]; 2] = [b"{\"weightfs_manifest\"", b"{\"body_sha256\""];

/// Whose place a seal is to be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// The model's own, where nothing but its seal has anything to look for: with force
    /// whatever lies there is taken to have been one.
    Own {
        /// Whether the user said so.
        force: bool,
    },
    /// One that the user named.
    Named,
}

impl Place {
    /// The one that the caller of a sealing means.
    pub(super) fn of(options: &SealOptions) -> Place {
        match options.output {
            Some(_) => Place::Named,
            None => Place::Own { force: options.force },
        }
    }
}

/// Whether a seal may be written to `path`: nothing is there, or a seal, or a link to one
/// (the link is replaced); at the model's own place and with force also any other file that is
/// no model. A file of the model is never replaced, nor what is no regular file, whoever asks
/// for it.
pub(super) fn check(
    path: &Path,
    place: Place,
    sources: &[Source],
    entry: &Path,
) -> Result<(), SealError> {
    let occupied = |what: &str| {
        Err(SealError::Occupied { file: path.in_line().to_string(), what: what.to_owned() })
    };
    match path.symlink_metadata() {
        // A name that cannot be is told apart by whoever creates the file.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidFilename) => {
            return Ok(());
        }
        _ => {}
    }
    let file = match open(path) {
        Err(SealError::NotASeal { what, .. }) => return occupied(&what),
        opened => opened?,
    };
    let there = (file.identity().dev, file.identity().ino);
    let of_model = sources.iter().any(|s| (s.identity().dev, s.identity().ino) == there)
        || entry.metadata().is_ok_and(|about| (about.dev(), about.ino()) == there);
    if of_model {
        return occupied("it is a file of the model itself");
    }
    if begins_as_seal(&file)? {
        return Ok(());
    }
    match place {
        Place::Own { force: true } => match model_by_its_look(&file)? {
            Some(what) => occupied(what),
            None => Ok(()),
        },
        Place::Own { force: false } | Place::Named => {
            let len = file.len();
            occupied(&format!("it is a file of {len} bytes that does not begin as a weightfs seal"))
        }
    }
}

/// What kind of model a file looks like, if it does.
fn model_by_its_look(file: &Source) -> Result<Option<&'static str>, SealError> {
    let mut room = [0; 4096];
    let begin = &mut room[..file.len().min(4096) as usize];
    file.read_at(0, begin)?;
    let named = |word: &[u8]| begin.windows(word.len()).any(|there| there == word);
    Ok(match begin {
        [b'G', b'G', b'U', b'F', ..] => Some("it is a GGUF file"),
        begin if is_safetensors(begin, file.len()) => Some("it is a safetensors file"),
        [b'{', ..] if named(b"\"weight_map\"") => Some("it is an index of shards"),
        _ => None,
    })
}

/// A length that the file has room for, and JSON.
fn is_safetensors(begin: &[u8], len: u64) -> bool {
    let Some((header, json)) = begin.split_first_chunk::<8>() else { return false };
    let header = u64::from_le_bytes(*header);
    json.first() == Some(&b'{') && header >= 2 && header <= len.saturating_sub(8)
}

/// Whether the file at `path` is meant to be a seal: it begins as those of this program do, or
/// it is JSON that lists files as seals do. What cannot be read is none.
pub fn is_seal(path: &Path) -> bool {
    open(path).and_then(|file| begins_as_seal(&file)).unwrap_or(false) || peek(path).is_ok()
}

/// Whether a file begins as seals do.
pub(super) fn begins_as_seal(file: &Source) -> Result<bool, SealError> {
    let mut room = [0; 256];
    let begin = &mut room[..file.len().min(256) as usize];
    file.read_at(0, begin)?;
    let begins = |with: &[u8]| {
        let mut begin = begin.iter().filter(|byte| !byte.is_ascii_whitespace());
        with.iter().all(|expected| begin.next() == Some(expected))
    };
    Ok(BEGINNINGS.iter().any(|with| begins(with)))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::create::create_in;
    use super::super::tests::Case;
    use super::super::{Outcome, SealOptions, beside};
    use super::*;
    use crate::source::IoMode;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    fn seal_to(case: &Case, output: Option<PathBuf>, force: bool) -> Result<Outcome, SealError> {
        let options = SealOptions { output, force, ..SealOptions::default() };
        let sources = case.sources(IoMode::Auto);
        create_in(None, &case.model, &sources, &case.path(0), &options, &|_| {}).map(|r| r.outcome)
    }

    /// What is at a path: its bytes, or where it leads.
    fn there(path: &Path) -> (Option<PathBuf>, Option<Vec<u8>>) {
        let file = path.metadata().is_ok_and(|m| m.is_file());
        (path.read_link().ok(), file.then(|| std::fs::read(path).unwrap()))
    }

    fn mkfifo(path: &Path) {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    /// Every kind of thing that is no seal, given as output or found at the seal's own name; there
    /// a file that is no model gives way when it has to.
    #[test]
    fn nothing_is_replaced_that_may_be_missed() {
        type Put = (&'static str, &'static dyn Fn(&Case, &Path));
        let puts: &[Put] = &[
            ("hard link to a source", &|c, p| std::fs::hard_link(c.path(1), p).unwrap()),
            ("symlink to a source", &|c, p| symlink(c.path(1), p).unwrap()),
            ("symlink to the entry", &|_, p| symlink("file0", p).unwrap()),
            ("GGUF", &|_, p| std::fs::write(p, b"GGUF\x03").unwrap()),
            ("safetensors", &|_, p| std::fs::write(p, b"\x02\0\0\0\0\0\0\0{}").unwrap()),
            ("index", &|_, p| std::fs::write(p, "{\"weight_map\":{}}").unwrap()),
            ("notes", &|_, p| std::fs::write(p, "my notes").unwrap()),
            ("JSON", &|_, p| std::fs::write(p, "{\"weightfs_manifes\":1}").unwrap()),
            ("empty file", &|_, p| std::fs::write(p, "").unwrap()),
            ("directory", &|_, p| std::fs::create_dir(p).unwrap()),
            ("symlink to a directory", &|_, p| symlink("/", p).unwrap()),
            ("FIFO", &|_, p| mkfifo(p)),
            ("symlink to a FIFO", &|c, p| {
                mkfifo(&c.dir.path().join("fifo"));
                symlink("fifo", p).unwrap();
            }),
            ("symlink to a device", &|_, p| symlink("/dev/null", p).unwrap()),
            ("dangling symlink", &|_, p| symlink("nowhere", p).unwrap()),
            ("symlink through a file", &|_, p| symlink("file1/x", p).unwrap()),
            ("circle", &|_, p| symlink(p.file_name().unwrap(), p).unwrap()),
        ];
        for (what, put) in puts {
            for (given, force) in [(false, true), (true, true), (true, false), (false, false)] {
                let case = Case::new();
                let path = match given {
                    true => case.dir.path().join("out"),
                    false => beside(&case.path(0)),
                };
                put(&case, &path);
                let before = there(&path);
                if !given && force && ["notes", "JSON", "empty file"].contains(what) {
                    assert_eq!(seal_to(&case, None, true).unwrap(), Outcome::Written, "{what}");
                    assert!(case.verify().unwrap().is_good());
                    continue;
                }
                let error = seal_to(&case, given.then(|| path.clone()), force)
                    .err()
                    .unwrap_or_else(|| panic!("{what} was replaced"));
                if given || force {
                    assert!(matches!(error, SealError::Occupied { .. }), "{what}: {error}");
                    assert!(error.to_string().contains("remove it yourself"), "{error}");
                } else {
                    assert!(error.is_mistrust(), "{what}: {error}");
                    assert!(error.to_string().contains("seal=none"), "{error}");
                }
                assert!(error.to_string().starts_with(path.to_str().unwrap()), "{error}");
                assert_eq!(there(&path), before, "{what}");
                for shard in 0..2 {
                    assert_eq!(std::fs::read(case.path(shard)).unwrap(), case.bytes[shard]);
                }
            }
        }
        for output in ["/dev/null", "/dev/zero", "/"] {
            let error = seal_to(&Case::new(), Some(output.into()), true).unwrap_err();
            assert!(matches!(error, SealError::Occupied { .. }), "{output}: {error}");
        }
    }

    #[test]
    fn the_model_itself_is_no_place_for_its_seal() {
        let case = Case::new();
        for shard in 0..2 {
            for force in [false, true] {
                let error = seal_to(&case, Some(case.path(shard)), force).unwrap_err();
                assert!(error.to_string().contains("a file of the model itself"), "{error}");
            }
        }
        // An index that is the entry is no source, and may look like anything.
        let index = case.dir.path().join("index");
        std::fs::write(&index, "{\"weightfs_manifest\":1}").unwrap();
        std::fs::hard_link(&index, case.dir.path().join("link")).unwrap();
        let sources = case.sources(IoMode::Auto);
        for output in ["index", "link"] {
            let error =
                check(&case.dir.path().join(output), Place::Named, &sources, &index).unwrap_err();
            assert!(error.to_string().contains("a file of the model itself"), "{error}");
        }
    }

    #[test]
    fn an_older_seal_is_replaced_sound_or_not_and_a_link_to_one_as_a_link() {
        let case = Case::new();
        let path = case.seal();
        assert_eq!(seal_to(&case, None, true).unwrap(), Outcome::Written);
        let whole = std::fs::read(&path).unwrap();
        for damaged in [b" {\n \"weightfs_manifest\" : 1, \"body", &whole[1..], b"{}", &[0; 9000]] {
            std::fs::write(&path, damaged).unwrap();
            assert!(seal_to(&case, None, false).unwrap_err().is_mistrust());
            assert_eq!(seal_to(&case, None, true).unwrap(), Outcome::Written);
        }
        let kept = case.dir.path().join("kept");
        std::fs::rename(&path, &kept).unwrap();
        let old = std::fs::read(&kept).unwrap();
        symlink("kept", &path).unwrap();
        assert_eq!(seal_to(&case, None, false).unwrap(), Outcome::Kept);
        assert_eq!(seal_to(&case, None, true).unwrap(), Outcome::Written);
        assert!(!path.is_symlink());
        assert_eq!(std::fs::read(&kept).unwrap(), old);
    }

    /// What comes to lie at the seal's name while the model is being read stays as well.
    #[test]
    fn what_appears_meanwhile_is_not_replaced() {
        let case = Case::new();
        let path = beside(&case.path(0));
        let put = |_| drop(std::fs::write(&path, "mine"));
        let error = create_in(
            None,
            &case.model,
            &case.sources(IoMode::Auto),
            &case.path(0),
            &SealOptions::default(),
            &put,
        )
        .unwrap_err();
        assert!(matches!(error, SealError::Occupied { .. }), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        assert_eq!(std::fs::read_dir(case.dir.path()).unwrap().count(), 3, "no draft is left");
    }
}
