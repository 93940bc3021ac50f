//! Values as the checkpoint had them, made from what a converter stored.

use super::rows::Rows;
use super::transposed::Transposed;
use super::{Body, Bytes, Swap, decode, swapped};
use crate::dtype::DType;
use crate::quant::{self, Target};
use crate::store::{ReadFailure, Store};
use std::cell::RefCell;

/// How they are made.
#[derive(Clone, Debug)]
pub enum Remade {
    /// Rows in another order.
    Moved(Moved),
    /// Each value changed.
    Adjusted(Adjusted),
    /// Rows and columns exchanged.
    Transposed(Transposed),
    /// Transposed planes and plain ones in turn.
    Heads(Heads),
    /// Codes or scales of MXFP4 blocks.
    Mxfp4(Mxfp4),
}

/// Rows in another order, then turned little-endian and decoded as a stored tensor's are.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The rows.
    pub rows: Rows,
    /// Their type.
    pub from: DType,
    /// How its blocks are turned little-endian.
    pub swap: Option<Swap>,
    /// The type shown; `None`: the blocks as they are.
    pub to: Option<Target>,
}

/// Arithmetic on each value, in F32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// `w - 1`.
    SubtractOne,
    /// `ln(-w)`: computed in F64, rounded once.
    LogNegated,
}

impl Arithmetic {
    fn apply(self, value: f32) -> f32 {
        match self {
            Arithmetic::SubtractOne => value - 1.0,
            Arithmetic::LogNegated => (-f64::from(value)).ln() as f32,
        }
    }
}

/// Values that are computed.
#[derive(Clone, Debug)]
pub struct Adjusted {
    /// The stored values as F32.
    pub values: Box<Body>,
    /// What is done to each.
    pub arithmetic: Arithmetic,
    /// The type shown.
    pub to: Target,
}

/// Per head a transposed plane, then one of another tensor as it is; both in one type.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The planes that are transposed.
    pub first: Transposed,
    /// Those behind them.
    pub second: Box<Body>,
    /// Heads, at least 1.
    pub heads: u64,
}

/// Codes or scales of MXFP4 blocks as published checkpoints have them.
#[derive(Clone, Debug)]
pub struct Mxfp4 {
    /// The stored blocks: a scale, then codes `k` and `k + 16` in byte `k`.
    pub blocks: Box<Body>,
    /// Whether the scales are shown, else the codes: `2*k` and `2*k + 1` in byte `k`.
    pub scales: bool,
}

/// Bytes of a block of MXFP4, and of the codes in it.
const BLOCK: u64 = 17;
const CODES: u64 = 16;
/// Bytes of values or blocks that are read together.
const PIECE: u64 = 272 << 10;

