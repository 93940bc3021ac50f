//! `weightfs verify`: every byte against the seal, a list of digests or one digest.

use super::args::VerifyArgs;
use super::engine::{self, Cure};
use super::exit::{self, Exit, Failure};
use super::output::{Ink, Out};
use super::progress::Progress;
use super::seal::bytes_of;
use super::table::{Align, Table};
use super::text::{self, Safe, plural, size};
use anyhow::{Result, bail};
use digests::List;
use serde_json::{Value as Json, json};
use std::io::Write;
use std::path::Path;
use weightfs::load::Loaded;
use weightfs::model::Model;
use weightfs::seal::{self, Seal, SealError, Verified, VerifyOptions, hex};
use weightfs::source::IoMode;
use weightfs::view::json::lossy;

mod digests;

/// Damaged ranges that the table shows; `--json` has them all.
const SHOWN: usize = 20;

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit> {
    if args.expect_sha256.is_some() && args.models.len() > 1 {
        return Err(Failure::usage(
            "--expect-sha256 is the digest of one file, but several models were given",
        ));
    }
    let against = match &args.against {
        Some(file) => Against::List(List::read(file)?),
        None => args.expect_sha256.map_or(Against::Seal, Against::Digest),
    };
    let mut out = Out::new();
    let mut ends = Vec::new();
    let mut documents = Vec::new();
    for model in &args.models {
        let verdict = verify_one(model, &against);
        let end = match &verdict {
            Ok(verdict) => verdict.exit(),
            Err(error) => exit::code_of(error),
        };
        if args.json {
            documents.push(document(model, &verdict));
        } else if let Ok(verdict) = &verdict {
            write(model, verdict, &mut out)?;
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

/// What the bytes are compared with.
enum Against {
    Seal,
    List(List),
    Digest([u8; 32]),
}

/// A range that is not what it should be.
struct Bad {
    tensor: Option<String>,
    /// Header, padding or the whole file, where it is no tensor.
    place: &'static str,
    chunk: Option<u64>,
    file: String,
    offset: u64,
    length: u64,
    expected: String,
    found: String,
}

/// Why a seal does not help.
fn at_fault(error: SealError) -> anyhow::Error {
    engine::seal_error(error, Cure::Force)
}

/// What became of one model.
struct Verdict {
    bad: Vec<Bad>,
    /// Bad ranges beyond those in `bad`.
    more: u64,
    /// What was looked at, and how many bytes that is.
    checked: (u64, &'static str),
    bytes: u64,
}

impl Verdict {
    fn exit(&self) -> Exit {
        if self.bad.is_empty() { Exit::Done } else { Exit::Damage }
    }

    fn complain(&self, model: &Path) {
        if !self.bad.is_empty() {
            exit::say(&format!("{}: damaged: {}", model.display(), self.extent()));
        }
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
}

fn verify_one(model: &Path, against: &Against) -> Result<Verdict> {
    let loaded = match engine::load(model, IoMode::Auto) {
        Ok(loaded) => loaded,
        // What cannot be opened may be damaged: its seal knows.
        Err(error) if matches!(against, Against::Seal) => return unopened(model, error),
        Err(error) => return Err(error),
    };
    let bar = Progress::new(model, bytes_of(&loaded));
    match against {
        Against::Seal => by_seal(model, &loaded, &bar),
        Against::List(list) => by_list(model, &loaded, list, &bar),
        Against::Digest(digest) => by_digest(model, &loaded, digest, &bar),
    }
}

fn by_seal(model: &Path, loaded: &Loaded, bar: &Progress) -> Result<Verdict> {
    let Some(path) = seal::find(&loaded.entry) else {
        return Err(Failure::with(
            Exit::Unsealed,
            format!(
                "{0}: not sealed, so there is nothing to verify against (weightfs seal {0})",
                model.display()
            ),
        ));
    };
    let verified = seal::verify_against(
        &path,
        &loaded.model,
        &loaded.sources,
        VerifyOptions::default(),
        &|done| bar.set(done),
    )
    .map_err(at_fault)?;
    Ok(verdict(&loaded.model, verified))
}

/// A model that cannot be opened, by what its seal says of it.
fn unopened(entry: &Path, error: anyhow::Error) -> Result<Verdict> {
    match seal::verify_unopened(entry, IoMode::Auto, VerifyOptions::default(), &|_| {}) {
        Some(Ok(verified)) => match verified.described.clone() {
            Some(model) => Ok(verdict(&model, verified)),
            None => Err(error),
        },
        _ => Err(error),
    }
}

fn verdict(opened: &Model, verified: Verified) -> Verdict {
    let Verified { report, described } = verified;
    let model = described.as_ref().unwrap_or(opened);
    let bad = report.bad.into_iter().map(|bad| Bad {
        tensor: bad.tensor.map(|i| lossy(&model.tensors[i as usize].name).into_owned()),
        place: bad.part.kind(),
        chunk: bad.chunk,
        file: lossy(&model.shards[bad.shard as usize].file).into_owned(),
        offset: bad.offset,
        length: bad.len,
        expected: bad.expected,
        found: bad.found,
    });
    let bytes: u64 = model.shards.iter().map(|shard| shard.len).sum();
    Verdict { bad: bad.collect(), more: report.more, checked: (report.chunks, "chunk"), bytes }
}

/// Whole files against a list: `sha256sum`'s, with the names that the files have.
fn by_list(model: &Path, loaded: &Loaded, list: &List, bar: &Progress) -> Result<Verdict> {
    let mut bad = Vec::new();
    let mut before = 0;
    for (shard, source) in loaded.model.shards.iter().zip(&loaded.sources) {
        let Some(expected) = list.digest_of(&shard.file) else {
            return Err(Failure::with(
                Exit::Unsealed,
                format!(
                    "{}: {} has no line for {}",
                    model.display(),
                    list.path().display(),
                    Safe(&shard.file)
                ),
            ));
        };
        let found = seal::sha256_file(source, &|done| bar.set(before + done)).map_err(at_fault)?;
        before += source.len();
        if found != expected {
            bad.push(whole_file(&shard.file, source.len(), &expected, &found));
        }
    }
    Ok(Verdict { bad, more: 0, checked: (loaded.sources.len() as u64, "file"), bytes: before })
}

fn by_digest(
    model: &Path,
    loaded: &Loaded,
    expected: &[u8; 32],
    bar: &Progress,
) -> Result<Verdict> {
    let [source] = &loaded.sources[..] else {
        bail!(
            "{}: it has {} files and --expect-sha256 is the digest of one; --against takes a list",
            model.display(),
            loaded.sources.len()
        );
    };
    let found = seal::sha256_file(source, &|done| bar.set(done)).map_err(at_fault)?;
    let mut bad = Vec::new();
    if found != *expected {
        contradict(loaded, expected, &found)?;
        bad.push(whole_file(&loaded.model.shards[0].file, source.len(), expected, &found));
    }
    Ok(Verdict { bad, more: 0, checked: (1, "file"), bytes: source.len() })
}

/// A file that is not what was expected but is what its seal says: two sources that are both
/// trusted disagree, and it is not for us to choose.
fn contradict(loaded: &Loaded, expected: &[u8; 32], found: &[u8; 32]) -> Result<()> {
    let Some(path) = seal::find(&loaded.entry) else {
        return Ok(());
    };
    let Ok(seal) = Seal::load(&path, &loaded.model, &loaded.sources) else {
        return Ok(());
    };
    if seal.source_sha256(0).as_ref() != Some(found) {
        return Ok(());
    }
    Err(Failure::with(
        Exit::Seal,
        format!(
            "{}: two trusted sources disagree about its SHA-256\n  expected on the command line: {}\n  sealed and found:             {}",
            loaded.entry.display(),
            hex(expected),
            hex(found)
        ),
    ))
}

fn whole_file(file: &[u8], length: u64, expected: &[u8; 32], found: &[u8; 32]) -> Bad {
    Bad {
        tensor: None,
        place: "file",
        chunk: None,
        file: lossy(file).into_owned(),
        offset: 0,
        length,
        expected: hex(expected),
        found: hex(found),
    }
}

fn document(model: &Path, verdict: &Result<Verdict>) -> Json {
    let (result, bad) = match verdict {
        Ok(verdict) if verdict.bad.is_empty() => ("good", Vec::new()),
        Ok(verdict) => ("damaged", verdict.bad.iter().map(bad_document).collect()),
        Err(error) => match exit::code_of(error) {
            Exit::Unsealed => ("unsealed", Vec::new()),
            Exit::Seal => ("seal", Vec::new()),
            _ => ("failed", Vec::new()),
        },
    };
    let mut document = json!({ "model": model.to_string_lossy(), "result": result, "bad": bad });
    match verdict {
        Ok(verdict) if verdict.more > 0 => document["more"] = verdict.more.into(),
        Ok(_) => {}
        Err(error) => document["error"] = exit::message(error).into(),
    }
    document
}

fn bad_document(bad: &Bad) -> Json {
    json!({
        "tensor": bad.tensor,
        "chunk": bad.chunk,
        "source": { "file": bad.file, "offset": bad.offset, "length": bad.length },
        "expected": bad.expected,
        "found": bad.found,
    })
}

fn write(model: &Path, verdict: &Verdict, out: &mut Out) -> Result<()> {
    let name = Safe(model.as_os_str().as_encoded_bytes()).to_string();
    if verdict.bad.is_empty() {
        let good = out.ink(Ink::Good, "good").into_owned();
        let (n, unit) = verdict.checked;
        writeln!(out, "{name}: {good} ({}, {})", plural(n as usize, unit), size(verdict.bytes))?;
        out.flush()?;
        return Ok(());
    }
    let damaged = out.ink(Ink::Bad, "damaged").into_owned();
    writeln!(out, "{name}: {damaged}")?;
    let mut table = Table::new([
        ("TENSOR", Align::Left),
        ("CHUNK", Align::Right),
        ("FILE", Align::Left),
        ("OFFSET", Align::Right),
        ("LENGTH", Align::Right),
        ("EXPECTED", Align::Left),
        ("FOUND", Align::Left),
    ]);
    for bad in verdict.bad.iter().take(SHOWN) {
        table.row([
            bad.tensor
                .as_ref()
                .map_or(format!("({})", bad.place), |name| text::name(name.as_bytes())),
            bad.chunk.map_or("-".into(), |chunk| chunk.to_string()),
            Safe(bad.file.as_bytes()).to_string(),
            bad.offset.to_string(),
            bad.length.to_string(),
            bad.expected.clone(),
            bad.found.clone(),
        ]);
    }
    table.write(out, 2)?;
    let unseen = (verdict.bad.len().saturating_sub(SHOWN)) as u64 + verdict.more;
    if unseen > 0 {
        writeln!(out, "  and {unseen} more, which --json lists")?;
    }
    out.flush()?;
    Ok(())
}
