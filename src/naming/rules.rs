//! One rule of a map file: what names it takes and what becomes of them.
//!
//! A rule is a template or a regular expression for the whole name, and a target, a cut along the
//! first dimension, or a drop. It sees one name and nothing else, and never changes values.

use super::error::{Code, show};
use super::template::{Brace, MAX_PLACEHOLDERS, Template, TooManySteps, braces};
use regex::bytes::{CaptureLocations, Regex, RegexBuilder};

/// A problem of a rule: its kind and what is wrong.
pub(super) type Wrong = (Code, String);

/// Texts that the placeholders or groups of a rule took.
pub(super) type Slots<'n> = Vec<Option<&'n [u8]>>;

/// A checked rule.
#[derive(Debug)]
pub(super) struct Rule {
    matcher: Matcher,
    pub(super) action: Action,
}

#[derive(Debug)]
enum Matcher {
    Template(Template),
    Regex(Regex, CaptureLocations),
}

/// What becomes of a name that a rule takes.
#[derive(Debug)]
pub(super) enum Action {
    Drop,
    Name(Vec<Piece>),
    Split(Vec<Piece>),
}

/// A piece of a `to`.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Piece {
    Literal(Box<[u8]>),
    /// What a placeholder or group took.
    Slot(usize),
    /// The index of a slice.
    Index,
}

/// The members of a rule as written.
#[derive(Debug, Default)]
pub(super) struct Written<'t> {
    pub(super) from: Option<&'t str>,
    pub(super) regex: Option<&'t str>,
    pub(super) to: Option<&'t str>,
    pub(super) split: Option<&'t str>,
    pub(super) drop: bool,
}

impl Rule {
    /// Checks a rule; `budget` is the memory in bytes that its regex may take.
    pub(super) fn new(written: &Written<'_>, budget: usize) -> Result<Rule, Wrong> {
        let rule = |text: &str| (Code::Rule, text.to_owned());
        let placeholder = |text: String| (Code::Placeholder, text);
        let source = match (written.from, written.regex) {
            (Some(from), None) => Source::Template(Template::parse(from).map_err(placeholder)?),
            (None, Some(pattern)) => Source::Regex(compile(pattern, budget)?),
            (None, None) => return Err(rule("needs `from` or `regex`")),
            (Some(_), Some(_)) => return Err(rule("has both `from` and `regex`")),
        };
        let action = match (written.to, written.drop) {
            (Some(to), false) => {
                let pieces = match &source {
                    Source::Template(template) => template_target(to, template, written.split),
                    Source::Regex(regex) => regex_target(to, regex, written.split),
                }
                .map_err(placeholder)?;
                match written.split {
                    Some(_) => Action::Split(pieces),
                    None => Action::Name(pieces),
                }
            }
            (None, true) if written.split.is_some() => {
                return Err(rule("has both `drop` and `split`"));
            }
            (None, true) => Action::Drop,
            (None, false) => return Err(rule("needs `to` or `\"drop\": true`")),
            (Some(_), true) => return Err(rule("has both `to` and `drop`")),
        };
        let matcher = match source {
            Source::Template(template) => Matcher::Template(template),
            Source::Regex(regex) => {
                let locations = regex.capture_locations();
                Matcher::Regex(regex, locations)
            }
        };
        Ok(Rule { matcher, action })
    }

    /// Matches the whole of `name`.
    pub(super) fn matches<'n>(
        &mut self,
        name: &'n [u8],
    ) -> Result<Option<Slots<'n>>, TooManySteps> {
        match &mut self.matcher {
            Matcher::Template(template) => Ok(template.matches(name)?.map(|b| b.to_vec())),
            Matcher::Regex(regex, locations) => {
                if regex.captures_read(locations, name).is_none() {
                    return Ok(None);
                }
                let slots = (0..locations.len())
                    .map(|i| locations.get(i).map(|(from, to)| &name[from..to]));
                Ok(Some(slots.collect()))
            }
        }
    }
}

/// Puts a target of ours together.
pub(super) fn render(pieces: &[Piece], slots: &Slots<'_>, index: u64, out: &mut Vec<u8>) {
    render_within(usize::MAX, pieces, slots, index, out);
}

