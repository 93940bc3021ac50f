//! Where each of several models is shown, and which of them cannot be.
//!
//! A model is a directory; one that has models below it shows their directories beside its own
//! entries. Two that meet on one path are not told apart by guessing: the later one is left out,
//! and says with what it met.

use super::{Clearing, Directory, Entry, Grove, Place, Spot, Tree, numbers};
use crate::fs::live::Started;
use crate::fs::{Snapshots, WeightFs};
use crate::layout::{Dir, Ino, Live, Node};
use crate::naming::file_name;
use crate::view::json;
use serde_json::{Value as Json, json};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

/// The document about all models.
const MODELS: &[u8] = b"models.json";
/// The directory of live documents.
const LIVE: &[u8] = b".weightfs";

/// One of several models, opened or not.
#[derive(Debug)]
pub struct Member {
    /// Where it is to be shown: names of directories, not encoded; at least one.
    pub shown: Vec<Box<[u8]>>,
    /// What was opened as MODEL.
    pub path: PathBuf,
    /// The model, or why there is none.
    pub model: Result<WeightFs, String>,
}

/// A model that is not shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Which of the members it is.
    pub member: usize,
    /// Its directory in the mount, if it had one.
    pub directory: String,
    /// What was to be opened as MODEL.
    pub path: PathBuf,
    /// Why.
    pub error: String,
}

/// A directory to be: of a model, above some, or both.
#[derive(Default)]
struct Draft {
    below: BTreeMap<Box<[u8]>, usize>,
    /// The member whose model it is.
    member: Option<usize>,
    /// The number of that model.
    tree: u16,
    /// Its number among the directories above models.
    number: u32,
    parent: usize,
    /// Whether there is a model in it, or below.
    lives: bool,
}

/// A model that was opened.
struct Planted {
    member: usize,
    fs: Arc<WeightFs>,
    path: PathBuf,
    name: String,
    draft: usize,
}

impl Grove {
    /// A mount of several models, at most 65,535. Of two that meet in one place the one that
    /// comes first is shown. `notes` and `log` are for its documents.
    pub fn of_several(members: Vec<Member>, notes: &[String], log: Option<String>) -> Grove {
        let names: Vec<Vec<Box<[u8]>>> = members
            .iter()
            .map(|member| {
                member.shown.iter().map(|name| (&*file_name(name, "", 0)).into()).collect()
            })
            .collect();
        let mut drafts = drafts(&names);
        let joined: Vec<String> = names.iter().map(|name| joined(name)).collect();
        // Shown or not: who is mended is no newcomer. 0 is the grove's own.
        let numbers = numbers::give(&joined, 1..=u32::from(u16::MAX), numbers::of_name);
        let mut planted: Vec<Planted> = Vec::new();
        let mut left_out = Vec::new();
        let mut rows = Vec::new();
        for (i, member) in members.into_iter().enumerate() {
            let path = member.path.clone();
            let placed = member.model.and_then(|fs| {
                let draft = place(&drafts, &planted, &names[i], &fs)?;
                Ok((fs, draft))
            });
            match placed {
                Ok((fs, draft)) => {
                    rows.push(row(&path, &joined[i], Ok(&fs)));
                    drafts[draft].member = Some(i);
                    // In the range above.
                    drafts[draft].tree = numbers[i] as u16;
                    mark(&mut drafts, draft);
                    let name = joined[i].clone();
                    planted.push(Planted { member: i, fs: Arc::new(fs), path, name, draft });
                }
                Err(error) => {
                    rows.push(row(&path, &joined[i], Err(&error)));
                    let directory = joined[i].clone();
                    left_out.push(LeftOut { member: i, directory, path, error });
                }
            }
        }
        let models = json::document(&json!({"models": rows, "warnings": notes}));
        let mtime = planted.iter().map(|one| one.fs.mtime()).max();
        let clearing = Clearing {
            directories: directories(&drafts),
            models: models.into(),
            mtime: mtime.unwrap_or(SystemTime::UNIX_EPOCH),
            left_out,
            log,
            started: Started::now(),
            snapshots: Snapshots::default(),
        };
        let mut trees = Vec::with_capacity(planted.len());
        let mut places = vec![0; 1 + usize::from(u16::MAX)];
        let mut lanes = 0;
        for Planted { fs, name, draft, .. } in planted {
            let parent = spot(&drafts, drafts[draft].parent);
            let beside = entries(&drafts, draft).into();
            let lane = lanes;
            lanes += fs.lanes();
            trees.push(Tree { fs, parent, beside, lane, name });
            // As many as there are numbers, at most.
            places[usize::from(drafts[draft].tree)] = trees.len() as u16;
        }
        let (trees, places) = (trees.into(), places.into());
        Grove { trees, places, clearing: Some(clearing), lanes }
    }
}

/// All directories that models are to have and lie in: numbered whether the models can be shown
/// or not.
fn drafts(names: &[Vec<Box<[u8]>>]) -> Vec<Draft> {
    let mut drafts = vec![Draft::default()];
    let mut paths = Vec::new();
    for name in names {
        let mut at = 0;
        for (depth, part) in name.iter().enumerate() {
            at = match drafts[at].below.get(part) {
                Some(&below) => below,
                None => {
                    let new = drafts.len();
                    drafts[at].below.insert(part.clone(), new);
                    drafts.push(Draft { parent: at, ..Draft::default() });
                    paths.push(joined(&name[..=depth]));
                    new
                }
            };
        }
    }
    // Behind the root and its `.weightfs`.
    let numbers = numbers::give(&paths, 2..=u32::MAX, numbers::of_name);
    drafts[1..].iter_mut().zip(numbers).for_each(|(draft, number)| draft.number = number);
    drafts
}

