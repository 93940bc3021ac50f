//! What file names tell: parts of a split set, pieces of a cut file, downloads that did not
//! finish, indexes.

/// A name of the form `PREFIX-00002-of-00003SUFFIX`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) prefix: &'a [u8],
    /// Counted from 1.
    pub(super) number: u64,
    pub(super) count: u64,
    number_width: usize,
    count_width: usize,
    /// From the dot on, or empty.
    pub(super) suffix: &'a [u8],
}

impl<'a> Part<'a> {
    /// Takes a file name apart; `None` when it has no such form.
    pub(super) fn parse(name: &'a [u8]) -> Option<Part<'a>> {
        const OF: &[u8] = b"-of-";
        let at = name.windows(OF.len()).rposition(|w| w == OF)?;
        let (before, after) = (&name[..at], &name[at + OF.len()..]);
        let digits = after.iter().take_while(|b| b.is_ascii_digit()).count();
        let (count, suffix) = after.split_at(digits);
        let dash = before.iter().rposition(|&b| b == b'-')?;
        let (prefix, number) = (&before[..dash], &before[dash + 1..]);
        if !(suffix.is_empty() || suffix[0] == b'.') {
            return None;
        }
        Some(Part {
            prefix,
            number: decimal(number)?,
            count: decimal(count)?,
            number_width: number.len(),
            count_width: count.len(),
            suffix,
        })
    }

    /// The name of another part of the same set.
    pub(super) fn sibling(&self, number: u64) -> Vec<u8> {
        let (w, cw) = (self.number_width, self.count_width);
        let middle = format!("-{number:0w$}-of-{:0cw$}", self.count);
        [self.prefix, middle.as_bytes(), self.suffix].concat()
    }

    /// The name of the whole set: without what tells its parts apart.
    pub(super) fn set(&self) -> Vec<u8> {
        [self.prefix, self.suffix].concat()
    }

    /// Whether this is how shards of a checkpoint are named: five digits or more, numbers
    /// that make sense.
    pub(super) fn is_shard(&self) -> bool {
        self.number_width >= 5
            && self.count_width >= 5
            && self.count > 1
            && (1..=self.count).contains(&self.number)
    }
}

fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 9 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Whether a download by the hub or by Ollama has not finished writing this file.
pub(super) fn is_unfinished(name: &[u8]) -> bool {
    let stem = match name.iter().rposition(|&b| b == b'-') {
        Some(at) if !name[at + 1..].is_empty() && name[at + 1..].iter().all(u8::is_ascii_digit) => {
            &name[..at]
        }
        _ => name,
    };
    name.ends_with(b".incomplete") || stem.ends_with(b"-partial")
}

/// Whether the name is that of one piece of a file cut to be uploaded: `x.gguf.part1of2`,
/// `x.gguf-split-a`. Unlike parts of a split set, pieces are no files of their own.
pub(super) fn is_piece(name: &[u8]) -> bool {
    let text = String::from_utf8_lossy(name);
    let numbered = text.rsplit_once(".part").and_then(|(_, tail)| tail.split_once("of"));
    let lettered = text.rsplit_once(".gguf-split-").map(|(_, tail)| tail);
    numbered
        .is_some_and(|(a, b)| decimal(a.as_bytes()).is_some() && decimal(b.as_bytes()).is_some())
        || lettered.is_some_and(|tail| {
            (1..=2).contains(&tail.len()) && tail.bytes().all(|b| b.is_ascii_lowercase())
        })
}

/// Whether the name is that of a safetensors index: `model.safetensors.index.json`,
/// `model.safetensors.index.fp16.json`; but not that of such an index's seal.
pub(super) fn is_index(name: &[u8]) -> bool {
    const MIDDLE: &[u8] = b".safetensors.index.";
    name.ends_with(b".json")
        && !name.ends_with(b".weightfs.json")
        && name.windows(MIDDLE.len()).any(|w| w == MIDDLE)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_apart_and_put_together() {
        let part = Part::parse(b"a-b-00002-of-00010.gguf").unwrap();
        assert_eq!((part.prefix, part.suffix), (&b"a-b"[..], &b".gguf"[..]));
        assert_eq!((part.number, part.count), (2, 10));
        assert_eq!(part.sibling(10), b"a-b-00010-of-00010.gguf");
        let part = Part::parse(b"model-00001-of-000163.safetensors").unwrap();
        assert_eq!(part.sibling(163), b"model-00163-of-000163.safetensors");
        assert!(part.is_shard());
        let part = Part::parse(b"x-of-y-1-of-2").unwrap();
        assert_eq!((part.prefix, part.sibling(2)), (&b"x-of-y"[..], b"x-of-y-2-of-2".to_vec()));
        assert!(!part.is_shard());
    }

    #[test]
    fn other_names_are_no_parts() {
        let names: [&[u8]; 9] = [
            b"model.gguf",
            b"-of-",
            b"a-of-2.gguf",
            b"a-1-of-.gguf",
            b"a-1-of-2x.gguf",
            b"a--of-2.gguf",
            b"1-of-2.gguf",
            b"a-1-of-9999999999.gguf",
            b"",
        ];
        for name in names {
            assert_eq!(Part::parse(name), None, "{}", name.escape_ascii());
        }
        assert!(!Part::parse(b"m-00001-of-00001.safetensors").unwrap().is_shard());
        assert!(!Part::parse(b"m-00003-of-00002.safetensors").unwrap().is_shard());
        assert!(!Part::parse(b"m-00000-of-00002.safetensors").unwrap().is_shard());
    }

    #[test]
    fn unfinished_downloads_pieces_and_indexes_are_known_by_name() {
        let unfinished =
            ["x.incomplete", "b.1a2b3c4d.incomplete", "sha256-0f-partial", "s-partial-12"];
        assert!(unfinished.iter().all(|n| is_unfinished(n.as_bytes())));
        let finished = ["partial.gguf", "x-partial.gguf", "x-12", "incomplete", "x-partial-"];
        assert!(!finished.iter().any(|n| is_unfinished(n.as_bytes())));
        let pieces = ["x.gguf.part1of2", "x.part01of10", "m.Q8_0.gguf-split-a"];
        assert!(pieces.iter().all(|n| is_piece(n.as_bytes())));
        let whole = ["x.gguf", "x.partof", "x.part1of2.gguf", "x.gguf-split-a.gguf", "part1of2"];
        assert!(!whole.iter().any(|n| is_piece(n.as_bytes())));
        let indexes = ["model.safetensors.index.json", "m.safetensors.index.fp16.json"];
        assert!(indexes.iter().all(|n| is_index(n.as_bytes())));
        let others = ["pytorch_model.bin.index.json", "index.json", "model.safetensors.json"];
        assert!(!others.iter().any(|n| is_index(n.as_bytes())));
    }
}
