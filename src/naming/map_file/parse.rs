//! From the text of a map file to pairs and rules, with every structural error found.

use super::super::error::{Code, MapError, show};
use super::super::rules::{Rule, Written};
use super::super::strict_json::{Raw, Text, string};
use super::{Clock, MapFile, Numbered, Pair, Slice, Target, Unmapped, check_target};
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Rules of one file: thousands of layers of exceptions are a job for `pairs`.
const MAX_RULES: usize = 4096;

/// Pairs of one file, and names in all their lists.
const MAX_PAIRS: usize = 1 << 20;

/// Memory in bytes for the patterns of all regex rules together, and for one of them.
const REGEX_MEMORY: usize = 64 << 20;
const REGEX_MEMORY_EACH: usize = 1 << 20;

/// Dimensions of a slice's shape.
const MAX_DIMS: usize = 64;

/// What `map --like --json` tells of itself beside the pairs: read over.
const REPORT: [&str; 7] = [
    "matched",
    "unmatched_source",
    "unmatched_reference",
    "shape_mismatch",
    "tied",
    "not_restorable",
    "cut",
];

/// What has been found so far.
struct Parser<'t> {
    text: Text<'t>,
    problems: MapError,
    version: bool,
    pairs: HashMap<Cow<'t, str>, Pair<'t>>,
    list_names: usize,
    rules: Vec<Numbered>,
    unmapped: Unmapped,
    /// Where `"values": "hf"` stands.
    values: Option<usize>,
}

impl<'t> MapFile<'t> {
    /// Parses and checks the text of the map file called `label`.
    pub(in super::super) fn parse(label: &str, text: &'t [u8]) -> Result<MapFile<'t>, MapError> {
        let mut problems = MapError::new(label);
        let (text, root) = match Text::parse(text) {
            Ok(parsed) => parsed,
            Err((place, words)) => {
                problems.push_at(Code::Json, || Some(place), words);
                return Err(problems);
            }
        };
        let mut parser = Parser {
            text,
            problems,
            version: false,
            pairs: HashMap::new(),
            list_names: 0,
            rules: Vec::new(),
            unmapped: Unmapped::Keep,
            values: None,
        };
        parser.root(root);
        let Parser { text, problems, pairs, rules, unmapped, values, .. } = parser;
        problems.into_result()?;
        Ok(MapFile {
            text,
            pairs,
            rules,
            unmapped,
            values: values.is_some(),
            uncovered: Vec::new(),
            uncovered_count: 0,
            clock: Clock::new(),
            buffer: Vec::new(),
        })
    }
}

impl<'t> Parser<'t> {
    fn wrong(&mut self, code: Code, at: usize, text: impl Into<String>) {
        let places = self.text;
        self.problems.push_at(code, || Some(places.place(at)), text.into());
    }

    /// The value is not of the kind that belongs here.
    fn expected(&mut self, what: &str, raw: Raw<'t>) {
        let found: String = raw.get().chars().take(40).collect();
        let at = self.text.at(raw);
        self.wrong(Code::Member, at, format!("expected {what}, found {}", show(found.as_bytes())));
    }

