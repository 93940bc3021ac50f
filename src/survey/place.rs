//! Where in a model a tensor stands, as its name tells: in which layer, and as what.

use std::collections::BTreeMap;

/// Longest number of a layer, in digits: what is longer is no layer.
const DIGITS: usize = 7;

/// Layer and role of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The first segment of the name that is a number.
    pub layer: Option<u32>,
    /// The name with `*` for each segment that is a number: what the layers have in common.
    pub role: Vec<u8>,
}

impl Place {
    /// Of a tensor of this name. Segments end at a dot or a slash.
    pub fn of(name: &[u8]) -> Place {
        let (mut layer, mut role) = (None, Vec::with_capacity(name.len()));
        for segment in name.split_inclusive(|&b| is_border(b)) {
            let end = segment.len() - usize::from(segment.last().is_some_and(|&b| is_border(b)));
            let (word, border) = segment.split_at(end);
            match number(word) {
                Some(n) => {
                    layer = layer.or(Some(n));
                    role.push(b'*');
                }
                None => role.extend(word),
            }
            role.extend(border);
        }
        Place { layer, role }
    }
}

fn is_border(byte: u8) -> bool {
    matches!(byte, b'.' | b'/')
}

fn number(word: &[u8]) -> Option<u32> {
    if word.len() > DIGITS || !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// Something for each place of a model: a row for each role, in the order in which they are met.
#[derive(Clone, Debug)]
pub struct Places<T> {
    rows: Vec<Row<T>>,
    index: BTreeMap<Vec<u8>, usize>,
    /// Roles that found no room.
    more: usize,
    max: usize,
}

/// What is known of a role.
#[derive(Clone, Debug)]
pub struct Row<T> {
    /// As in [`Place`].
    pub role: Vec<u8>,
    /// By layer; without one by `None`.
    pub cells: BTreeMap<Option<u32>, T>,
}

impl<T: Default> Places<T> {
    /// With room for `max` roles.
    pub fn new(max: usize) -> Places<T> {
        Places { rows: Vec::new(), index: BTreeMap::new(), more: 0, max }
    }

    /// The cell of a tensor of this name; `None` when there are too many roles. Tensors whose
    /// names differ in later numbers (experts) share one.
    pub fn cell(&mut self, name: &[u8]) -> Option<&mut T> {
        let Place { layer, role } = Place::of(name);
        let at = match self.index.get(&role) {
            Some(&at) => at,
            None if self.rows.len() == self.max => {
                self.more += 1;
                return None;
            }
            None => {
                self.index.insert(role.clone(), self.rows.len());
                self.rows.push(Row { role, cells: BTreeMap::new() });
                self.rows.len() - 1
            }
        };
        Some(self.rows[at].cells.entry(layer).or_default())
    }

    /// The rows: roles that layers have in common come first.
    pub fn rows(&self) -> impl Iterator<Item = &Row<T>> {
        let layered = |row: &&Row<T>| row.cells.keys().any(Option::is_some);
        let others = self.rows.iter().filter(move |row| !layered(row));
        self.rows.iter().filter(layered).chain(others)
    }

    /// Tensors that found no room.
    pub fn more(&self) -> usize {
        self.more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_the_layer_and_none_is_in_the_role() {
        for (name, layer, role) in [
            ("blk.12.attn_q.weight", Some(12), "blk.*.attn_q.weight"),
            ("model.layers.3.mlp.experts.7.w1", Some(3), "model.layers.*.mlp.experts.*.w1"),
            ("h/0/w", Some(0), "h/*/w"),
            ("token_embd.weight", None, "token_embd.weight"),
            ("0", Some(0), "*"),
            ("", None, ""),
            ("..", None, ".."),
            ("a.99999999999.b", None, "a.99999999999.b"),
            ("layer1.weight", None, "layer1.weight"),
        ] {
            let found = Place::of(name.as_bytes());
            assert_eq!(found, Place { layer, role: role.into() }, "{name}");
        }
    }

    #[test]
    fn experts_share_a_cell_and_roles_have_an_end() {
        let mut places = Places::<u32>::new(2);
        for name in ["e", "l.0.e.0", "l.0.e.1", "l.1.e.0", "x", "y"] {
            if let Some(cell) = places.cell(name.as_bytes()) {
                *cell += 1;
            }
        }
        let rows: Vec<_> = places.rows().map(|row| row.role.as_slice()).collect();
        assert_eq!(rows, [&b"l.*.e.*"[..], b"e"]);
        assert_eq!(places.rows().next().map(|row| row.cells[&Some(0)]), Some(2));
        assert_eq!(places.more(), 2);
    }
}
