//! From a seal file to a [`Seal`] that is known to describe an open model.

mod lists;

use super::entry::{ARRAYS, Entry};
use super::fold::Shifts;
use super::grid::{Grid, MIN_CHUNK, is_chunk_size};
use super::hex::{from_hex, hex};
use super::lexer::{LexError, Lexer};
use super::target::begins_as_seal;
use super::{Promise, Seal, SealError, VERSION};
use crate::bytes::line::InLine;
use crate::model::{Format, Model};
use crate::source::{IoMode, Source, SourceError, timestamp};
use std::io;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

/// Longest seal that is read or written, bytes: that of a model of 10 TB at the default
/// chunk size.
pub(super) const MAX_LEN: u64 = 1 << 30;

/// The longest that a seal of `model` can be, bytes: the smallest chunks, names escaped in
/// the longest way, and spacing for people.
fn longest(model: &Model) -> u64 {
    let bytes: u64 = model.shards.iter().map(|s| s.len).sum();
    let entries: u64 = model
        .tensors
        .iter()
        .map(|t| 4096 + 16 * t.name.len() as u64 + 64 * t.shape.len() as u64)
        .sum();
    let tables = 8 * (bytes / MIN_CHUNK);
    ((1 << 20) + 8192 * model.shards.len() as u64 + entries + tables).min(MAX_LEN)
}

/// What is wrong with a seal; kept until its own hash was checked, which comes first.
enum Trouble {
    Invalid(String),
    Foreign(String),
}

/// What was read so far.
struct Reader<'a> {
    model: &'a Model,
    /// `None`: it is not there.
    sources: &'a [Option<&'a Source>],
    /// Longest string worth keeping.
    limit: usize,
    trouble: Option<Trouble>,
    grid: Option<Grid>,
    shifts: Option<Shifts>,
    /// Whether a list came before its grid was known, and was skipped.
    again: bool,
    /// Where headers end, if not where the data begin, by shard.
    header_ends: Vec<Option<u64>>,
    tables: Vec<u64>,
    promises: Vec<Promise>,
    /// Whether there are SHA-256: all or none.
    hashed: Option<bool>,
    headers: Vec<Option<[u8; 32]>>,
    files: Vec<Option<[u8; 32]>>,
    mtimes: Vec<String>,
    arrays: Vec<Option<Vec<(u64, u64)>>>,
    warnings: Vec<String>,
    created: String,
    seen: Vec<&'static str>,
    entry: Entry,
    scratch: Vec<u8>,
}

pub(super) type Lexed = Result<(), LexError>;

impl Seal {
    /// Reads the seal at `path` and compares everything it says about layout with `model`,
    /// and the header's bytes with its checksums. The tensors' bytes are not read.
    pub fn load(path: &Path, model: &Model, sources: &[Source]) -> Result<Seal, SealError> {
        let seal = Seal::load_layout(path, model, sources)?;
        seal.check_arrays(model)?;
        seal.check_headers(model, sources)?;
        Ok(seal)
    }

    /// As [`Seal::load`] without a look at the files' bytes: for [`super::verify`], to which
    /// a damaged header is damage like any other.
    pub fn load_layout(path: &Path, model: &Model, sources: &[Source]) -> Result<Seal, SealError> {
        let sources: Vec<_> = sources.iter().map(Some).collect();
        Seal::load_described(path, model, &sources)
    }

    /// As [`Seal::load_layout`], of a model of which not all files need to be there, nor to be
    /// as long as `model` says.
    pub(super) fn load_described(
        path: &Path,
        model: &Model,
        sources: &[Option<&Source>],
    ) -> Result<Seal, SealError> {
        let file = open(path)?;
        let begins = begins_as_seal(&file)?;
        load(path, file, model, sources).map_err(|error| match error {
            SealError::Invalid { file, what } if !begins => SealError::NotASeal { file, what },
            error => error,
        })
    }
}

