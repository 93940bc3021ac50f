//! Tensors that a converter cut out of one, or laid out otherwise than one stored tensor can
//! be renamed to: deepseek's kv_b and the experts of gpt-oss (cut or joined by llama.cpp's
//! converter).

use super::super::error::show;
use super::super::families::Role;
use super::super::rules::{Slots, render};
use super::super::stage::Out;
use super::super::{Mounted, Transform};
use super::table::{Known, Outcome, Table};
use super::values::{check_values, fits};
use super::{Hf, Names, TABLE};
use crate::dtype::DType;
use crate::model::elements;
use std::collections::HashMap;

/// Codes in a block of MXFP4, and their bytes.
const BLOCK: u64 = 32;
const BLOCK_CODES: u64 = 16;

/// Where the tensors are that may be joined, by name.
#[derive(Debug, Default)]
pub(super) struct Partners(HashMap<Box<[u8]>, usize>);

impl Partners {
    pub(super) fn new(table: &mut Table, names: Names<'_>) -> Partners {
        let mut found = HashMap::new();
        for (index, item) in names.iter().enumerate() {
            let known = table.find(item.name);
            let joins = known.is_some_and(|(known, _)| matches!(known.outcome, Outcome::Join(_)));
            if joins || item.name.ends_with(b".attn_kv_b.weight") {
                found.insert(item.name.into(), index);
            }
        }
        Partners(found)
    }
}

/// What the first of a pair, or a tensor alone, becomes.
struct Joined {
    /// Behind the stem in the table, shape, and how it is made.
    parts: Vec<(&'static str, Vec<u64>, Transform)>,
}

impl Hf<'_> {
    /// A tensor of which the table says that it is a part.
    pub(super) fn join(
        &mut self,
        role: Role,
        known: &Known,
        numbers: &Slots<'_>,
        item: &Mounted<'_>,
        out: &mut Out<'_>,
    ) {
        let joined = match self.joined(role, item) {
            Ok(joined) => joined,
            Err(why) => {
                render(&known.target, numbers, 0, &mut self.buffer);
                let whole = show(&self.buffer);
                return self.keep(item, &format!("is part of {whole}, but {why}"), out);
            }
        };
        if role.is_second() {
            return out.absorb();
        }
        for (end, shape, transform) in joined.parts {
            render(&known.target, numbers, 0, &mut self.buffer);
            self.buffer.extend(end.as_bytes());
            out.part(TABLE, item, &self.buffer, &shape, transform);
        }
    }

    /// What the pair that `item` belongs to becomes; the same for both.
    fn joined(&self, role: Role, item: &Mounted<'_>) -> Result<Joined, String> {
        let Some((first, second)) = role.pair() else {
            return self.alone(item);
        };
        let (own, partner) = if role.is_second() { (second, first) } else { (first, second) };
        let other = self.named(item.name, own, partner)?;
        let (first, second) = if role.is_second() { (&other, item) } else { (item, &other) };
        self.is_whole(first)?;
        self.is_whole(second)?;
        match role {
            Role::Keys | Role::Values => self.keys_and_values(first, second),
            _ => self.gate_and_up(first, second),
        }
    }

