//! `.weightfs/` of all models together: sums, the worst that is true of any, and whose it is.

use super::Grove;
use crate::fs::live::{Known, Metric, counters};
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
    for tree in grove.trees.iter().flatten() {
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

/// `metrics`, in Prometheus' text format: what is a model's has its directory as a label.
pub(super) fn metrics(grove: &Grove) -> String {
    let mut text = String::new();
    let Some(clearing) = &grove.clearing else { return text };
    for (metric, value) in clearing.started.metrics() {
        metric.write(&mut text, [("", value)]);
    }
    let trees: Vec<_> = grove.trees.iter().flatten().collect();
    let shown = Metric::gauge("models", "Models that are mounted.");
    shown.write(&mut text, [("", trees.len() as u64)]);
    let missing = Metric::gauge("models_left_out", "Models that could not be mounted.");
    missing.write(&mut text, [("", clearing.left_out.len() as u64)]);
    let labels: Vec<String> = trees.iter().map(|tree| label(&tree.name)).collect();
    let values: Vec<_> = trees.iter().map(|tree| counters(&tree.fs.store().status())).collect();
    let Some(first) = values.first() else { return text };
    for (i, (metric, _)) in first.iter().enumerate() {
        let each = labels.iter().zip(&values);
        metric.write(&mut text, each.map(|(label, values)| (label.as_str(), values[i].1)));
    }
    text
}

/// `{model="NAME"}`, the name as the format has it.
fn label(name: &str) -> String {
    let name = name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{{model=\"{name}\"}}")
}