/// Parses an open seal.
fn load(
    path: &Path,
    file: Source,
    model: &Model,
    sources: &[Option<&Source>],
) -> Result<Seal, SealError> {
    let name = path.in_line().to_string();
    let invalid = |what: String| SealError::Invalid { file: name.clone(), what };
    let most = longest(model);
    if file.len() > most {
        return Err(invalid(format!("it has {} bytes, more than {most}", file.len())));
    }
    let longest_name = model.tensors.iter().map(|t| t.name.len()).max().unwrap_or(0);
    let begin = || Reader {
        model,
        sources,
        limit: 4096 + 3 * longest_name,
        trouble: None,
        grid: None,
        shifts: None,
        again: false,
        header_ends: vec![None; model.shards.len()],
        tables: Vec::new(),
        promises: Vec::with_capacity(model.tensors.len()),
        hashed: None,
        headers: vec![None; model.shards.len()],
        files: Vec::with_capacity(model.shards.len()),
        mtimes: Vec::with_capacity(model.shards.len()),
        arrays: Vec::with_capacity(model.shards.len()),
        warnings: Vec::new(),
        created: String::new(),
        seen: Vec::new(),
        entry: Entry::default(),
        scratch: Vec::new(),
    };
    let mut reader = begin();
    lexed(reader.frame(&mut Lexer::new(&file)), &file)?;
    // What a list has to be compared with may stand behind it: the size of the chunks, or where
    // the headers end.
    for _ in 0..2 {
        let (true, None, Some(grid)) = (reader.again, &reader.trouble, &reader.grid) else { break };
        let (chunk, ends) = (grid.chunk_bytes(), std::mem::take(&mut reader.header_ends));
        reader = begin();
        reader.cut(Grid::with_headers(model, chunk, &ends));
        reader.header_ends = ends;
        lexed(reader.frame(&mut Lexer::new(&file)), &file)?;
    }
    match reader.trouble {
        Some(Trouble::Invalid(what)) => return Err(invalid(what)),
        Some(Trouble::Foreign(what)) => return Err(SealError::Foreign { file: name, what }),
        None => {}
    }
    let Some(grid) = reader.grid else {
        return Err(invalid("it has no \"chunk\"".to_owned()));
    };
    let seal = Seal {
        grid,
        tables: reader.tables,
        promises: reader.promises,
        hashed: reader.hashed == Some(true),
        headers: reader.headers,
        file_crcs: reader.files.iter().map(|_| OnceLock::new()).collect(),
        files: reader.files,
        mtimes: reader.mtimes,
        arrays: reader.arrays,
        warnings: reader.warnings,
        created: reader.created,
        lost: AtomicBool::new(false),
        file,
    };
    seal.file.check_unchanged()?;
    Ok(seal)
}

/// Opens a seal file.
pub(super) fn open(path: &Path) -> Result<Source, SealError> {
    let not_a_seal = |what| SealError::NotASeal { file: path.in_line().to_string(), what };
    Source::open(path, IoMode::Auto).map_err(|error| match error {
        SourceError::NotAFile { kind, .. } => not_a_seal(format!("it is {kind}")),
        SourceError::Io { source, .. } if path.is_symlink() && leads_nowhere(&source) => {
            not_a_seal(format!("it is a symbolic link that leads nowhere ({source})"))
        }
        error => error.into(),
    })
}

/// What following a link came to: no file, no directory on the way to it, or a circle.
fn leads_nowhere(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP))
}

/// What an end of reading before the end of the file means.
pub(super) fn lexed(result: Lexed, file: &Source) -> Result<(), SealError> {
    let name = || file.path().in_line().to_string();
    match result {
        Ok(()) => Ok(()),
        Err(LexError::Io(source)) => {
            // A seal that shrank or changed meanwhile says so by itself.
            file.check_unchanged()?;
            Err(SealError::Io { file: name(), op: "read", source })
        }
        Err(LexError::Syntax { offset, expected }) => Err(SealError::Invalid {
            file: name(),
            what: format!("expected {expected} at byte {offset}"),
        }),
    }
}