/// Puts a target together. False when it would be longer than `most` bytes: then `out` holds
/// only its beginning, since a target may repeat what was taken a thousand times.
pub(super) fn render_within(
    most: usize,
    pieces: &[Piece],
    slots: &Slots<'_>,
    index: u64,
    out: &mut Vec<u8>,
) -> bool {
    out.clear();
    for piece in pieces {
        let number;
        let text = match piece {
            Piece::Literal(text) => text,
            Piece::Slot(slot) => slots[*slot].unwrap_or_default(),
            Piece::Index => {
                number = index.to_string();
                number.as_bytes()
            }
        };
        let room = most - out.len();
        out.extend_from_slice(&text[..text.len().min(room)]);
        if text.len() > room {
            return false;
        }
    }
    true
}

enum Source {
    Template(Template),
    Regex(Regex),
}

/// Bytes of a pattern: its syntax tree takes many times as much before its size is looked at.
const MAX_PATTERN: usize = 64 << 10;

/// A pattern that matches whole names only.
fn compile(pattern: &str, budget: usize) -> Result<Regex, Wrong> {
    if pattern.len() > MAX_PATTERN {
        let text = format!("a pattern of {} bytes, more than {MAX_PATTERN}", pattern.len());
        return Err((Code::Regex, text));
    }
    let build = |pattern: &str| {
        RegexBuilder::new(pattern).size_limit(budget).dfa_size_limit(budget).build()
    };
    // On its own first: `a)|(b` must not become legal by what is put around it. A pattern
    // that ends in a comment (flag x) needs the line break, any other must not have one.
    build(pattern)
        .and_then(|_| {
            build(&format!("\\A(?:{pattern})\\z"))
                .or_else(|_| build(&format!("\\A(?:{pattern}\n)\\z")))
        })
        .map_err(|e| {
            let words = match e {
                regex::Error::CompiledTooBig(limit) => {
                    format!("compiled pattern needs more than {limit} bytes")
                }
                other => {
                    let text = other.to_string();
                    let last = text.lines().last().unwrap_or_default();
                    last.trim_start_matches("error: ").to_owned()
                }
            };
            let hint = if words.contains("look-around") {
                "; write an earlier rule that keeps those names instead"
            } else if words.contains("backreferences") {
                "; a placeholder used twice in `from` matches one text"
            } else {
                ""
            };
            (Code::Regex, format!("\"{}\": {words}{hint}", show(pattern.as_bytes())))
        })
}

/// The `to` of a `from`: same placeholders, and that of `split`.
fn template_target(to: &str, from: &Template, split: Option<&str>) -> Result<Vec<Piece>, String> {
    check_split_name(split)?;
    if let Some(split) = split.filter(|name| from.slot(name).is_some()) {
        return Err(format!("{split} of `split` is bound by `from` already"));
    }
    let mut pieces = Vec::new();
    for piece in braces(to)? {
        pieces.push(match piece {
            Brace::Literal(text) => Piece::Literal(text.into_owned().into_bytes().into()),
            Brace::Name(name) if Some(name) == split => Piece::Index,
            Brace::Name(name) => match from.slot(name) {
                Some(slot) => Piece::Slot(slot),
                None => {
                    let name = show(name.as_bytes());
                    return Err(format!("{name} unbound: {{{name}}} of `to` is not in `from`"));
                }
            },
        });
    }
    check_index(split, &pieces)?;
    Ok(pieces)
}

