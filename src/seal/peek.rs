//! The first lines of a seal: what it says about its files, unchecked.
//!
//! Whoever opens a model asks here where the arrays of its metadata end, and whoever merges
//! parts asks which file each is of. Nothing is known to be true yet: the seal's own hash
//! comes after this, and [`super::Seal::load`] compares everything with the files.

use super::SealError;
use super::entry::{ARRAYS, Entry};
use super::lexer::{LexError, Lexer};
use super::read::{lexed, open};
use crate::bytes::line::InLine;
use std::path::Path;

/// What a seal says about one of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peeked {
    /// The file's name beside its siblings.
    pub name: Box<[u8]>,
    /// GGUF: where its tensor infos begin.
    pub tensor_infos: u64,
    /// Begin and end of the long arrays of its metadata.
    pub arrays: Vec<(u64, u64)>,
}

/// Files that are believed in.
const MOST_FILES: usize = 100_000;
/// Longest name that is kept, bytes.
const MAX_NAME: usize = 1 << 16;

/// Reads the list of files in the seal at `path`, and nothing behind it.
pub fn peek(path: &Path) -> Result<Vec<Peeked>, SealError> {
    let file = open(path)?;
    let mut lexer = Lexer::new(&file);
    let mut found = None;
    let read = lexer.object(|lexer, key| match key {
        b"body" => {
            found = Some(body(lexer)?);
            Err(enough(lexer))
        }
        _ => lexer.skip(),
    });
    match found {
        // The rest was not read: that it stops here is no error.
        Some(Some(files)) => Ok(files),
        _ => {
            lexed(read, &file)?;
            let what = "it lists no files".to_owned();
            Err(SealError::Invalid { file: path.in_line().to_string(), what })
        }
    }
}

/// The list of files in a body; `None` where there is none before its end.
fn body(lexer: &mut Lexer<'_>) -> Result<Option<Vec<Peeked>>, LexError> {
    let mut files = None;
    let read = lexer.object(|lexer, key| {
        if key != b"sources" {
            return lexer.skip();
        }
        files = Some(sources(lexer)?);
        Err(enough(lexer))
    });
    if files.is_none() {
        read?;
    }
    Ok(files)
}

/// Ends the reading where it is.
fn enough(lexer: &Lexer<'_>) -> LexError {
    LexError::Syntax { offset: lexer.offset(), expected: "nothing more" }
}

fn sources(lexer: &mut Lexer<'_>) -> Result<Vec<Peeked>, LexError> {
    let (mut entry, mut scratch, mut files) = (Entry::default(), Vec::new(), Vec::new());
    let mut left = ARRAYS;
    lexer.array(|lexer| {
        // What has no meaning is found by those who check.
        entry.read(lexer, MAX_NAME, None, &mut scratch)?;
        if files.len() == MOST_FILES {
            return lexer.unexpected("fewer files");
        }
        let arrays = entry.arrays.take().filter(|arrays| arrays.len() <= left).unwrap_or_default();
        left -= arrays.len();
        files.push(Peeked {
            name: entry.name().into(),
            tensor_infos: entry.tensor_infos.unwrap_or(0),
            arrays,
        });
        Ok(())
    })?;
    Ok(files)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::Case;
    use super::*;

    #[test]
    fn the_files_are_listed_and_what_follows_is_not_read() {
        let case = Case::new();
        let path = case.seal();
        let names = |files: Vec<Peeked>| files.into_iter().map(|f| f.name).collect::<Vec<_>>();
        let want = [b"file0".as_slice().into(), b"file1".as_slice().into()];
        assert_eq!(names(peek(&path).unwrap()), want);
        let text = std::fs::read_to_string(&path).unwrap();
        let (head, _) = text.split_once("\"regions\"").unwrap();
        std::fs::write(&path, format!("{head}no JSON")).unwrap();
        assert_eq!(names(peek(&path).unwrap()), want);
    }

    #[test]
    fn what_lists_no_files_is_no_seal() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x");
        for text in ["", "{}", "{\"body\":{}}", "{\"body\":{\"sources\":[{]}}", "{\"body\":1}"] {
            std::fs::write(&path, text).unwrap();
            let error = peek(&path).unwrap_err();
            assert!(error.is_mistrust(), "{text}: {error}");
        }
    }
}