/// The directory for a model, or with what it meets there.
fn place(
    drafts: &[Draft],
    planted: &[Planted],
    name: &[Box<[u8]>],
    fs: &WeightFs,
) -> Result<usize, String> {
    let owner = |draft: usize| {
        let member = drafts[draft].member?;
        let at = planted.binary_search_by_key(&member, |one| one.member).ok()?;
        planted.get(at)
    };
    let mut at = 0;
    for (depth, part) in name.iter().enumerate() {
        let met = match depth {
            0 if **part == *MODELS || **part == *LIVE => {
                Some("what the mount itself has there".to_owned())
            }
            _ => owner(at)
                .filter(|one| one.fs.lookup(Ino::ROOT, part).is_ok())
                .map(|one| format!("the {} of the model {}", text(part), named(one))),
        };
        if let Some(met) = met {
            return Err(format!("its directory would be in the place of {met}"));
        }
        at = drafts[at].below.get(part).copied().ok_or("its directory is missing")?;
    }
    if let Some(one) = owner(at) {
        return Err(format!("its directory is that of another model as well: {}", named(one)));
    }
    let below = drafts[at].below.iter().filter(|&(_, &draft)| drafts[draft].lives);
    for (part, &below) in below {
        if fs.lookup(Ino::ROOT, part).is_ok() {
            let part = text(part);
            let other = first_below(drafts, below).and_then(owner).map(named).unwrap_or_default();
            return Err(format!(
                "its {part} would be in the place of the models in {part}/: {other}"
            ));
        }
    }
    Ok(at)
}

/// The first directory of a model that is shown, from this one on.
fn first_below(drafts: &[Draft], at: usize) -> Option<usize> {
    let draft = &drafts[at];
    match draft.member {
        Some(_) => Some(at),
        None => draft
            .below
            .values()
            .filter(|&&below| drafts[below].lives)
            .find_map(|&below| first_below(drafts, below)),
    }
}

/// A model in a message, with the file that it is.
fn named(one: &Planted) -> String {
    format!("{} ({})", one.name, one.path.display())
}

/// There is a model in this directory now.
fn mark(drafts: &mut [Draft], mut at: usize) {
    while !drafts[at].lives {
        drafts[at].lives = true;
        at = drafts[at].parent;
    }
}

/// What a directory is shown as.
fn spot(drafts: &[Draft], at: usize) -> Spot {
    match drafts[at].member {
        Some(_) => Spot::In(drafts[at].tree, Node::Dir(Dir::Root)),
        None => Spot::Own(Place::Dir(drafts[at].number)),
    }
}

/// What is shown in a directory, but for a model's own.
fn entries(drafts: &[Draft], at: usize) -> Vec<Entry> {
    let below = drafts[at].below.iter().filter(|&(_, &below)| drafts[below].lives);
    below.map(|(name, &below)| Entry { name: name.clone(), spot: spot(drafts, below) }).collect()
}

/// All directories that are no model's, by number.
fn directories(drafts: &[Draft]) -> HashMap<u32, Directory> {
    let mut all = HashMap::with_capacity(drafts.len() + 1);
    for (at, draft) in drafts.iter().enumerate() {
        let parent = spot(drafts, draft.parent);
        let mut entries = entries(drafts, at);
        if at == 0 {
            entries.push(Entry { name: LIVE.into(), spot: Spot::Own(Place::LIVE) });
            entries.push(Entry { name: MODELS.into(), spot: Spot::Own(Place::Models) });
            entries.sort_by(|a, b| a.name.cmp(&b.name));
        }
        all.insert(draft.number, Directory { parent, entries: entries.into() });
        if at == 0 {
            let live =
                |name: &[u8], live| Entry { name: name.into(), spot: Spot::Own(Place::Live(live)) };
            let entries = [live(b"metrics", Live::Metrics), live(b"status.json", Live::Status)];
            let parent = Spot::Own(Place::ROOT);
            all.insert(Place::LIVE_NUMBER, Directory { parent, entries: entries.into() });
        }
    }
    all
}

/// What `models.json` says of one.
fn row(path: &std::path::Path, directory: &str, model: Result<&WeightFs, &str>) -> Json {
    use std::os::unix::ffi::OsStrExt;
    let path = json::lossy(path.as_os_str().as_bytes());
    match model {
        Ok(fs) => {
            let about = fs.about();
            json!({
                "path": path,
                "directory": directory,
                "format": about["format"],
                "architecture": about["architecture"],
                "tensor_count": about["tensor_count"],
                "nbytes": about["nbytes"],
                "sealed": about["sealed"],
                "trust": about["trust"],
            })
        }
        Err(error) => json!({"path": path, "directory": directory, "error": error}),
    }
}

/// Encoded names are UTF-8.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn joined(names: &[Box<[u8]>]) -> String {
    names.iter().map(|name| text(name)).collect::<Vec<_>>().join("/")
}
