//! `.weightfs/metrics`: the numbers of `status.json` as text for Prometheus (exposition format
//! 0.0.4).
//!
//! Every family has its HELP and TYPE, also while it has no samples; no two samples have the
//! same name and labels, whatever the tensors are called.

use super::WeightFs;
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

impl WeightFs {
    /// The text as of now.
    pub(super) fn metrics(&self) -> String {
        let store = &self.parts.store;
        let status = store.status();
        let mut text = Text::default();
        text.family("info", Kind::Gauge, "The mount: always 1.");
        let sealed = if store.is_sealed() { "true" } else { "false" };
        let info = [
            ("version", env!("CARGO_PKG_VERSION")),
            ("verify", self.parts.verify.name()),
            ("trust", status.trust.name()),
            ("sealed", sealed),
            ("on_corruption", status.on_corruption.name()),
        ];
        text.sample("info", &info, 1);
        text.family(
            "state",
            Kind::Gauge,
            "1 for the state that the mount is in, 0 for the others.",
        );
        for state in TensorState::ALL {
            let is = u64::from(state == status.state);
            text.sample("state", &[("state", state.name())], is);
        }
        self.counts(&mut text, &status);
        text.family(
            "tensor_bad_chunks",
            Kind::Gauge,
            "Damaged chunks by tensor, header or padding, of the first thousand.",
        );
        let tensors = &self.parts.model.tensors;
        for ((part, tensor), count) in by_tensor(&status.bad, |i| &tensors[i as usize].name) {
            let labels = [("part", part), ("tensor", &tensor)];
            text.sample("tensor_bad_chunks", &labels, count);
        }
        text.0
    }

    /// The families of one number each.
    fn counts(&self, text: &mut Text, status: &Status) {
        use Kind::{Counter, Gauge};
        let started = &self.started;
        for (name, kind, help, value) in [
            ("start_time_seconds", Gauge, "When the mount began, as Unix time.", started.at()),
            ("uptime_seconds", Gauge, "Seconds since the mount.", started.uptime()),
            ("reads_total", Counter, "Reads served or failed.", status.reads),
            ("bytes_served_total", Counter, "Bytes served.", status.bytes_served),
            (
                "chunks_checked_total",
                Counter,
                "Chunks whose checksum was computed.",
                status.chunks_checked,
            ),
            ("mismatches_total", Counter, "Chunks that did not match.", status.mismatches),
            ("retries_total", Counter, "Second looks at a chunk.", status.retries),
            ("healed_total", Counter, "Chunks that a second look found good.", status.healed),
            ("bad_chunks", Gauge, "Chunks known to be damaged.", status.bad_chunks),
            (
                "breakers_open",
                Gauge,
                "Tensors whose breaker is not closed.",
                status.breakers.len() as u64,
            ),
            (
                "sources_changed",
                Gauge,
                "Source files that were truncated or modified in place.",
                status.source_changed,
            ),
            (
                "resident_bytes",
                Gauge,
                "Resident memory of the daemon, mapped pages of the model included.",
                started.memory("VmRSS:"),
            ),
            (
                "resident_anonymous_bytes",
                Gauge,
                "Resident memory of the daemon that is its own.",
                started.memory("RssAnon:"),
            ),
        ] {
            text.single(name, kind, help, value);
        }
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