impl Reader<'_> {
    fn invalid(&mut self, what: impl Into<String>) {
        if !matches!(self.trouble, Some(Trouble::Invalid(_))) {
            self.trouble = Some(Trouble::Invalid(what.into()));
        }
    }

    fn foreign(&mut self, what: impl Into<String>) {
        if self.trouble.is_none() {
            self.trouble = Some(Trouble::Foreign(what.into()));
        }
    }

    /// Notes that a key was met; a second time is an error.
    fn once(&mut self, key: &'static str) {
        if self.seen.contains(&key) {
            self.invalid(format!("{key:?} stands there twice"));
        }
        self.seen.push(key);
    }

    /// The outermost object.
    fn frame(&mut self, lexer: &mut Lexer<'_>) -> Lexed {
        let (mut promised, mut found) = (None, None);
        lexer.object(|lexer, key| {
            match key {
                b"weightfs_manifest" => {
                    self.once("weightfs_manifest");
                    let version = lexer.unsigned()?;
                    if version != VERSION {
                        self.invalid(format!(
                            "version {version} of the format, this weightfs reads version {VERSION}"
                        ));
                    }
                }
                b"body_sha256" => {
                    self.once("body_sha256");
                    lexer.string(&mut self.scratch, 64)?;
                    promised = from_hex::<32>(&self.scratch);
                }
                b"body" => {
                    self.once("body");
                    lexer.hash_from_here()?;
                    self.body(lexer)?;
                    found = Some(lexer.hash_to_here()?);
                }
                _ => lexer.skip()?,
            }
            Ok(())
        })?;
        lexer.end()?;
        for key in ["weightfs_manifest", "body_sha256", "body"] {
            if !self.seen.contains(&key) {
                self.invalid(format!("it has no {key:?}"));
            }
        }
        match (promised, found) {
            (Some(promised), Some(found)) if promised == found => {}
            (Some(promised), Some(found)) => {
                // Whatever else looked wrong follows from this.
                self.trouble = None;
                self.invalid(format!(
                    "its body has SHA-256 {}, it says {}",
                    hex(&found),
                    hex(&promised)
                ));
            }
            (None, _) => self.invalid("\"body_sha256\" is not 64 lower-case hexadecimal digits"),
            (_, None) => {}
        }
        Ok(())
    }

    fn body(&mut self, lexer: &mut Lexer<'_>) -> Lexed {
        lexer.object(|lexer, key| match key {
            b"chunk" => {
                self.once("chunk");
                self.chunk(lexer)
            }
            b"created" => {
                self.once("created");
                lexer.string(&mut self.scratch, 4096)?;
                self.created = String::from_utf8_lossy(&self.scratch).into_owned();
                Ok(())
            }
            b"sources" => {
                self.once("sources");
                self.sources(lexer)
            }
            b"regions" => {
                self.once("regions");
                self.regions(lexer)
            }
            b"tensors" => {
                self.once("tensors");
                self.tensors(lexer)
            }
            b"chunk_table" => {
                self.invalid("chunk tables in a file of their own are not supported");
                lexer.skip()
            }
            _ => lexer.skip(),
        })?;
        for key in ["chunk", "sources", "regions", "tensors"] {
            if !self.seen.contains(&key) {
                self.invalid(format!("its body has no {key:?}"));
            }
        }
        Ok(())
    }

    fn chunk(&mut self, lexer: &mut Lexer<'_>) -> Lexed {
        let mut size = None;
        let words: [(&[u8], &str); 3] =
            [(b"algorithm", "crc32"), (b"grid", "region-start"), (b"encoding", "base64-le-u32")];
        let mut met = [false; 3];
        lexer.object(|lexer, key| {
            if key == b"size" {
                size = Some(lexer.unsigned()?);
                return Ok(());
            }
            let Some(which) = words.iter().position(|(word, _)| *word == key) else {
                return lexer.skip();
            };
            lexer.string(&mut self.scratch, 4096)?;
            met[which] = true;
            if self.scratch != words[which].1.as_bytes() {
                let found = String::from_utf8_lossy(&self.scratch).into_owned();
                self.invalid(format!(
                    "chunk {} {found:?} is not supported, only {:?}",
                    String::from_utf8_lossy(key),
                    words[which].1
                ));
            }
            Ok(())
        })?;
        if met != [true; 3] {
            self.invalid("\"chunk\" lacks algorithm, grid or encoding");
        }
        match size {
            // Known from a first reading.
            Some(size) if self.grid.as_ref().is_some_and(|grid| grid.chunk_bytes() == size) => {}
            Some(size) if is_chunk_size(size) => self.cut(Grid::new(self.model, size)),
            Some(size) => self.invalid(SealError::ChunkSize(size).to_string()),
            None => self.invalid("\"chunk\" lacks its size"),
        }
        Ok(())
    }

    /// Takes the chunks to be those of `grid`.
    fn cut(&mut self, grid: Grid) {
        self.tables = vec![0; grid.slots()];
        self.shifts = Some(Shifts::new(grid.chunk_bytes()));
        self.grid = Some(grid);
    }

    /// Reads one object of a list into `self.entry`. Whether what is needed was there, and
    /// fits, is for the caller to say.
    fn read_entry(&mut self, lexer: &mut Lexer<'_>) -> Lexed {
        if let Some(bad) =
            self.entry.read(lexer, self.limit, self.shifts.as_ref(), &mut self.scratch)?
        {
            self.invalid(format!("{bad}, before byte {}", lexer.offset()));
        }
        Ok(())
    }

    fn sources(&mut self, lexer: &mut Lexer<'_>) -> Lexed {
        let mut number = 0;
        lexer.array(|lexer| {
            self.read_entry(lexer)?;
            self.source(number);
            number += 1;
            Ok(())
        })?;
        if number != self.model.shards.len() {
            let have = self.model.shards.len();
            self.foreign(format!("it speaks of {number} files, the model has {have}"));
        }
        Ok(())
    }

    fn source(&mut self, shard: usize) {
        let (Some(shard), Some(&source)) = (self.model.shards.get(shard), self.sources.get(shard))
        else {
            return;
        };
        let entry = &self.entry;
        let sealed = String::from_utf8_lossy(entry.name()).into_owned();
        let shown = match source {
            Some(source) => source.path().in_line().to_string(),
            None => shard.file.in_line().to_string(),
        };
        // What only saves time need not be there: it follows from the header, whose bytes are
        // compared.
        let version = u64::from(self.model.format_version);
        let layout = [
            ("version", version, version_of(entry, self.model.format)),
            ("data start", shard.data_start, entry.data_start.or(Some(shard.data_start))),
            (
                "start of tensor infos",
                shard.tensor_infos,
                entry.tensor_infos.or(Some(shard.tensor_infos)),
            ),
        ];
        let differs = if entry.format != self.model.format.name().as_bytes() {
            let was = entry.format.in_line().to_string();
            Some(("format", self.model.format.name().to_owned(), was))
        } else {
            let differs = layout.into_iter().find(|(_, is, was)| Some(*is) != *was);
            differs.map(|(what, is, was)| (what, is.to_string(), number(was)))
        };
        self.files.push(entry.sha256);
        self.mtimes.push(String::from_utf8_lossy(&entry.mtime).into_owned());
        let arrays: usize = self.arrays.iter().flatten().map(Vec::len).sum();
        let more = entry.arrays.as_ref().map_or(0, Vec::len);
        self.arrays.push(entry.arrays.clone().filter(|_| arrays + more <= ARRAYS));
        let mtime = source.map(|source| timestamp(source.identity().mtime));
        if entry.size != Some(shard.len) {
            let was = entry.size.map_or("no size".to_owned(), |s| format!("{s} bytes"));
            self.foreign(format!(
                "{shown} has {} bytes, sealed was {sealed:?} with {was}",
                shard.len
            ));
        } else if let Some((what, is, was)) = differs {
            self.foreign(format!("{shown}: {what} is {is}, sealed was {was}"));
        } else if *entry.name() != *shard.file {
            self.warnings.push(format!("{shown} was sealed under the name {sealed:?}"));
        } else if let Some(mtime) = mtime.filter(|mtime| entry.mtime != mtime.as_bytes())
            && !entry.mtime.is_empty()
        {
            self.warnings.push(format!(
                "{shown} has another modification time than when it was sealed ({mtime}, was {})",
                entry.mtime.in_line()
            ));
        }
        self.all_or_none(|| format!("file {shown:?}"));
    }

    /// The SHA-256 of files, headers and tensors are there together or not at all.
    fn all_or_none(&mut self, what: impl Fn() -> String) {
        let has = self.entry.sha256.is_some();
        if *self.hashed.get_or_insert(has) != has {
            let word = if has { "a" } else { "no" };
            self.invalid(format!("{} has {word} SHA-256, unlike what stands before it", what()));
        }
    }
}

/// The version of a file's format that an entry means. safetensors has none: a seal may say
/// nothing, 0 or 1.
pub(super) fn version_of(entry: &Entry, format: Format) -> Option<u64> {
    match (format, entry.format_version) {
        (Format::Safetensors, None | Some(0 | 1)) => Some(0),
        (_, version) => version,
    }
}

fn number(value: Option<u64>) -> String {
    value.map_or("nothing".to_owned(), |v| v.to_string())
}