/// The `to` of a `regex`: `${1}`, `${name}`, `$$` for a dollar sign, and, with `split`, `{e}`
/// or `${e}` for the index.
fn regex_target(to: &str, regex: &Regex, split: Option<&str>) -> Result<Vec<Piece>, String> {
    check_split_name(split)?;
    let index = split.map(|name| format!("{{{name}}}"));
    let mut pieces = Vec::new();
    let mut literal = Vec::new();
    let mut rest = to;
    while let Some(next) = rest.chars().next() {
        let piece = if let Some(after) = index.as_deref().and_then(|i| rest.strip_prefix(i)) {
            rest = after;
            Piece::Index
        } else if let Some(after) = rest.strip_prefix("$$") {
            literal.push(b'$');
            rest = after;
            continue;
        } else if let Some(after) = rest.strip_prefix("${") {
            let (name, after) = after.split_once('}').ok_or("${ without }")?;
            rest = after;
            let group = match name.parse::<usize>() {
                Ok(number) => Some(number).filter(|&n| n < regex.captures_len()),
                Err(_) => regex.capture_names().position(|n| n == Some(name)),
            };
            match group {
                Some(group) => Piece::Slot(group),
                None if Some(name) == split => Piece::Index,
                None => {
                    let name = show(name.as_bytes());
                    return Err(format!("{name} unbound: the pattern has no such group"));
                }
            }
        } else if next == '$' {
            return Err("$ in `to`: write ${1} for a group, $$ for a dollar sign".into());
        } else {
            let (c, after) = rest.split_at(next.len_utf8());
            literal.extend_from_slice(c.as_bytes());
            rest = after;
            continue;
        };
        if !literal.is_empty() {
            pieces.push(Piece::Literal(std::mem::take(&mut literal).into()));
        }
        pieces.push(piece);
        if pieces.len() > 2 * MAX_PLACEHOLDERS {
            return Err(format!("`to` has more than {MAX_PLACEHOLDERS} placeholders"));
        }
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal.into()));
    }
    check_index(split, &pieces)?;
    Ok(pieces)
}

/// `split` names one placeholder, by letters only.
fn check_split_name(split: Option<&str>) -> Result<(), String> {
    match split {
        Some(name) if name.is_empty() || !name.bytes().all(|b| b.is_ascii_lowercase()) => {
            let name = show(name.as_bytes());
            Err(format!("`split` is \"{name}\", expected a placeholder name such as \"e\""))
        }
        _ => Ok(()),
    }
}