    /// The tensor that is called like `name`, with `to` for `from`.
    fn named(&self, name: &[u8], from: &str, to: &str) -> Result<Mounted<'_>, String> {
        // Names in the table are UTF-8.
        let name = String::from_utf8_lossy(name).replacen(from, to, 1);
        let index = self.partners.0.get(name.as_bytes());
        index.map(|&i| self.names.get(i)).ok_or_else(|| format!("there is no {name}"))
    }

    fn is_whole(&self, item: &Mounted<'_>) -> Result<(), String> {
        let stored = &self.names.model.tensors[item.source as usize];
        let whole = item.extent == stored.extent
            && *item.shape == *stored.shape
            && item.transform == Transform::None;
        if whole { Ok(()) } else { Err(format!("{} is not all of its tensor", show(item.name))) }
    }

    /// Values of both can be had, or their elements moved as they are.
    fn can_be_made(&self, all: &[&Mounted<'_>]) -> Result<(), String> {
        let first = all[0].stored;
        if first.block().elements == 1 && all.iter().all(|item| item.stored == first) {
            return Ok(());
        }
        for item in all {
            let fault = check_values(self.names.model, item.stored);
            fault.map_err(|why| format!("{} {why}", show(item.name)))?;
        }
        Ok(())
    }

    /// One tensor, if a file can have it.
    fn one(
        &self,
        item: &Mounted<'_>,
        end: &'static str,
        shape: Option<Vec<u64>>,
        transform: Transform,
    ) -> Result<Joined, String> {
        let model = self.names.model;
        let dtype = transform.served(model, &model.tensors[item.source as usize]);
        match shape.filter(|shape| fits(dtype, shape)) {
            Some(shape) => Ok(Joined { parts: vec![(end, shape, transform)] }),
            None => Err("it would be too long for a file".into()),
        }
    }

    fn keys_and_values(&self, keys: &Mounted<'_>, values: &Mounted<'_>) -> Result<Joined, String> {
        if self.named(keys.name, "attn_k_b", "attn_kv_b").is_ok() {
            return Err("the file has that whole, too".into());
        }
        let (&[heads, rank, n], &[of_heads, v, of_rank]) = (keys.shape, values.shape) else {
            return Err("its shape is not of heads".into());
        };
        if (heads, rank) != (of_heads, of_rank) {
            let (a, b) = (keys.shape, values.shape);
            return Err(format!("the shapes {a:?} and {b:?} do not fit"));
        }
        self.can_be_made(&[keys, values])?;
        let rows = n.checked_add(v).and_then(|rows| rows.checked_mul(heads));
        let shape = rows.map(|rows| vec![rows, rank]);
        self.one(keys, ".weight", shape, Transform::HeadsJoined { other: values.source })
    }

    fn gate_and_up(&self, gate: &Mounted<'_>, up: &Mounted<'_>) -> Result<Joined, String> {
        if gate.shape != up.shape {
            let (a, b) = (gate.shape, up.shape);
            return Err(format!("the shapes {a:?} and {b:?} do not fit"));
        }
        self.check_experts(gate)?;
        let other = up.source;
        if gate.name.ends_with(b".bias") {
            let &[experts, rows] = gate.shape else {
                return Err("its shape is not one of experts".into());
            };
            self.can_be_made(&[gate, up])?;
            let shape = rows.checked_mul(2).map(|rows| vec![experts, rows]);
            return self.one(gate, "_bias", shape, Transform::Interleave { other });
        }
        let &[experts, rows, columns] = gate.shape else {
            return Err("its shape is not one of experts".into());
        };
        let Some(rows) = rows.checked_mul(2) else {
            return Err("it would be too long for a file".into());
        };
        if (gate.stored, up.stored) == (DType::MXFP4, DType::MXFP4) {
            return Ok(in_blocks(&[experts, rows], columns, Some(other)));
        }
        self.can_be_made(&[gate, up])?;
        let transform = Transform::InterleaveTranspose { other };
        self.one(gate, "", Some(vec![experts, columns, rows]), transform)
    }

    /// gpt-oss' down: its bias is as it is.
    fn alone(&self, item: &Mounted<'_>) -> Result<Joined, String> {
        self.check_experts(item)?;
        if item.name.ends_with(b".bias") {
            return self.one(item, "_bias", Some(item.shape.to_vec()), Transform::None);
        }
        self.is_whole(item)?;
        let &[experts, rows, columns] = item.shape else {
            return Err("its shape is not one of experts".into());
        };
        if item.stored == DType::MXFP4 {
            return Ok(in_blocks(&[experts, rows], columns, None));
        }
        self.can_be_made(&[item])?;
        self.one(item, "", Some(vec![experts, columns, rows]), Transform::Transpose)
    }

    fn check_experts(&self, item: &Mounted<'_>) -> Result<(), String> {
        match (self.facts.expert_count, item.shape.first()) {
            (Some(count), Some(&found)) if count != found => {
                Err(format!("it has {found} experts, the metadata says {count}"))
            }
            _ => Ok(()),
        }
    }
}

/// The layout of published checkpoints: codes and scales apart. Both are smaller than what is
/// stored, of one tensor or two.
fn in_blocks(lead: &[u64], columns: u64, other: Option<u32>) -> Joined {
    let scales = [lead, &[columns / BLOCK]].concat();
    let blocks = [&scales[..], &[BLOCK_CODES]].concat();
    debug_assert!(elements(&blocks) >= elements(&scales));
    Joined {
        parts: vec![
            ("_blocks", blocks, Transform::Mxfp4Blocks { other }),
            ("_scales", scales, Transform::Mxfp4Scales { other }),
        ],
    }
}
