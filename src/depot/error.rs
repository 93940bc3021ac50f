//! Why a name leads to no model: what was looked for, where, and what is there instead.

use crate::bytes::line::InLine;
use crate::source::SourceError;
use std::path::Path;

/// Why a name in a store stands for nothing.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message beside each variant says what its fields are")]
pub enum DepotError {
    #[error("{spec}: not a name in a store: {what}")]
    Name { spec: String, what: String },
    #[error("{spec}: {what}{}", OnALine(there))]
    Absent { spec: String, what: String, there: String },
    #[error("{file}: {what}")]
    Store { file: String, what: String },
    #[error(transparent)]
    Source(#[from] SourceError),
}

impl DepotError {
    /// What is wrong with a file or directory of a store.
    pub(super) fn store(path: &Path, what: impl Into<String>) -> DepotError {
        DepotError::Store { file: show(path), what: what.into() }
    }
}

struct OnALine<'a>(&'a str);

impl std::fmt::Display for OnALine<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\n{}", self.0) }
    }
}

/// A path in a message.
pub(super) fn show(path: &Path) -> String {
    path.in_line().to_string()
}

/// Names in a message.
pub(super) fn shown(bytes: &[u8]) -> String {
    bytes.in_line().to_string()
}

/// Names that are told.
const SHOWN: usize = 8;

/// `WHAT: a, b and 3 more`, those that are most like `wanted` first; empty where there are none.
pub(super) fn nearest(what: &str, wanted: &str, names: Vec<String>) -> String {
    let wanted = wanted.to_lowercase();
    let mut ranked: Vec<(f64, String)> = names
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&wanted, &name.to_lowercase()), name))
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let names: Vec<String> = ranked.into_iter().map(|(_, name)| name).collect();
    match listed(&names) {
        list if list.is_empty() => list,
        list => format!("{what}: {list}"),
    }
}

/// Names with commas; after eight the rest is counted.
pub(super) fn listed(names: &[String]) -> String {
    let list = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => list,
        more => format!("{list} and {more} more"),
    }
}
