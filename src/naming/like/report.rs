//! What a derivation of names found, and what it did not.

use super::super::error::{Code, MapError, show, show_list};
use super::super::stage::MAX_LISTED;

/// Names that one line of an error lists.
const MAX_IN_ERROR: usize = 8;

/// Notes about templates that nothing tells apart.
const MAX_NOTES: usize = 20;

/// A tensor whose name has a partner of another shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Its name here, before the reference was asked.
    pub source: Box<[u8]>,
    /// The partner's name.
    pub reference: Box<[u8]>,
    /// The shape it is served with.
    pub source_shape: Box<[u64]>,
    /// The partner's shape.
    pub reference_shape: Box<[u64]>,
}

/// How like a model is to a reference. All names are in tensor order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Likeness {
    /// What messages call the reference.
    pub(super) reference: String,
    /// Names of the reference that are served.
    pub matched: Vec<Box<[u8]>>,
    /// Names of this model (before the reference was asked) that the reference has not.
    pub unmatched_source: Vec<Box<[u8]>>,
    /// Names of the reference that are missing here.
    pub unmatched_reference: Vec<Box<[u8]>>,
    /// Names that agree where shapes do not.
    pub shape_mismatch: Vec<Mismatch>,
    /// Names of the reference that are its embedding again, as they are here.
    pub tied: Vec<Box<[u8]>>,
    /// Names of the reference that converters leave out: buffers, poolers, layers for
    /// multi-token prediction, scales of a quantisation that is not this model's.
    pub not_restorable: Vec<Box<[u8]>>,
    /// Names that are served with fewer rows than the reference has, as converters cut them.
    pub cut: Vec<Box<[u8]>>,
    /// What might help somebody who finishes the map by hand.
    pub notes: Vec<String>,
}

impl Likeness {
    pub(super) fn new(reference: &str) -> Likeness {
        Likeness { reference: reference.into(), ..Likeness::default() }
    }

    /// Whether every name of the reference that can be served is, with its shape.
    pub fn is_complete(&self) -> bool {
        self.unmatched_reference.is_empty() && self.shape_mismatch.is_empty()
    }

    /// The error of a mount that would lack names of the reference.
    pub fn check(&self) -> Result<(), MapError> {
        if self.is_complete() {
            return Ok(());
        }
        let mut error = MapError::new(format!("like={}", self.reference));
        let (missing, wrong) = (&self.unmatched_reference, &self.shape_mismatch);
        if !missing.is_empty() {
            let listed = list(missing, MAX_IN_ERROR);
            let text =
                format!("{} of the reference without a tensor here: {listed}", names(missing));
            error.push(Code::Unmatched, text);
        }
        if !wrong.is_empty() {
            let mut listed: Vec<String> =
                wrong.iter().take(MAX_IN_ERROR).map(ToString::to_string).collect();
            if wrong.len() > MAX_IN_ERROR {
                listed.push(format!("and {} more", wrong.len() - MAX_IN_ERROR));
            }
            error.push(Code::Shape, format!("names agree, shapes do not: {}", listed.join("; ")));
        }
        if !self.unmatched_source.is_empty() {
            let ours = &self.unmatched_source;
            let listed = list(ours, MAX_IN_ERROR);
            let text = format!("{} here without one in the reference: {listed}", names(ours));
            error.push(Code::Unmatched, text);
        }
        Err(error)
    }

    /// What a user should know although the names are served.
    pub(super) fn warn(&self, warnings: &mut Vec<String>) {
        let reference = &self.reference;
        let mut warn = |names: &[Box<[u8]>], why: &str| {
            if !names.is_empty() {
                let listed = list(names, MAX_LISTED);
                warnings.push(format!("like={reference}: {why}: {listed}"));
            }
        };
        warn(&self.unmatched_source, "the reference has no such tensors, names kept");
        warn(&self.not_restorable, "the reference also has, and this model cannot give");
        warn(&self.cut, "fewer rows than the reference has, as converters cut them");
    }

    /// Remembers templates of one class that nothing tells apart.
    pub(super) fn note_ambiguous(&mut self, ours: &[String], theirs: &[String]) {
        if self.notes.len() >= MAX_NOTES {
            return;
        }
        let side = |names: &[String]| {
            show_list(names.iter().map(String::as_bytes), names.len(), MAX_IN_ERROR)
        };
        let text =
            format!("same shapes, nothing tells which is which: {} | {}", side(ours), side(theirs));
        self.notes.push(format!("like={}: {text}", self.reference));
    }
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Mismatch { source, reference, source_shape, reference_shape } = self;
        write!(f, "{} {source_shape:?}, {} {reference_shape:?}", show(source), show(reference))
    }
}

fn list(names: &[Box<[u8]>], max: usize) -> String {
    show_list(names.iter().map(|name| &**name), names.len(), max)
}

/// `1 name`, `7 names`.
fn names(list: &[Box<[u8]>]) -> String {
    format!("{} {}", list.len(), if list.len() == 1 { "name" } else { "names" })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<Box<[u8]>> {
        (0..count).map(|i| format!("n{i}").into_bytes().into()).collect()
    }

    #[test]
    fn the_error_names_all_lists_in_three_lines() {
        let likeness = Likeness {
            unmatched_source: names(1),
            unmatched_reference: names(10),
            shape_mismatch: vec![Mismatch {
                source: b"a".as_slice().into(),
                reference: b"m.a".as_slice().into(),
                source_shape: [4, 2].into(),
                reference_shape: [5, 2].into(),
            }],
            ..Likeness::new("r.gguf")
        };
        assert_eq!(
            likeness.check().unwrap_err().to_string(),
            "map like=r.gguf: E_UNMATCHED 10 names of the reference without a tensor here: n0, n1, \
             n2, n3, n4, n5, n6, n7 and 2 more\n  E_SHAPE names agree, shapes do not: a [4, 2], \
             m.a [5, 2]\n  E_UNMATCHED 1 name here without one in the reference: n0"
        );
    }

    #[test]
    fn what_is_more_here_is_a_warning() {
        let likeness = Likeness { unmatched_source: names(2), ..Likeness::new("r") };
        assert!(likeness.check().is_ok());
        let mut warnings = Vec::new();
        likeness.warn(&mut warnings);
        assert_eq!(warnings, ["like=r: the reference has no such tensors, names kept: n0, n1"]);
    }
}
