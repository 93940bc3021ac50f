//! A family's rows made ready for look-up: numbers in names become `{}`, so that one hash
//! look-up finds what any layer's tensor is.

use super::super::catalog::Names;
use super::super::families::{Family, GGUF_ONLY, Op, Role, Row, SCALES, When};
use super::super::rules::{Piece, Slots};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// What becomes of a name that the table knows.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    /// New name, and what the operation says.
    Rename(Op),
    /// One tensor per index of the first dimension.
    Split,
    /// As `Split`, each slice then cut into halves: the second is called like this.
    GateUp(Box<Known>),
    /// Cut into the rows of q, k and v.
    Qkv(Box<[Known; 3]>),
    /// The other side has no such tensor.
    Drop,
    /// Part of something that the other side has joined; the target is the stem.
    Join(Role),
    /// The other side has joined it with others.
    Part,
    /// Several families would give it several names.
    Ambiguous,
}

/// A known name.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Known {
    /// Numbers of the source name that are part of it: which, and the digits.
    fixed: Vec<(usize, String)>,
    /// The new name; slots are the source's numbers in order.
    pub(super) target: Vec<Piece>,
    pub(super) outcome: Outcome,
    /// Whether the slices of a split are experts.
    pub(super) experts: bool,
}

/// Names with `{}` for numbers, and what becomes of them.
#[derive(Debug, Default)]
pub(super) struct Table {
    map: HashMap<String, Vec<Rc<Known>>>,
    key: String,
}

/// Writes `name` to `key` with `{}` for every segment that is a number, and returns the
/// numbers in order. More than four are no name of ours: then `None`.
fn cut_numbers<'n>(name: &'n str, key: &mut String) -> Option<Slots<'n>> {
    const MAX_NUMBERS: usize = 4;
    key.clear();
    let mut numbers = Vec::new();
    for (i, segment) in name.split('.').enumerate() {
        if i > 0 {
            key.push('.');
        }
        let digits = !segment.is_empty() && segment.bytes().all(|b| b.is_ascii_digit());
        if digits && (segment == "0" || !segment.starts_with('0')) {
            key.push_str("{}");
            numbers.push(Some(segment.as_bytes()));
        } else {
            key.push_str(segment);
        }
    }
    (numbers.len() <= MAX_NUMBERS).then_some(numbers)
}

/// Suffixes that a row speaks for; nothing is written behind an exact name.
fn suffixes(row: &Row) -> &'static [&'static str] {
    if row.gguf.starts_with('=') { &[""] } else { &[".weight", ".bias"] }
}

/// The GGUF side with `@` written out.
fn gguf_stem(stem: &str) -> String {
    stem.trim_start_matches('=').replace('@', "blk.{i}.")
}

/// The Hugging Face side with `@` written out.
fn hf_stem(stem: &str, family: &Family) -> String {
    stem.replace('@', family.layer)
}

/// The operation on a tensor with this suffix: some concern matrices alone.
fn op_for(op: Op, suffix: &str) -> Op {
    match op {
        Op::MinusOne | Op::Transpose | Op::InsertOne if suffix == ".bias" => Op::Same,
        op => op,
    }
}

/// A source template against a target template, both with `{i}` and `{e}`: the key, and what
/// is known but for the outcome.
fn pair(source: &str, target: &str, outcome: Outcome) -> (String, Known) {
    let mut key = String::new();
    let mut letters: Vec<&str> = Vec::new();
    let mut fixed = Vec::new();
    for (i, segment) in source.split('.').enumerate() {
        if i > 0 {
            key.push('.');
        }
        let number = segment.bytes().all(|b| b.is_ascii_digit());
        if number {
            fixed.push((letters.len(), segment.to_owned()));
        }
        if number || segment.starts_with('{') {
            key.push_str("{}");
            letters.push(segment);
        } else {
            key.push_str(segment);
        }
    }
    let mut pieces = Vec::new();
    let mut literal = String::new();
    for (i, segment) in target.split('.').enumerate() {
        if i > 0 {
            literal.push('.');
        }
        if segment.starts_with('{') {
            pieces.push(Piece::Literal(std::mem::take(&mut literal).into_bytes().into()));
            let slot = letters.iter().position(|l| *l == segment);
            pieces.push(slot.map_or(Piece::Index, Piece::Slot));
        } else {
            literal.push_str(segment);
        }
    }
    pieces.push(Piece::Literal(literal.into_bytes().into()));
    let experts = target.contains("experts.{e}");
    (key, Known { fixed, target: pieces, outcome, experts })
}