/// A split whose targets would all have one name.
fn check_index(split: Option<&str>, pieces: &[Piece]) -> Result<(), String> {
    match split {
        Some(name) if !pieces.contains(&Piece::Index) => {
            Err(format!("{{{name}}} of `split` is not in `to`: all slices would have one name"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const BUDGET: usize = 1 << 20;

    fn from(from: &str, to: &str) -> Result<Rule, Wrong> {
        Rule::new(&Written { from: Some(from), to: Some(to), ..Written::default() }, BUDGET)
    }

    fn regex(pattern: &str, to: &str) -> Result<Rule, Wrong> {
        Rule::new(&Written { regex: Some(pattern), to: Some(to), ..Written::default() }, BUDGET)
    }

    fn apply(rule: Result<Rule, Wrong>, name: &str) -> Option<String> {
        let mut rule = rule.unwrap();
        let slots = rule.matches(name.as_bytes()).unwrap()?;
        let mut out = Vec::new();
        match &rule.action {
            Action::Name(pieces) => render(pieces, &slots, 0, &mut out),
            other => panic!("{other:?}"),
        }
        Some(String::from_utf8(out).unwrap())
    }

    #[test]
    fn templates_carry_their_placeholders_over() {
        let rule = || from("blk.{i}.{w}.{rest}", "l.{w}.{i}.{i}.{rest}");
        assert_eq!(apply(rule(), "blk.3.a.b.c"), Some("l.a.3.3.b.c".into()));
        assert_eq!(apply(rule(), "blk.3"), None);
        assert_eq!(apply(from("a", "{{b}}"), "a"), Some("{b}".into()));
    }

    #[test]
    fn regexes_are_anchored_and_fill_groups() {
        let strip = || regex("_orig_mod\\.(.+)", "${1}");
        assert_eq!(apply(strip(), "_orig_mod.module.x.weight"), Some("module.x.weight".into()));
        assert_eq!(apply(strip(), "x._orig_mod.y"), None);
        assert_eq!(apply(regex("a|ab", "x"), "ab"), Some("x".into()), "the whole name decides");
        assert_eq!(apply(regex("a", "x"), "a\n"), None);
        assert_eq!(apply(regex("(?m)^a$", "x"), "a\nb"), None);
        let named = regex("(?P<layer>\\d+)-(b)?(.*)", "$${layer}.${layer}.${2}.${3}");
        assert_eq!(apply(named, "12-c"), Some("${layer}.12..c".into()));
        assert_eq!(apply(regex("(?x) a b # comment", "x"), "ab"), Some("x".into()));
    }

    #[test]
    fn a_target_is_put_together_only_as_far_as_it_may_be_long() {
        let mut rule = regex("(.*)", &"${1}".repeat(1000)).unwrap();
        let slots = rule.matches(b"abc").unwrap().unwrap();
        let Action::Name(pieces) = &rule.action else { panic!() };
        let mut out = Vec::new();
        assert!(!render_within(7, pieces, &slots, 0, &mut out));
        assert_eq!(out, b"abcabca");
        assert!(out.capacity() < 100);
        assert!(render_within(3000, pieces, &slots, 0, &mut out));
        assert_eq!(out.len(), 3000);
    }

    #[test]
    fn rules_without_end_are_refused_and_their_messages_have_one() {
        let long = "x".repeat(100_000);
        for rule in [
            regex("(.*)", &"${1}".repeat(1_000_000)),
            from("{w}", &"{w}".repeat(1_000_000)),
            regex(&long, "x"),
            regex(&format!("(?!{})", &long[..1000]), "x"),
            regex("a", &format!("${{{long}}}")),
            from("a", &format!("{{{long}}}")),
            from(&format!("{{{long}}}"), "a"),
        ] {
            let (_, text) = rule.unwrap_err();
            assert!(text.len() < 1000, "{}", text.len());
        }
    }

    #[test]
    fn unbound_placeholders_are_refused() {
        for (rule, word) in [
            (from("blk.{i}.x", "l.{k}.x"), "k unbound"),
            (from("blk.{i}.x", "l.{w}.x"), "w unbound"),
            (from("blk.{k}.x", "l"), "unknown placeholder {k}"),
            (regex("(a)", "${2}"), "2 unbound"),
            (regex("(a)", "${n}"), "n unbound"),
            (regex("(a)", "$1"), "write ${1}"),
            (regex("(a)", "${1"), "without }"),
        ] {
            let (code, text) = rule.unwrap_err();
            assert_eq!(code, Code::Placeholder);
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn what_regexes_cannot_do_is_said_with_a_hint() {
        let (code, text) = regex("^model(?!\\.visual)", "x").unwrap_err();
        assert_eq!(code, Code::Regex);
        assert!(text.contains("look-around") && text.contains("earlier rule"), "{text}");
        assert!(regex("(a)\\1", "x").unwrap_err().1.contains("backreferences"));
        assert_eq!(regex("a)|(b", "x").unwrap_err().0, Code::Regex);
        let (code, text) = regex("(\\w{500}){500}", "x").unwrap_err();
        assert_eq!(code, Code::Regex);
        assert!(text.contains("more than"), "{text}");
    }

    #[test]
    fn a_rule_has_one_source_and_one_outcome() {
        let (a, b) = (Some("a"), Some("b"));
        let none = Written::default;
        for written in [
            Written { to: b, ..none() },
            Written { from: a, ..none() },
            Written { from: a, regex: a, to: b, ..none() },
            Written { from: a, to: b, drop: true, ..none() },
            Written { from: a, drop: true, split: Some("e"), ..none() },
        ] {
            assert_eq!(Rule::new(&written, BUDGET).unwrap_err().0, Code::Rule, "{written:?}");
        }
        let drop = Rule::new(&Written { from: a, drop: true, ..none() }, BUDGET).unwrap();
        assert!(matches!(drop.action, Action::Drop));
    }

    #[test]
    fn split_binds_its_own_placeholder() {
        let split = |source: &str, to: &str, name: &str| {
            let (from, regex) =
                if source.contains('(') { (None, Some(source)) } else { (Some(source), None) };
            Rule::new(
                &Written { from, regex, to: Some(to), split: Some(name), drop: false },
                BUDGET,
            )
        };
        for (source, to) in
            [("x.{i}", "y.{i}.{e}"), ("x.(.)", "y.${1}.{e}"), ("x.(.)", "y.${1}.${e}")]
        {
            let mut rule = split(source, to, "e").unwrap();
            let slots = rule.matches(b"x.4").unwrap().unwrap();
            let Action::Split(pieces) = &rule.action else { panic!() };
            let mut out = Vec::new();
            render(pieces, &slots, 7, &mut out);
            assert_eq!(out, b"y.4.7");
        }
        for (to, name) in [("y", "e"), ("y.{e}", ""), ("y.{e}", "E"), ("y.{i}", "i")] {
            assert_eq!(split("x.{i}", to, name).unwrap_err().0, Code::Placeholder, "{to} {name}");
        }
    }
}
