//! Templates of map files: `blk.{i}.attn_v.weight` on one side, a name with the same
//! placeholders on the other. `{i}`, `{j}` and `{e}` are decimal numbers without leading zeros,
//! `{w}` is a segment without a dot, `{rest}` the end; `{{` and `}}` are braces. All of the name
//! must match.

use super::error::show;
use std::borrow::Cow;

/// The placeholders that a `from` template may bind.
const NAMES: [&str; 5] = ["i", "j", "e", "w", "rest"];
const WORD: usize = 3;
const REST: usize = 4;

/// Steps that one match may take: far more than any real name needs, far less than a second.
const MAX_STEPS: u32 = 1_000_000;

/// Placeholders of one text: there are five to be named, a few times each.
pub(super) const MAX_PLACEHOLDERS: usize = 1000;

/// A piece of a `from` template.
#[derive(Debug, PartialEq)]
enum Part {
    Literal(Box<[u8]>),
    Slot(usize),
}

/// What a name must look like.
#[derive(Debug, PartialEq)]
pub(super) struct Template {
    parts: Vec<Part>,
}

/// The text that each placeholder matched.
pub(super) type Bound<'n> = [Option<&'n [u8]>; NAMES.len()];

/// The match was given up: the template is too ambiguous for this name.
#[derive(Debug, PartialEq)]
pub(super) struct TooManySteps;

impl Template {
    pub(super) fn parse(text: &str) -> Result<Template, String> {
        let mut parts = Vec::new();
        for piece in braces(text)? {
            parts.push(match piece {
                Brace::Literal(text) => Part::Literal(text.into_owned().into_bytes().into()),
                Brace::Name(name) => match NAMES.iter().position(|n| *n == name) {
                    Some(slot) => Part::Slot(slot),
                    None => {
                        let name = show(name.as_bytes());
                        return Err(format!(
                            "unknown placeholder {{{name}}}: known are {{i}} {{j}} {{e}} {{w}} {{rest}}"
                        ));
                    }
                },
            });
        }
        let rest = parts.iter().position(|part| *part == Part::Slot(REST));
        if rest.is_some_and(|at| at + 1 != parts.len()) {
            return Err("{rest} may stand only at the end".into());
        }
        Ok(Template { parts })
    }

    /// Whether the template binds this placeholder.
    pub(super) fn slot(&self, name: &str) -> Option<usize> {
        let slot = NAMES.iter().position(|n| *n == name)?;
        self.parts.contains(&Part::Slot(slot)).then_some(slot)
    }

    /// Matches the whole of `name`.
    pub(super) fn matches<'n>(&self, name: &'n [u8]) -> Result<Option<Bound<'n>>, TooManySteps> {
        let mut bound = Bound::default();
        let mut steps = MAX_STEPS;
        Ok(walk(&self.parts, name, &mut bound, &mut steps)?.then_some(bound))
    }
}

/// Longest candidates first; at most five levels deep, since a bound slot is a literal.
fn walk<'n>(
    parts: &[Part],
    mut text: &'n [u8],
    bound: &mut Bound<'n>,
    steps: &mut u32,
) -> Result<bool, TooManySteps> {
    for (at, part) in parts.iter().enumerate() {
        let literal: &[u8] = match part {
            Part::Literal(literal) => literal,
            Part::Slot(slot) => match bound[*slot] {
                Some(text) => text,
                None => {
                    let before = *bound;
                    for len in (1..=longest(*slot, text)).rev() {
                        *steps = steps.checked_sub(1).ok_or(TooManySteps)?;
                        let (here, after) = text.split_at(len);
                        bound[*slot] = Some(here);
                        if walk(&parts[at + 1..], after, bound, steps)? {
                            return Ok(true);
                        }
                        *bound = before;
                    }
                    return Ok(false);
                }
            },
        };
        match text.strip_prefix(literal) {
            Some(after) => text = after,
            None => return Ok(false),
        }
    }
    Ok(text.is_empty())
}

/// The longest text at the start of `text` that a slot could take, in bytes.
fn longest(slot: usize, text: &[u8]) -> usize {
    match slot {
        REST => text.len(),
        WORD => text.iter().position(|&b| b == b'.').unwrap_or(text.len()),
        _ if text.first() == Some(&b'0') => 1,
        _ => text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len()),
    }
}

