//! What a model is compared with.

use super::super::engine;
use super::super::exit::{Exit, Failure};
use super::super::progress::Progress;
use super::super::shell;
use super::given::Given;
use super::{Scope, Verdict, listed, sealed};
use anyhow::{Result, anyhow, bail};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weightfs::bytes::line::{InLine, Safe};
use weightfs::depot;
use weightfs::load::{self, Loaded, Member};
use weightfs::seal;
use weightfs::source::IoMode;
use weightfs::trust::{self, Anchor, Claim, List};

/// What the bytes are compared with.
pub(super) enum Against {
    /// What is known of the model: its seal and its anchors.
    Known,
    /// A seal that was named.
    Seal(PathBuf),
    /// A list that was named.
    List(Given),
    /// The SHA-256 of the one file.
    Digest([u8; 32]),
}

impl Against {
    /// A file that the user named, which must be there.
    pub(super) fn given(file: &Path) -> Result<Against> {
        let given = Given::new(file)?;
        Ok(match seal::is_seal(&given.path) {
            true => Against::Seal(given.path),
            false => Against::List(given),
        })
    }

    /// Compares one model, or the one file of it that was named.
    pub(super) fn verify(&self, model: &Path, part: bool) -> Result<Verdict> {
        let loaded = match engine::load(model, IoMode::Auto) {
            Ok(loaded) => loaded,
            Err(error) if part => return Err(error),
            // What cannot be opened may be damaged.
            Err(error) => return self.unopened(model).unwrap_or(Err(error)),
        };
        let scope = Scope::of(&loaded, model, part)?;
        match self {
            Against::Known => known(model, &loaded, scope),
            Against::Seal(path) => {
                let bar = Progress::new(model, scope.bytes(&loaded));
                let mut found = trust::find(&loaded.model, &loaded.sources);
                found.anchors.retain(|anchor| scope.has(anchor.shard));
                sealed::by_seal(path, &loaded, scope, &found, &bar)
            }
            Against::List(given) => {
                let mut list = given.list(&loaded.model, &loaded.sources)?;
                scope.narrow(&mut list.claims);
                list.warnings.iter().for_each(|warning| super::exit::warn(warning));
                if list.claims.iter().all(Claim::is_empty) {
                    return Err(nothing_on(model, &loaded, scope, &list));
                }
                let name = given.name();
                listed::by_given(model, &loaded, scope, &list.into_anchors(), &name)
            }
            Against::Digest(sha256) => {
                if scope.file.is_none() && loaded.sources.len() != 1 {
                    bail!(
                        "{}: it has {} files and --expect-sha256 is the digest of one; --against takes a list",
                        model.in_line(),
                        loaded.sources.len()
                    );
                }
                let shard = scope.file.unwrap_or_default() as usize;
                let anchors = [trust::pinned(shard, *sha256)];
                listed::by_given(model, &loaded, scope, &anchors, "the command line")
            }
        }
    }

