//! What the user should know although the mount came about.

use crate::cli::engine::{self, Opened};
use crate::cli::exit;
use crate::cli::logfile::Log;
use crate::cli::shell;
use crate::cli::text::{self, plural};
use std::path::Path;
use weightfs::bytes::line::InLine;
use weightfs::store::{OnCorruption, Verify};

/// What is not sealed is checked all the same.
pub(super) const FIRST_USE: &str =
    "what a chunk holds when first read is trusted, later reads are compared with it";

/// Longest warning on stderr, in columns; model.json has them whole.
const LONGEST_SAID: usize = 240;

/// For stderr and the log.
#[derive(Default)]
pub(super) struct Warnings {
    /// For stderr and the log.
    pub(super) said: Vec<String>,
    /// For the log alone: what was too much to be said.
    pub(super) listed: Vec<String>,
}

impl Warnings {
    /// Adds lines of one kind: the first of them are said, then `more` where there are others.
    pub(super) fn add_first(&mut self, most: usize, mut lines: Vec<String>, more: &str) {
        let rest = lines.split_off(most.min(lines.len()));
        self.said.append(&mut lines);
        if !rest.is_empty() {
            self.said.push(format!("{} {more}", rest.len()));
        }
        self.listed.extend(rest);
    }

    /// Each once, also where the log is stderr.
    pub(super) fn tell(&self, log: &Log) {
        for text in &self.said {
            exit::warn(text);
            if !log.is_stderr {
                log::warn!("{text}");
            }
        }
        self.listed.iter().for_each(|text| log::warn!("{text}"));
    }
}

/// Those about a mount of one model.
pub(super) fn of_one(opened: &Opened, model: &Path) -> Warnings {
    let name = model.in_line();
    let (mut said, mut listed) = (Vec::new(), Vec::new());
    match (opened.store.is_sealed(), &opened.unused_seal, opened.verify) {
        (true, _, Verify::Off) => said.push(format!("{name}: verify=off: nothing is checked")),
        (true, ..) => {}
        (false, Some(_), Verify::Off) => said.push(format!(
            "{name}: its seal is ignored (seal=none), and verify=off: nothing is checked"
        )),
        (false, Some(_), _) => {
            said.push(format!("{name}: its seal is ignored (seal=none): {FIRST_USE}"));
        }
        (false, None, Verify::Off) => {
            said.push(format!("{name} is not sealed, and verify=off: nothing is checked"));
        }
        (false, None, _) => {
            let model = shell::word(model);
            said.push(format!("{name} is not sealed: {FIRST_USE} (weightfs seal {model} seals it)"))
        }
    }
    if opened.on_corruption == OnCorruption::Log {
        said.push(format!("{name}: {}", engine::SERVES_DAMAGE));
    }
    let all = of_model(opened);
    match all[..] {
        [] => {}
        [only] if text::width(only) > LONGEST_SAID => {
            let beginning = text::cut(only, LONGEST_SAID);
            said.push(format!("{name}: {beginning} (all of it in model.json)"));
            listed.push(only.clone());
        }
        [only] => said.push(format!("{name}: {only}")),
        _ => {
            let n = plural(all.len(), "warning");
            said.push(format!("{name}: {n}, see model.json in the mount"));
            listed.extend(all.into_iter().cloned());
        }
    }
    Warnings { said, listed }
}

/// What there is to say about the model itself.
pub(super) fn of_model(opened: &Opened) -> Vec<&String> {
    opened
        .model
        .warnings
        .iter()
        .chain(opened.catalog.warnings())
        .chain(opened.warnings.iter().filter(|text| *text != engine::SERVES_DAMAGE))
        .collect()
}