/// A piece of template text.
pub(super) enum Brace<'t> {
    /// Text for itself, braces no longer doubled.
    Literal(Cow<'t, str>),
    /// The name between `{` and `}`.
    Name(&'t str),
}

/// Cuts template text into literals and placeholders; `{{` and `}}` stand for braces.
pub(super) fn braces(text: &str) -> Result<Vec<Brace<'_>>, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        literal.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after;
        } else if brace == "{" {
            let (name, after) = after.split_once('}').ok_or("{ without }: write {{ for a brace")?;
            if !literal.is_empty() {
                pieces.push(Brace::Literal(std::mem::take(&mut literal).into()));
            }
            pieces.push(Brace::Name(name));
            if pieces.len() > 2 * MAX_PLACEHOLDERS {
                return Err(format!("more than {MAX_PLACEHOLDERS} placeholders"));
            }
            rest = after;
        } else {
            return Err("} without {: write }} for a brace".into());
        }
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Brace::Literal(literal.into()));
    }
    Ok(pieces)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// What the slots took, by name, or `None` without a match.
    fn matched(template: &str, name: &str) -> Option<Vec<(&'static str, String)>> {
        let bound = Template::parse(template).unwrap().matches(name.as_bytes()).unwrap()?;
        let text = |b: &[u8]| String::from_utf8(b.to_vec()).unwrap();
        Some(NAMES.iter().zip(bound).filter_map(|(n, b)| Some((*n, text(b?)))).collect())
    }

    #[test]
    fn numbers_have_no_leading_zeros() {
        let t = "blk.{i}.attn_v.weight";
        assert_eq!(matched(t, "blk.12.attn_v.weight"), Some(vec![("i", "12".into())]));
        assert_eq!(matched(t, "blk.0.attn_v.weight"), Some(vec![("i", "0".into())]));
        assert_eq!(matched(t, "blk.012.attn_v.weight"), None);
        assert_eq!(matched(t, "blk.00.attn_v.weight"), None);
        assert_eq!(matched(t, "blk..attn_v.weight"), None);
        assert_eq!(matched(t, "blk.x.attn_v.weight"), None);
        assert_eq!(matched(t, "blk.1.attn_v.weight.x"), None, "the whole name");
        assert_eq!(matched(t, "xblk.1.attn_v.weight"), None);
    }

    #[test]
    fn a_number_gives_back_digits_that_a_literal_needs() {
        assert_eq!(matched("x{i}5", "x1255"), Some(vec![("i", "125".into())]));
        assert_eq!(matched("x{i}5", "x5"), None);
        let both = matched("{i}{j}", "123").unwrap();
        assert_eq!(both, [("i", "12".into()), ("j", "3".into())]);
    }

    #[test]
    fn words_stop_at_dots_and_rest_takes_all() {
        assert_eq!(matched("{w}.b", "a.b"), Some(vec![("w", "a".into())]));
        assert_eq!(matched("{w}.b", "a.c.b"), None);
        assert_eq!(matched("{w}.b", ".b"), None, "at least one character");
        assert_eq!(matched("a.{rest}", "a.b.c/d"), Some(vec![("rest", "b.c/d".into())]));
        assert_eq!(matched("a.{rest}", "a."), None);
    }

    #[test]
    fn a_placeholder_used_twice_matches_one_text() {
        assert!(matched("{i}.{i}", "4.4").is_some());
        assert!(matched("{i}.{i}", "4.5").is_none());
        assert!(matched("{w}x{w}", "axbx").is_none());
        assert_eq!(matched("{w}x{w}", "axxax1xaxxax1"), Some(vec![("w", "axxax1".into())]));
        assert_eq!(matched("{w}-{w}", "a-a-a-a"), Some(vec![("w", "a-a".into())]));
    }

    #[test]
    fn braces_are_doubled() {
        assert!(matched("a{{i}}", "a{i}").is_some());
        assert!(matched("a{{{i}}}", "a{7}").is_some());
        for bad in ["a{i", "a}b", "{k}", "{}", "{rest}.x", "{ i}"] {
            assert!(Template::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_ambiguous_template_gives_up_instead_of_hanging() {
        let name = "1".repeat(60_000);
        let template = Template::parse("{i}{j}{e}{w}x{rest}").unwrap();
        assert_eq!(template.matches(name.as_bytes()), Err(TooManySteps));
    }
}
