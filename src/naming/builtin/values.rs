//! Which transform undoes what the table says a converter did, or why none does.

use super::super::families::Op;
use super::super::{Mounted, Transform};
use super::Hf;
use crate::dtype::{DType, Kind};
use crate::model::{ByteOrder, Model, elements};
use std::borrow::Cow;

/// The shape in the checkpoint.
pub(super) fn shape(op: Op, stored: &[u64]) -> Cow<'_, [u64]> {
    match (op, stored) {
        (Op::InsertOne, &[d, k]) => vec![d, 1, k].into(),
        (Op::LeadingOne, &[n]) => vec![1, n].into(),
        (Op::Flat | Op::FlatLogNegated, shape) => vec![elements(shape)].into(),
        (Op::Transpose, &[rows, columns]) => vec![columns, rows].into(),
        (_, shape) => shape.into(),
    }
}

/// Why a tensor that has to be computed cannot be, if so.
pub(super) fn check_values(model: &Model, dtype: DType) -> Result<(), String> {
    if !matches!(dtype.kind(), Kind::Float | Kind::Quantised) {
        return Err(format!("is {dtype}, which has no float values to undo a change in"));
    }
    if model.byte_order == ByteOrder::Big && dtype.numbers().is_none() {
        return Err(format!("is {dtype} of a big-endian file, which nobody defines"));
    }
    Ok(())
}

/// Whether a file can have so many bytes, with the header of a .npy in front.
pub(super) fn fits(dtype: DType, shape: &[u64]) -> bool {
    const LONGEST: u64 = i64::MAX as u64 - (1 << 20);
    let count = if shape.contains(&0) {
        Some(0)
    } else {
        shape.iter().try_fold(1u64, |n, d| n.checked_mul(*d))
    };
    count.and_then(|count| dtype.nbytes(count)).is_some_and(|bytes| bytes <= LONGEST)
}

impl Hf<'_> {
    /// What undoes `op` in a tensor of this layer, which is to have this shape.
    pub(super) fn transform(
        &self,
        op: Op,
        layer: u64,
        item: &Mounted<'_>,
        shape: &[u64],
    ) -> Result<Transform, String> {
        let facts = self.facts;
        let transform = match op {
            Op::RopeQ => rope(facts.heads(layer), "head_count", facts.key_length, item),
            Op::RopeK => rope(facts.kv_heads(layer), "head_count_kv", facts.key_length, item),
            Op::Qkv3 => qkv3(facts.heads(layer), item),
            Op::Falcon => falcon(facts.heads(layer), facts.kv_heads(layer), item),
            Op::MinusOne => computed(self.names.model, item, Transform::SubtractOne),
            Op::LogNegated | Op::FlatLogNegated => {
                computed(self.names.model, item, Transform::LogNegated)
            }
            Op::Transpose => match item.shape {
                [_, _] if item.stored.block().elements == 1 => Ok(Transform::Transpose),
                [_, _] => computed(self.names.model, item, Transform::Transpose),
                shape => Err(format!("has shape {shape:?} and cannot be transposed")),
            },
            Op::Same | Op::Split | Op::InsertOne | Op::LeadingOne | Op::Flat | Op::Join(_) => {
                Ok(Transform::None)
            }
        }?;
        // What a former stage has to undo would be lost.
        if transform != Transform::None && item.transform != Transform::None {
            return Err("has been changed by an earlier map".into());
        }
        let dtype =
            transform.served(self.names.model, &self.names.model.tensors[item.source as usize]);
        if !fits(dtype, shape) {
            return Err(format!("would be too long for a file as {dtype}"));
        }
        Ok(transform)
    }
}

fn computed(model: &Model, item: &Mounted<'_>, transform: Transform) -> Result<Transform, String> {
    check_values(model, item.stored).map(|()| transform)
}

/// The rows of a tensor, of which each is whole blocks; `None` where there is nothing to move.
fn rows(item: &Mounted<'_>) -> Result<Option<u64>, String> {
    if item.nbytes == 0 {
        return Ok(None);
    }
    let Some(&rows) = item.shape.first() else {
        return Err("has no rows to put in order".into());
    };
    match item.stored.nbytes(elements(&item.shape[1..])) {
        Some(_) => Ok(Some(rows)),
        None => Err(format!("is {}, of which a row is no whole number of blocks", item.stored)),
    }
}

/// A wrong count of heads may divide the rows too: where the file says how long a head is,
/// both must agree.
fn rope(
    heads: Option<u32>,
    key: &str,
    key_length: Option<u64>,
    item: &Mounted<'_>,
) -> Result<Transform, String> {
    let Some(rows) = rows(item)? else {
        return Ok(Transform::None);
    };
    let heads = heads.ok_or_else(|| format!("has rows out of order, and no {key} says how"))?;
    if !rows.is_multiple_of(2 * u64::from(heads)) {
        return Err(format!("has {rows} rows, which are not pairs for {heads} heads ({key})"));
    }
    if let Some(length) = key_length.filter(|&length| rows / u64::from(heads) != length) {
        return Err(format!(
            "has {rows} rows, which are not {heads} heads ({key}) of {length} (key_length)"
        ));
    }
    Ok(Transform::RopeRows { heads })
}

fn qkv3(heads: Option<u32>, item: &Mounted<'_>) -> Result<Transform, String> {
    let Some(rows) = rows(item)? else {
        return Ok(Transform::None);
    };
    let heads = heads.ok_or("has rows out of order, and no head_count says how")?;
    if !rows.is_multiple_of(3 * u64::from(heads)) {
        return Err(format!("has {rows} rows, which are not 3 for each of {heads} heads"));
    }
    Ok(Transform::Qkv3 { heads })
}

fn falcon(
    heads: Option<u32>,
    kv_heads: Option<u32>,
    item: &Mounted<'_>,
) -> Result<Transform, String> {
    let Some(rows) = rows(item)? else {
        return Ok(Transform::None);
    };
    let Some((heads, kv_heads)) = heads.zip(kv_heads) else {
        return Err("has rows out of order, and no head counts say how".into());
    };
    let groups = u64::from(heads) + 2 * u64::from(kv_heads);
    if !heads.is_multiple_of(kv_heads) || !rows.is_multiple_of(groups) {
        return Err(format!("has {rows} rows, which are not {heads} + 2*{kv_heads} heads"));
    }
    Ok(match kv_heads {
        1 => Transform::None,
        _ => Transform::Falcon { heads, kv_heads },
    })
}
