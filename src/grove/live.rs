//! `.weightfs/` of all models together: sums, the worst that is true of any, and whose it is.

use super::Grove;
use crate::fs::live::Known;
use crate::fs::metrics::{self, Sampled};
use crate::store::{TensorState, Trust};
use crate::view::json;
use serde_json::{Value as Json, json};

/// Bad chunks that are listed.
const LISTED: usize = 1000;

/// `status.json`.
pub(super) fn status(grove: &Grove) -> Vec<u8> {
    let Some(clearing) = &grove.clearing else { return Vec::new() };
    let (mut bad, mut breakers, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut statuses, mut models) = (Vec::new(), Vec::new());
    for tree in grove.trees.iter() {
        let known = tree.fs.known();
        let room = LISTED.saturating_sub(bad.len());
        let Known { status, bad: its, breakers: open } = known;
        bad.extend(its.into_iter().take(room).map(|row| of(&tree.name, row)));
        breakers.extend(open.into_iter().map(|row| of(&tree.name, row)));
        notes.extend(status.notes.iter().cloned());
        models.push(json!({
            "directory": tree.name,
            "state": status.state.name(),
            "trust": status.trust.name(),
            "reads": status.reads,
            "bytes_served": status.bytes_served,
            "mismatches": status.mismatches,
        }));
        statuses.push(status);
    }
    let worst = statuses.iter().map(|status| status.state).reduce(TensorState::worse);
    let least = statuses.iter().map(|status| status.trust).reduce(Trust::weaker);
    let first = statuses.first();
    let sum = |of: fn(&crate::store::Status) -> u64| statuses.iter().map(of).sum::<u64>();
    let started = &clearing.started;
    json::document(&json!({
        "mounted_at": started.mounted_at(),
        "uptime_seconds": started.uptime(),
        "verify": first.map(|status| status.verify.name()),
        "trust": least.map(Trust::name),
        "state": worst.map(TensorState::name),
        "reads": sum(|status| status.reads),
        "bytes_served": sum(|status| status.bytes_served),
        "chunks_checked": sum(|status| status.chunks_checked),
        "mismatches": sum(|status| status.mismatches),
        "retries": sum(|status| status.retries),
        "healed": sum(|status| status.healed),
        "source_changed": statuses.iter().any(|status| status.source_changed > 0),
        "breakers": breakers,
        "bad": bad,
        "rss_bytes": started.memory("VmRSS:"),
        "log": clearing.log,
        "pid": std::process::id(),
        "stalled": started.stalled(),
        "confined": started.confined(),
        "sealed": grove.models().all(|fs| fs.store().is_sealed()),
        "on_corruption": first.map(|status| status.on_corruption.name()),
        "rss_anon_bytes": started.memory("RssAnon:"),
        "notes": notes,
        "models": models,
        "left_out": clearing.left_out.len(),
    }))
}

/// A row with the model that it is of in front.
fn of(model: &str, row: Json) -> Json {
    let mut whole = serde_json::Map::new();
    whole.insert("model".into(), model.into());
    if let Json::Object(row) = row {
        whole.extend(row);
    }
    Json::Object(whole)
}

/// `metrics`: what is a model's has its directory as a label.
pub(super) fn metrics(grove: &Grove) -> String {
    let Some(clearing) = &grove.clearing else { return String::new() };
    let trees = grove.trees.iter();
    let models: Vec<_> =
        trees.map(|tree| Sampled { model: Some(&tree.name), fs: &tree.fs }).collect();
    let more = [
        ("models", "Models that are mounted.", models.len() as u64),
        ("models_left_out", "Models that could not be mounted.", clearing.left_out.len() as u64),
    ];
    metrics::metrics(&clearing.started, &models, &more)
}