    fn string(&mut self, what: &str, raw: Raw<'t>) -> Option<Cow<'t, str>> {
        let text = string(raw);
        if text.is_none() {
            self.expected(what, raw);
        }
        text
    }

    /// Members of an object with a fixed set of keys, each at most once.
    fn object(
        &mut self,
        what: &str,
        known: &[&str],
        raw: Raw<'t>,
        mut each: impl FnMut(&mut Self, &str, Raw<'t>),
    ) {
        let mut seen = vec![false; known.len()];
        let text = self.text;
        let done = text.members(raw, |(at, key, value)| {
            match known.iter().position(|k| *k == key) {
                None => {
                    let known = known.join(", ");
                    let key = show(key.as_bytes());
                    self.wrong(
                        Code::Member,
                        at,
                        format!("unknown member {key} of {what}, known are {known}"),
                    );
                }
                Some(i) if seen[i] => {
                    self.wrong(Code::Member, at, format!("duplicate member {key} of {what}"));
                }
                Some(i) => {
                    seen[i] = true;
                    each(self, &key, value);
                }
            }
            !self.problems.is_hopeless()
        });
        if done.is_none() {
            self.expected(what, raw);
        }
    }

    fn root(&mut self, root: Raw<'t>) {
        let mut known = vec!["weightfs_map", "unmapped", "values", "pairs", "rules"];
        known.extend(REPORT);
        let mut rules_at = None;
        self.object("a map file object", &known, root, |this, key, value| match key {
            "weightfs_map" => {
                this.version = true;
                if value.get() != "1" {
                    let at = this.text.at(value);
                    let found: String = value.get().chars().take(40).collect();
                    let found = show(found.as_bytes());
                    this.wrong(
                        Code::Version,
                        at,
                        format!("weightfs_map is {found}, this program knows version 1"),
                    );
                }
            }
            "unmapped" => match string(value).as_deref() {
                Some("keep") => this.unmapped = Unmapped::Keep,
                Some("drop") => this.unmapped = Unmapped::Drop,
                Some("error") => this.unmapped = Unmapped::Error,
                _ => this.expected("\"keep\", \"drop\" or \"error\" for unmapped", value),
            },
            "values" => match string(value).as_deref() {
                Some("hf") => this.values = Some(this.text.at(value)),
                _ => this.expected("\"hf\" for values", value),
            },
            "pairs" => this.pairs(value),
            "rules" => {
                rules_at = Some(this.text.at(value));
                this.rules(value);
            }
            _ => {}
        });
        if let (Some(_), Some(at)) = (self.values, rules_at) {
            self.wrong(
                Code::Values,
                at,
                "\"values\": \"hf\" goes with pairs alone, not with rules",
            );
        }
        if !self.version && root.get().starts_with('{') {
            let at = self.text.at(root);
            self.wrong(Code::Version, at, "the member \"weightfs_map\": 1 is missing");
        }
    }

    fn pairs(&mut self, raw: Raw<'t>) {
        let text = self.text;
        let done = text.members(raw, |(at, key, value)| {
            if self.problems.is_hopeless() {
                return false;
            }
            if self.pairs.len() >= MAX_PAIRS || self.list_names > MAX_PAIRS {
                self.wrong(Code::Limit, at, format!("more than {MAX_PAIRS} pairs or names"));
                return false;
            }
            let Some(target) = self.target(&key, value) else {
                return true;
            };
            let start = u32::try_from(at).expect("map files are smaller than 4 GiB");
            match self.pairs.entry(key) {
                Entry::Vacant(slot) => {
                    slot.insert(Pair { at: start, used: false, target });
                }
                Entry::Occupied(slot) => {
                    let key = show(slot.key().as_bytes());
                    self.wrong(Code::Member, at, format!("duplicate member {key} of pairs"));
                }
            }
            true
        });
        if done.is_none() {
            self.expected("an object for pairs", raw);
        }
    }

    /// The right side of the pair `source`.
    fn target(&mut self, source: &str, value: Raw<'t>) -> Option<Target<'t>> {
        match value.get().as_bytes().first() {
            Some(b'n') => Some(Target::Drop),
            Some(b'"') => {
                let name = self.string("a name", value)?;
                self.check(source, &name, value);
                Some(Target::Name(name))
            }
            Some(b'[') => {
                let mut slices: Vec<Slice<'t>> = Vec::new();
                let text = self.text;
                let before = self.problems.count();
                text.items(value, |item| {
                    self.list_names += 1;
                    slices.extend(self.slice(source, item));
                    self.list_names <= MAX_PAIRS
                });
                let shaped = slices.iter().filter(|slice| slice.shape.is_some()).count();
                if shaped != 0 && shaped != slices.len() {
                    let at = self.text.at(value);
                    self.wrong(
                        Code::Member,
                        at,
                        "a list has shapes for all of its names or for none",
                    );
                }
                (self.problems.count() == before).then_some(Target::Split(slices))
            }
            _ => {
                self.expected("a name, a list of names or null", value);
                None
            }
        }
    }

    /// One item of a list: a name, or `{"name": ..., "shape": [...]}`.
    fn slice(&mut self, source: &str, item: Raw<'t>) -> Option<Slice<'t>> {
        if item.get() == "null" {
            return Some(Slice { name: None, shape: None });
        }
        if !item.get().starts_with('{') {
            let name = self.string("a name", item)?;
            self.check(source, &name, item);
            return Some(Slice { name: Some(name), shape: None });
        }
        let (mut name, mut shape) = (None, None);
        self.object("a slice", &["name", "shape"], item, |this, key, value| match key {
            "name" => {
                if value.get() == "null" {
                    name = Some(None);
                } else if let Some(text) = this.string("a name", value) {
                    this.check(source, &text, value);
                    name = Some(Some(text));
                }
            }
            _ => match serde_json::from_str::<Vec<u64>>(value.get()) {
                Ok(dims) if dims.len() <= MAX_DIMS => shape = Some(dims.into_boxed_slice()),
                _ => this.expected("a shape: at most 64 dimensions", value),
            },
        });
        match (name, shape) {
            (Some(name), Some(shape)) => Some(Slice { name, shape: Some(shape) }),
            _ => {
                self.expected("a slice with name and shape", item);
                None
            }
        }
    }

    /// Checks a written target; the source's own name is always good.
    fn check(&mut self, source: &str, name: &str, value: Raw<'t>) {
        if name == source {
            return;
        }
        if let Err(why) = check_target(name.as_bytes()) {
            let at = self.text.at(value);
            let (source, name) = (show(source.as_bytes()), show(name.as_bytes()));
            self.wrong(Code::Target, at, format!("{source} -> {name} (pairs): the target {why}"));
        }
    }

    fn rules(&mut self, raw: Raw<'t>) {
        let text = self.text;
        let mut written = Vec::new();
        let mut number = 0;
        let done = text.items(raw, |item| {
            number += 1;
            if number > MAX_RULES {
                let at = text.at(item);
                self.wrong(Code::Limit, at, format!("more than {MAX_RULES} rules"));
                return false;
            }
            written.extend(self.rule(number, item).map(|rule| (number, text.at(item), rule)));
            true
        });
        if done.is_none() {
            self.expected("an array for rules", raw);
        }
        let patterns = written.iter().filter(|(_, _, rule)| rule.regex.is_some()).count();
        let budget = (REGEX_MEMORY / patterns.max(1)).min(REGEX_MEMORY_EACH);
        for (number, at, rule) in written {
            let rule = Written {
                from: rule.from.as_deref(),
                regex: rule.regex.as_deref(),
                to: rule.to.as_deref(),
                split: rule.split.as_deref(),
                drop: rule.drop,
            };
            match Rule::new(&rule, budget) {
                Ok(rule) => self.rules.push(Numbered { at, fired: false, rule }),
                Err((code, why)) => self.wrong(code, at, format!("rule {number}: {why}")),
            }
        }
    }

    fn rule(&mut self, number: usize, item: Raw<'t>) -> Option<Members<'t>> {
        let mut rule = Members::default();
        let before = self.problems.count();
        let what = format!("rule {number}");
        self.object(&what, &["from", "regex", "to", "split", "drop"], item, |this, key, value| {
            let slot = match key {
                "from" => &mut rule.from,
                "regex" => &mut rule.regex,
                "to" => &mut rule.to,
                "split" => &mut rule.split,
                _ => {
                    match value.get() {
                        "true" => rule.drop = true,
                        "false" => {}
                        _ => this.expected("true for drop", value),
                    }
                    return;
                }
            };
            *slot = this.string("a string", value);
        });
        (self.problems.count() == before).then_some(rule)
    }
}

/// A rule's members as written.
#[derive(Default)]
struct Members<'t> {
    from: Option<Cow<'t, str>>,
    regex: Option<Cow<'t, str>>,
    to: Option<Cow<'t, str>>,
    split: Option<Cow<'t, str>>,
    drop: bool,
}