impl Table {
    /// The rows of a family that hold for a model with these names.
    pub(super) fn gguf_to_hf(family: &Family, names: Names<'_>) -> Table {
        let mut table = Table::default();
        let present = present(family, names);
        let rows: Vec<&Row> = family
            .tables
            .iter()
            .copied()
            .flatten()
            .filter(|row| match row.when {
                When::Always => true,
                When::Has(stem) => present.contains(stem),
                When::HasNot(stem) => !present.contains(stem),
            })
            .collect();
        let known = |row: &Row, suffix: &str| {
            let source = gguf_stem(row.gguf) + suffix;
            let target = hf_stem(row.hf, family);
            match op_for(row.op, suffix) {
                Op::Split => pair(&source, &(target + suffix), Outcome::Split),
                // What is behind the stem depends on the parts.
                Op::Join(role) => pair(&source, &target, Outcome::Join(role)),
                op => pair(&source, &(target + suffix), Outcome::Rename(op)),
            }
        };
        let find = |stem: &str| rows.iter().find(|row| row.gguf == stem);
        for row in &rows {
            for suffix in suffixes(row) {
                let (key, known) = known(row, suffix);
                table.insert(key, known);
            }
            if !row.gguf.starts_with('=') {
                for scale in SCALES {
                    let name = format!("{}.{scale}", gguf_stem(row.gguf));
                    let (key, known) = pair(&name, "", Outcome::Drop);
                    table.insert(key, known);
                }
            }
        }
        for name in GGUF_ONLY {
            let (key, known) = pair(&name.replace("{}", "{i}"), "", Outcome::Drop);
            table.insert(key, known);
        }
        for suffix in [".weight", ".bias"] {
            // Optional fusions of the converter; the parts as the family names them.
            if let (None, Some(q), Some(k), Some(v)) =
                (find("@attn_qkv"), find("@attn_q"), find("@attn_k"), find("@attn_v"))
            {
                let parts = [q, k, v].map(|row| known(row, suffix).1);
                let name = gguf_stem("@attn_qkv") + suffix;
                let (key, known) = pair(&name, "", Outcome::Qkv(Box::new(parts)));
                table.insert(key, known);
            }
            if let (Some(gate), Some(up)) = (find("@ffn_gate_exps"), find("@ffn_up_exps"))
                && gate.op == Op::Split
            {
                let name = gguf_stem("@ffn_gate_up_exps") + suffix;
                let up = Outcome::GateUp(Box::new(known(up, suffix).1));
                let (key, known) = pair(&name, &(hf_stem(gate.hf, family) + suffix), up);
                table.insert(key, known);
            }
        }
        table
    }

    /// The rows of these families read from right to left. A name to which they give
    /// different targets is ambiguous.
    pub(super) fn hf_to_gguf(families: &[&Family]) -> Table {
        let mut table = Table::default();
        for family in families {
            let mut own = Table::default();
            for row in family.tables.iter().copied().flatten() {
                for suffix in suffixes(row) {
                    let hf = hf_stem(row.hf, family) + suffix;
                    let outcome = match row.op {
                        Op::Split | Op::Join(_) => Outcome::Part,
                        op => Outcome::Rename(op_for(op, suffix)),
                    };
                    // Exact rows have their suffix in the GGUF name alone.
                    let (key, known) = pair(&hf, &(gguf_stem(row.gguf) + suffix), outcome);
                    own.insert(key, known);
                }
            }
            table.merge(own);
        }
        table
    }

    /// What is known of a name, and its numbers.
    pub(super) fn find<'n>(&mut self, name: &'n [u8]) -> Option<(Rc<Known>, Slots<'n>)> {
        let name = std::str::from_utf8(name).ok()?;
        let numbers = cut_numbers(name, &mut self.key)?;
        let known = self.map.get(&self.key)?.iter().find(|known| {
            known.fixed.iter().all(|(i, digits)| numbers[*i] == Some(digits.as_bytes()))
        })?;
        Some((Rc::clone(known), numbers))
    }

    /// The first of several rows for one name holds.
    fn insert(&mut self, key: String, known: Known) {
        let list = self.map.entry(key).or_default();
        if !list.iter().any(|other| other.fixed == known.fixed) {
            list.push(Rc::new(known));
        }
    }

    /// Adds another family's table; where both know a name they must agree.
    fn merge(&mut self, other: Table) {
        for (key, list) in other.map {
            let mine = self.map.entry(key).or_default();
            for known in list {
                match mine.iter_mut().find(|m| m.fixed == known.fixed) {
                    None => mine.push(known),
                    Some(m) if m.target == known.target => {}
                    Some(m) => {
                        *m = Rc::new(Known { outcome: Outcome::Ambiguous, ..(**m).clone() });
                    }
                }
            }
        }
    }
}

/// Which of the stems that the family's rows depend on the model has.
fn present(family: &Family, names: Names<'_>) -> HashSet<&'static str> {
    let asked: HashMap<String, &'static str> = family
        .tables
        .iter()
        .copied()
        .flatten()
        .filter_map(|row| match row.when {
            When::Always => None,
            When::Has(stem) | When::HasNot(stem) => Some(stem),
        })
        .map(|stem| (pair(&(gguf_stem(stem) + ".weight"), "", Outcome::Drop).0, stem))
        .collect();
    let mut found = HashSet::new();
    if asked.is_empty() {
        return found;
    }
    let mut key = String::new();
    for item in names.iter() {
        let name = std::str::from_utf8(item.name).ok();
        if name.is_some_and(|name| cut_numbers(name, &mut key).is_some())
            && let Some(stem) = asked.get(&key)
        {
            found.insert(*stem);
        }
    }
    found
}
