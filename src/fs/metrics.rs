//! `.weightfs/metrics`: the numbers of `status.json` as text for Prometheus (exposition format
//! 0.0.4).
//!
//! Every family has its HELP and TYPE, also while it has no samples; no two samples have the
//! same name and labels, whatever the tensors are called.

use super::WeightFs;
use super::live::Started;
use crate::naming::file_stem;
use crate::store::{BadChunk, Part, Status, TensorState};
use crate::view::document::LONGEST_SUFFIX;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// What a family does.
#[derive(Clone, Copy)]
enum Kind {
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
}

/// The text of one snapshot.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Begins a family. Its samples follow.
    fn family(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        let _ = writeln!(self.0, "# HELP weightfs_{name} {help}\n# TYPE weightfs_{name} {kind}");
    }

    /// One sample of the family that was begun last.
    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: u64) {
        let _ = write!(self.0, "weightfs_{name}");
        for (i, (label, text)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{open}{label}=\"{}\"", escaped(text));
        }
        let close = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{close} {value}");
    }

    fn single(&mut self, name: &str, kind: Kind, help: &str, value: u64) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }
}

/// A label's value between quotation marks.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// How many of the listed chunks lie in which part of the model. A tensor is called as the file of
/// its stored name is: no control character is left in that, and two tensors stay two.
fn by_tensor<'a>(
    bad: &[BadChunk],
    name: impl Fn(u32) -> &'a [u8],
) -> BTreeMap<(&'static str, String), u64> {
    let mut counts = BTreeMap::new();
    for chunk in bad {
        let tensor = match chunk.part {
            Part::Tensor(tensor) => file_stem(name(tensor), LONGEST_SUFFIX),
            Part::Header | Part::Padding | Part::Trailing => (&b""[..]).into(),
        };
        let tensor = String::from_utf8_lossy(&tensor).into_owned();
        *counts.entry((super::live::part_name(chunk.part), tensor)).or_insert(0) += 1;
    }
    counts
}

/// A model whose numbers are told.
#[derive(Clone, Copy, Debug)]
pub struct Sampled<'a> {
    /// What it is called among several: the label `model`.
    pub model: Option<&'a str>,
    /// The model.
    pub fs: &'a WeightFs,
}

/// One of them, with what its store knows.
struct Known<'a> {
    model: Option<&'a str>,
    fs: &'a WeightFs,
    status: Status,
}

impl Known<'_> {
    /// A sample of the family that was begun last, of this model.
    fn sample(&self, text: &mut Text, name: &str, labels: &[(&str, &str)], value: u64) {
        let model = self.model.map(|model| ("model", model));
        let labels: Vec<_> = model.into_iter().chain(labels.iter().copied()).collect();
        text.sample(name, &labels, value);
    }
}

/// The text as of now, of a mount of these models. `more` are gauges of the mount.
pub fn metrics(started: &Started, models: &[Sampled<'_>], more: &[(&str, &str, u64)]) -> String {
    let known = models.iter().map(|&Sampled { model, fs }| {
        let status = fs.store().status();
        Known { model, fs, status }
    });
    let models: Vec<Known<'_>> = known.collect();
    let mut text = Text::default();
    text.family("info", Kind::Gauge, "The mount: always 1.");
    for one in &models {
        let info = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("verify", one.status.verify.name()),
            ("trust", one.status.trust.name()),
            ("sealed", if one.fs.store().is_sealed() { "true" } else { "false" }),
            ("on_corruption", one.status.on_corruption.name()),
        ];
        one.sample(&mut text, "info", &info, 1);
    }
    let help = "1 for the state that the mount is in, 0 for the others.";
    text.family("state", Kind::Gauge, help);
    for one in &models {
        for state in TensorState::ALL {
            let is = u64::from(state == one.status.state);
            one.sample(&mut text, "state", &[("state", state.name())], is);
        }
    }
    for &(name, help, value) in more {
        text.single(name, Kind::Gauge, help, value);
    }
    let help = "Requests that have waited for a source for 10 s and more.";
    text.single("stalled_requests", Kind::Gauge, help, started.stalled() as u64);
    of_process(&mut text, started);
    for (name, kind, help, number) in COUNTS {
        text.family(name, kind, help);
        models.iter().for_each(|one| one.sample(&mut text, name, &[], number(&one.status)));
    }
    text.family(
        "tensor_bad_chunks",
        Kind::Gauge,
        "Damaged chunks by tensor, header or padding, of the first thousand.",
    );
    for one in &models {
        let tensors = &one.fs.parts.model.tensors;
        for ((part, tensor), count) in by_tensor(&one.status.bad, |i| &tensors[i as usize].name) {
            let labels = [("part", part), ("tensor", &*tensor)];
            one.sample(&mut text, "tensor_bad_chunks", &labels, count);
        }
    }
    text.0
}

