//! `weightfs verify`: every byte against the seal, an anchor, a list of digests or one digest.

use super::args::VerifyArgs;
use super::below::{self, Named};
use super::exit::{self, Exit, Failure};
use super::output::Out;
use super::text::plural;
use against::Against;
use anyhow::{Result, bail};
use serde_json::json;
use std::path::Path;
use weightfs::bytes::line::{InLine, Safe};
use weightfs::load::Loaded;
use weightfs::model::Model;
use weightfs::trust::{self, Claim, Repair};
use weightfs::view::json::lossy;

mod against;
mod given;
mod listed;
mod rival;
mod sealed;
mod told;

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    if args.expect_sha256.is_some() && args.models.len() > 1 {
        return Err(Failure::usage(
            "--expect-sha256 is the digest of one file, but several models were given",
        ));
    }
    let against = match &args.against {
        Some(file) => Against::given(file)?,
        None => args.expect_sha256.map_or(Against::Known, Against::Digest),
    };
    let mut out = Out::new();
    let mut ends = Vec::new();
    let mut documents = Vec::new();
    for Named { model, problem } in below::models(&args.models, args.recursive) {
        let model = &*model;
        let verdict = problem.map_or_else(|| against.verify(model, args.part), Err);
        let end = match &verdict {
            Ok(verdict) => verdict.exit(),
            Err(error) => exit::code_of(error),
        };
        if args.json {
            documents.push(told::document(model, &verdict));
        } else if let Ok(verdict) = &verdict {
            told::write(model, verdict, &mut out)?;
        }
        match verdict {
            Ok(verdict) => verdict.complain(model),
            Err(error) => exit::complain(&error),
        }
        ends.push(end);
    }
    if args.json {
        out.json(&json!({ "models": documents }))?;
    }
    out.flush()?;
    Ok(Exit::of_several(&ends))
}

/// What of a model is looked at.
#[derive(Clone, Copy)]
struct Scope {
    /// The one file, by number; `None`: all of them.
    file: Option<u32>,
}

impl Scope {
    /// All of the model, or with `part` the one file that was named.
    fn of(loaded: &Loaded, typed: &Path, part: bool) -> Result<Scope> {
        let file = loaded.file_named(typed).filter(|_| part);
        if part && file.is_none() {
            bail!(
                "{}: --part takes the files of a set, and this is none of the {} of {}",
                typed.in_line(),
                plural(loaded.sources.len(), "file"),
                loaded.entry.in_line()
            );
        }
        Ok(Scope { file })
    }

    fn has(self, shard: usize) -> bool {
        self.file.is_none_or(|file| file as usize == shard)
    }

    /// Bytes of the files.
    fn bytes(self, loaded: &Loaded) -> u64 {
        let files = loaded.sources.iter().enumerate().filter(|(shard, _)| self.has(*shard));
        files.map(|(_, source)| source.len()).sum()
    }

    /// Nothing is claimed of what is not looked at.
    fn narrow(self, claims: &mut [Claim]) {
        for (shard, claim) in claims.iter_mut().enumerate() {
            if !self.has(shard) {
                *claim = Claim::default();
            }
        }
    }
}

/// A range that is not what it should be.
struct Bad {
    tensor: Option<String>,
    /// Header, padding or the whole file, where it is no tensor.
    place: &'static str,
    chunk: Option<u64>,
    shard: u32,
    file: String,
    offset: u64,
    length: u64,
    expected: String,
    found: String,
    /// Where the damage may be: first byte in the file and number of bytes.
    suspect: Vec<(u64, u64)>,
}

/// What became of one model.
struct Verdict {
    bad: Vec<Bad>,
    /// Bad ranges beyond those in `bad`.
    more: u64,
    /// What was looked at, and how many bytes that is.
    checked: (u64, &'static str),
    bytes: u64,
    /// What it was compared with, where that is not the seal.
    with: Option<String>,
    /// Files of the model, by number: name and length, as they should be.
    files: Vec<(String, u64)>,
    /// Whether nothing tells how long the files should be: what is bad of one is then to be
    /// fetched as a whole, whatever its length.
    endless: bool,
    /// How long each is; `None` where it is not there.
    lengths: Vec<Option<u64>>,
}

impl Verdict {
    fn files_of(model: &Model) -> Vec<(String, u64)> {
        model.shards.iter().map(|shard| (lossy(&shard.file).into_owned(), shard.len)).collect()
    }

    fn exit(&self) -> Exit {
        if self.bad.is_empty() { Exit::Done } else { Exit::Damage }
    }

    fn complain(&self, model: &Path) {
        if !self.bad.is_empty() {
            let lines = [vec![self.extent()], self.resized()].concat().join("\n");
            exit::say(&format!("{}: damaged: {lines}", model.in_line()));
        }
    }

    /// Files that are not as long as they were, in words.
    fn resized(&self) -> Vec<String> {
        /// More are only counted: a message has four lines.
        const SAID: usize = 2;
        let differs = self.files.iter().zip(&self.lengths).filter_map(|((name, len), found)| {
            let name = Safe(name.as_bytes());
            match found {
                Some(found) if found == len => None,
                Some(found) => Some(format!("{name} has {found} bytes, sealed were {len}")),
                None => Some(format!("{name} is not there, sealed were {len} bytes of it")),
            }
        });
        let mut said: Vec<_> = differs.collect();
        let unsaid = said.len().saturating_sub(SAID);
        if unsaid > 0 {
            said.truncate(SAID);
            said.push(format!("and {} not as long as sealed", plural(unsaid, "more file")));
        }
        said
    }

    /// Files that are longer than they were: their number, and how long they were.
    fn too_long(&self) -> impl Iterator<Item = (usize, &str, u64)> {
        let all = self.files.iter().zip(&self.lengths).enumerate();
        all.filter(|(_, ((_, len), found))| found.is_some_and(|found| found > *len))
            .map(|(shard, ((name, len), _))| (shard, &**name, *len))
    }

    /// `1 of 6 chunks is bad`; of ranges that are no chunks only the number is told.
    fn extent(&self) -> String {
        let n = self.bad.len() as u64 + self.more;
        let (all, unit) = self.checked;
        let (of, verb) = (plural(all as usize, unit), if n == 1 { "is" } else { "are" });
        if unit != "chunk" || self.bad.iter().all(|bad| bad.chunk.is_some()) {
            format!("{n} of {of} {verb} bad")
        } else {
            format!("{}, {of} looked at", plural(n as usize, "bad range"))
        }
    }

    /// Files of which something is bad.
    fn bad_files(&self) -> impl Iterator<Item = &str> {
        let all = (0u32..).zip(&self.files);
        let bad = all.filter(|(shard, _)| self.bad.iter().any(|bad| bad.shard == *shard));
        bad.map(|(_, (name, _))| &**name)
    }

    /// What is to be fetched again.
    fn repair(&self) -> Vec<Repair> {
        let listed = self.bad.iter().flat_map(|bad| {
            bad.suspect.iter().map(|&(offset, length)| (bad.shard, offset, length))
        });
        // Where the list ends, everything behind it may be bad.
        let last = self.bad.last().filter(|_| self.more > 0);
        let rest = last.into_iter().flat_map(|last| {
            let lengths = (0u32..).zip(&self.files).skip(last.shard as usize);
            lengths.map(|(shard, (_, length))| {
                let from = if shard == last.shard { last.offset } else { 0 };
                (shard, from, length.saturating_sub(from))
            })
        });
        trust::repair(listed.chain(rest))
    }
}