    /// A model that nobody understands can still be told from what its files should be.
    fn unopened(&self, spec: &Path) -> Option<Result<Verdict>> {
        let located = depot::locate(spec).ok()?;
        let path = located.as_ref().map_or(spec, |located| &located.path);
        let by_seal = match self {
            Against::Known => sealed::unopened(path, None),
            Against::Seal(seal) => return sealed::unopened(path, Some(seal)),
            Against::List(_) | Against::Digest(_) => None,
        };
        if by_seal.is_some() {
            return by_seal;
        }
        let mut files = load::members(spec);
        if files.is_empty() || matches!(self, Against::Digest(_)) && path.is_file() {
            // It may be anything, and still be known by its name or by a list.
            files = vec![alone(path)?];
        }
        if matches!(self, Against::Digest(_)) && files.len() > 1 {
            return None;
        }
        let (model, sources) = trust::unopened(&files)?;
        let (anchors, with) = match self {
            Against::Known => {
                let found = trust::find(&model, &sources);
                if let Some(wrong) = trust::contradiction(&found.anchors, &model) {
                    return Some(Err(engine::distrust(&wrong)));
                }
                let with = words(&found.anchors);
                (found.anchors, with)
            }
            Against::Seal(_) => return None,
            Against::List(given) => {
                let name = given.name();
                match given.list(&model, &sources) {
                    Ok(list) => {
                        list.warnings.iter().for_each(|warning| super::exit::warn(warning));
                        (list.into_anchors(), name)
                    }
                    // Why the file cannot be opened is said as well, by who asked.
                    Err(error) => {
                        super::exit::warn(&error.to_string());
                        return None;
                    }
                }
            }
            Against::Digest(sha256) => {
                (vec![trust::pinned(0, *sha256)], "the command line".to_owned())
            }
        };
        let claims = trust::joined(&anchors, model.shards.len());
        let work = trust::work(&claims, &model);
        let bar = Progress::new(path, work);
        let tick = |done| bar.set(done);
        let report = trust::compare(&claims, &model, &sources, &tick).ok()?;
        if let Some(clash) = &report.clash {
            let wrong = clash.between(&anchors, &model);
            return Some(Err(match self {
                Against::Known => engine::distrust(&wrong),
                _ => anyhow!(wrong),
            }));
        }
        // When the bytes are right, why they cannot be opened is what is to be said.
        (!report.bad.is_empty()).then(|| {
            let verdict = listed::verdict(&model, report, &with);
            Ok(Verdict { endless: true, ..verdict })
        })
    }
}

/// A file by itself.
fn alone(path: &Path) -> Option<Member> {
    let path = std::path::absolute(path).ok()?;
    Some((path.file_name()?.as_bytes().into(), path))
}

/// Against the seal, else against the anchors.
fn known(model: &Path, loaded: &Loaded, scope: Scope) -> Result<Verdict> {
    let mut found = trust::find(&loaded.model, &loaded.sources);
    found.anchors.retain(|anchor| scope.has(anchor.shard));
    if let Some(wrong) = trust::contradiction(&found.anchors, &loaded.model) {
        return Err(engine::distrust(&wrong));
    }
    for warning in &found.warnings {
        super::exit::warn(warning);
    }
    if let Some(path) = seal::find(&loaded.entry) {
        let bar = Progress::new(model, scope.bytes(loaded));
        return sealed::by_seal(&path, loaded, scope, &found, &bar);
    }
    if found.anchors.is_empty() {
        let text = format!(
            "{}: not sealed, and no store or list says what it should be: nothing to verify against (weightfs seal {})",
            model.in_line(),
            shell::word(model)
        );
        return Err(Failure::with(Exit::Unsealed, text));
    }
    listed::by_found(model, loaded, scope, &found.anchors, &words(&found.anchors))
}

/// The first of the anchors, in words, for all of them.
fn words(anchors: &[Anchor]) -> String {
    let Some(first) = anchors.first() else {
        return "nothing".to_owned();
    };
    let kind = first.kind;
    let origin = first.origin.file_name().unwrap_or_default();
    let origin = Safe(origin.as_encoded_bytes()).to_string();
    match kind.is_store() {
        true => "its name in the store".to_owned(),
        false => origin,
    }
}

/// A list that is about something else.
fn nothing_on(model: &Path, loaded: &Loaded, scope: Scope, list: &List) -> anyhow::Error {
    let shard = loaded.model.shards.get(scope.file.unwrap_or_default() as usize);
    let file = shard.map(|shard| &*shard.file).unwrap_or_default();
    let other = match &list.strangers {
        (0, _) | (_, None) => String::new(),
        (n, Some(name)) => {
            format!(
                "; it speaks of {}",
                match n {
                    1 => Safe(name.as_bytes()).to_string(),
                    n => format!("{} and {} more", Safe(name.as_bytes()), n - 1),
                }
            )
        }
    };
    let list_warned = !list.warnings.is_empty();
    let list = Safe(list.path.as_os_str().as_encoded_bytes()).to_string();
    // What there is was told as a warning.
    let line = if list_warned { "no line that can be compared with" } else { "no line for" };
    let text = format!("{}: {list} has {line} {}{other}", model.in_line(), Safe(file));
    Failure::with(Exit::Unsealed, text)
}