impl WeightFs {
    /// The text as of now.
    pub(super) fn metrics(&self) -> String {
        metrics(&self.started, &[Sampled { model: None, fs: self }], &[])
    }
}

/// A family of one number for each model.
type Count = (&'static str, Kind, &'static str, fn(&Status) -> u64);

const COUNTS: [Count; 9] = [
    ("reads_total", Kind::Counter, "Reads served or failed.", |s| s.reads),
    ("bytes_served_total", Kind::Counter, "Bytes served.", |s| s.bytes_served),
    ("chunks_checked_total", Kind::Counter, "Chunks whose checksum was computed.", |s| {
        s.chunks_checked
    }),
    ("mismatches_total", Kind::Counter, "Chunks that did not match.", |s| s.mismatches),
    ("retries_total", Kind::Counter, "Second looks at a chunk.", |s| s.retries),
    ("healed_total", Kind::Counter, "Chunks that a second look found good.", |s| s.healed),
    ("bad_chunks", Kind::Gauge, "Chunks known to be damaged.", |s| s.bad_chunks),
    ("breakers_open", Kind::Gauge, "Tensors whose breaker is not closed.", |s| {
        s.breakers.len() as u64
    }),
    (
        "sources_changed",
        Kind::Gauge,
        "Source files that were truncated or modified in place.",
        |s| s.source_changed,
    ),
];

/// The families of one number for the whole process.
fn of_process(text: &mut Text, started: &Started) {
    for (name, help, value) in [
        ("start_time_seconds", "When the mount began, as Unix time.", started.mounted_at()),
        ("uptime_seconds", "Seconds since the mount.", started.uptime()),
        (
            "resident_bytes",
            "Resident memory of the daemon, mapped pages of the model included.",
            started.memory("VmRSS:"),
        ),
        (
            "resident_anonymous_bytes",
            "Resident memory of the daemon that is its own.",
            started.memory("RssAnon:"),
        ),
    ] {
        text.single(name, Kind::Gauge, help, value);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn bad(part: Part, chunk: u64) -> BadChunk {
        let tensor = if let Part::Tensor(index) = part { Some(index) } else { None };
        BadChunk {
            tensor,
            part,
            chunk,
            shard: 0,
            source_offset: 0,
            len: 1,
            expected: String::new(),
            found: String::new(),
        }
    }

    #[test]
    fn a_label_cannot_end_before_its_value_does() {
        let mut text = Text::default();
        text.sample("x", &[("a", "q\"b\\c\nd"), ("b", "")], 7);
        assert_eq!(text.0, "weightfs_x{a=\"q\\\"b\\\\c\\nd\",b=\"\"} 7\n");
    }

    #[test]
    fn a_family_without_samples_has_help_and_type() {
        let mut text = Text::default();
        text.family("x_total", Kind::Counter, "Help.");
        text.single("y", Kind::Gauge, "More.", 0);
        let want = "# HELP weightfs_x_total Help.\n# TYPE weightfs_x_total counter\n\
            # HELP weightfs_y More.\n# TYPE weightfs_y gauge\nweightfs_y 0\n";
        assert_eq!(text.0, want);
    }

    #[test]
    fn tensors_that_differ_in_what_cannot_be_shown_stay_two() {
        let names: [&[u8]; 3] = [b"a\xff", b"a\xfe", b"\r\n"];
        let chunks = [0, 0, 1, 2].map(|i| bad(Part::Tensor(i), 0));
        let mut all = chunks.to_vec();
        all.push(bad(Part::Header, 3));
        all.push(bad(Part::Padding, 0));
        all.push(bad(Part::Trailing, 0));
        let counts: Vec<_> = by_tensor(&all, |i| names[i as usize]).into_iter().collect();
        let want = [
            (("header", ""), 1),
            (("padding", ""), 2),
            (("tensor", "%0D%0A"), 1),
            (("tensor", "a%FE"), 1),
            (("tensor", "a%FF"), 2),
        ];
        assert_eq!(counts, want.map(|((part, name), n)| ((part, name.to_owned()), n)));
        let long = [b'x'; 1000];
        let counts = by_tensor(&[bad(Part::Tensor(0), 0)], |_| &long);
        assert!(counts.keys().all(|(_, name)| name.len() <= 255));
    }
}