thread_local! {
    /// What is read before it is changed.
    static PIECES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Remade {
    /// Bytes shown.
    pub fn len(&self) -> u64 {
        match self {
            Remade::Moved(moved) => match moved.to {
                None => moved.rows.len(),
                Some(to) => {
                    let block = moved.from.block();
                    moved.rows.len() / block.bytes * block.elements * to.size() as u64
                }
            },
            Remade::Adjusted(adjusted) => adjusted.values.len() / 4 * adjusted.to.size() as u64,
            Remade::Transposed(transposed) => transposed.len(),
            Remade::Heads(heads) => heads.first.len() + heads.second.len(),
            Remade::Mxfp4(mxfp4) => mxfp4.blocks.len() / BLOCK * mxfp4.unit(),
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Bytes for Remade {
    fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        match self {
            Remade::Moved(Moved { rows, from: dtype, swap, to }) => match (to, swap) {
                (Some(to), swap) => decode(store, rows, *dtype, *swap, *to, from, out),
                (None, Some(swap)) => swapped(store, rows, *swap, from, out),
                (None, None) => rows.read(store, from, out),
            },
            Remade::Adjusted(adjusted) => adjusted.read(store, from, out),
            Remade::Transposed(transposed) => transposed.read(store, from, out),
            Remade::Heads(heads) => heads.read(store, from, out),
            Remade::Mxfp4(mxfp4) => mxfp4.read(store, from, out),
        }
    }
}

/// Reads `body` from `unit * start` on, in pieces of whole units, for `out`, whose bytes come
/// from units of `made` bytes each: `turn` makes those of a piece, skipping so many.
fn by_units(
    store: &Store,
    body: &Body,
    (unit, made): (u64, u64),
    from: u64,
    out: &mut [u8],
    mut turn: impl FnMut(&mut [u8], u64, &mut [u8]),
) -> Result<(), ReadFailure> {
    let mut done = 0;
    while done < out.len() {
        let at = from + done as u64;
        let (first, skip) = (at / made, at % made);
        let wanted = (skip + (out.len() - done) as u64).div_ceil(made);
        let units = wanted.min(PIECE / unit);
        let take = ((units * made - skip) as usize).min(out.len() - done);
        PIECES.with_borrow_mut(|buffer| {
            let length = (units * unit) as usize;
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            let piece = &mut buffer[..length];
            let read = body.read(store, first * unit, piece);
            let whole = read.as_ref().map_or_else(|f| f.good as u64 / unit, |()| units);
            let good = ((whole * made).saturating_sub(skip) as usize).min(take);
            if good > 0 {
                turn(&mut piece[..(whole * unit) as usize], skip, &mut out[done..done + good]);
            }
            read.map_err(|failure| ReadFailure { good: done + good, ..failure })
        })?;
        done += take;
    }
    Ok(())
}

impl Adjusted {
    fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        let (arithmetic, to) = (self.arithmetic, self.to);
        by_units(store, &self.values, (4, to.size() as u64), from, out, |values, skip, out| {
            for value in values.as_chunks_mut::<4>().0 {
                *value = arithmetic.apply(f32::from_le_bytes(*value)).to_le_bytes();
            }
            quant::decode_part(DType::F32, values, to, skip, out)
                .expect("as many values as the bytes need");
        })
    }
}

impl Heads {
    fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        let first = self.first.len() / self.heads;
        let second = self.second.len() / self.heads;
        let mut done = 0;
        while done < out.len() {
            let at = from + done as u64;
            let (head, inside) = (at / (first + second), at % (first + second));
            let left = if inside < first { first } else { first + second } - inside;
            let take = usize::try_from(left).map_or(out.len() - done, |l| l.min(out.len() - done));
            let into = &mut out[done..done + take];
            let read = match inside.checked_sub(first) {
                None => self.first.read(store, head * first + inside, into),
                Some(inside) => self.second.read(store, head * second + inside, into),
            };
            read.map_err(|f| ReadFailure { good: f.good + done, ..f })?;
            done += take;
        }
        Ok(())
    }
}

impl Mxfp4 {
    /// Bytes shown of a block.
    fn unit(&self) -> u64 {
        if self.scales { 1 } else { CODES }
    }

    fn read(&self, store: &Store, from: u64, out: &mut [u8]) -> Result<(), ReadFailure> {
        by_units(store, &self.blocks, (BLOCK, self.unit()), from, out, |blocks, skip, out| {
            let blocks = blocks.as_chunks::<{ BLOCK as usize }>().0;
            if self.scales {
                for (scale, block) in out.iter_mut().zip(blocks) {
                    *scale = block[0];
                }
                return;
            }
            let mut skip = skip as usize;
            let mut rest = out;
            for [_, stored @ ..] in blocks {
                let take = (CODES as usize - skip).min(rest.len());
                let (now, after) = rest.split_at_mut(take);
                now.copy_from_slice(&in_order(stored)[skip..skip + take]);
                (rest, skip) = (after, 0);
            }
        })
    }
}

/// Codes `k` and `k + 16` in byte `k` turned to `2*k` and `2*k + 1`.
fn in_order(stored: &[u8; CODES as usize]) -> [u8; CODES as usize] {
    let mut codes = [0; CODES as usize];
    let (low, high) = codes.split_at_mut(CODES as usize / 2);
    for ((low, high), pair) in low.iter_mut().zip(high).zip(stored.as_chunks::<2>().0) {
        *low = pair[0] & 0xF | pair[1] << 4;
        *high = pair[0] >> 4 | pair[1] & 0xF0;
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_come_in_the_order_of_elements() {
        // Element e has the code e % 16 but for two.
        let mut elements: [u8; 32] = std::array::from_fn(|e| (e * 7 % 16) as u8);
        elements[17] = 15;
        let stored: [u8; 16] = std::array::from_fn(|k| elements[k] | elements[k + 16] << 4);
        let wanted: [u8; 16] = std::array::from_fn(|k| elements[2 * k] | elements[2 * k + 1] << 4);
        assert_eq!(in_order(&stored), wanted);
    }

    #[test]
    fn arithmetic_is_that_of_f32() {
        assert_eq!(Arithmetic::SubtractOne.apply(1.000_000_1), 1.000_000_1f32 - 1.0);
        assert_eq!(Arithmetic::LogNegated.apply(-1.0), 0.0);
        assert_eq!(Arithmetic::LogNegated.apply(-0.0).to_bits(), f32::NEG_INFINITY.to_bits());
        assert!(Arithmetic::LogNegated.apply(2.0).is_nan());
    }
}
