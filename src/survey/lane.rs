//! How the bytes of a view are numbers.

use crate::dtype::{DType, Kind};

/// Elements that are worked on at once: as f64 they stay in the first cache.
pub(super) const BLOCK: usize = 2048;

/// The numbers that a run of little-endian bytes holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    /// A byte that is not 0 is true, which counts as 1.
    Bool,
    /// Complex numbers of two F32, by their magnitude.
    Complex,
}

impl Lane {
    /// The lane of a type whose stored values are numbers that F32 does not hold.
    pub(super) fn of(dtype: DType) -> Option<Lane> {
        Some(match dtype {
            DType::F64 => Lane::F64,
            DType::I8 => Lane::I8,
            DType::I16 => Lane::I16,
            DType::I32 => Lane::I32,
            DType::I64 => Lane::I64,
            DType::U8 => Lane::U8,
            DType::U16 => Lane::U16,
            DType::U32 => Lane::U32,
            DType::U64 => Lane::U64,
            DType::BOOL => Lane::Bool,
            DType::C64 => Lane::Complex,
            other => {
                debug_assert!(matches!(other.kind(), Kind::Float | Kind::Quantised));
                return None;
            }
        })
    }

    /// Bytes of an element.
    pub(super) const fn width(self) -> usize {
        match self {
            Lane::I8 | Lane::U8 | Lane::Bool => 1,
            Lane::I16 | Lane::U16 => 2,
            Lane::F32 | Lane::I32 | Lane::U32 => 4,
            Lane::F64 | Lane::I64 | Lane::U64 | Lane::Complex => 8,
        }
    }

    /// What the numbers are called.
    pub(super) const fn kind(self) -> ValueKind {
        match self {
            Lane::F32 | Lane::F64 => ValueKind::Float,
            Lane::Bool => ValueKind::Boolean,
            Lane::Complex => ValueKind::Magnitude,
            _ => ValueKind::Integer,
        }
    }

    /// Whether there are integers that f64 does not hold.
    pub(super) const fn is_wide(self) -> bool {
        matches!(self, Lane::I64 | Lane::U64)
    }

    /// The numbers as f64; integers of more than 53 bits are rounded to nearest even. `out` has
    /// room for as many as `bytes` holds.
    pub(super) fn fill(self, bytes: &[u8], out: &mut [f64]) {
        match self {
            Lane::F32 => each(bytes, out, |b| f32::from_le_bytes(b).into()),
            Lane::F64 => each(bytes, out, f64::from_le_bytes),
            Lane::I8 => each(bytes, out, |b| i8::from_le_bytes(b).into()),
            Lane::I16 => each(bytes, out, |b| i16::from_le_bytes(b).into()),
            Lane::I32 => each(bytes, out, |b| i32::from_le_bytes(b).into()),
            Lane::I64 => each(bytes, out, |b| i64::from_le_bytes(b) as f64),
            Lane::U8 => each(bytes, out, |b| u8::from_le_bytes(b).into()),
            Lane::U16 => each(bytes, out, |b| u16::from_le_bytes(b).into()),
            Lane::U32 => each(bytes, out, |b| u32::from_le_bytes(b).into()),
            Lane::U64 => each(bytes, out, |b| u64::from_le_bytes(b) as f64),
            Lane::Bool => each(bytes, out, |[b]| f64::from(u8::from(b != 0))),
            Lane::Complex => each(bytes, out, |[a, b, c, d, e, f, g, h]| {
                let re = f64::from(f32::from_le_bytes([a, b, c, d]));
                re.hypot(f32::from_le_bytes([e, f, g, h]).into())
            }),
        }
    }

    /// The integers of a wide lane.
    pub(super) fn integers(self, bytes: &[u8]) -> impl Iterator<Item = i128> + '_ {
        let unsigned = self == Lane::U64;
        bytes.as_chunks().0.iter().map(move |&b| match unsigned {
            true => u64::from_le_bytes(b).into(),
            false => i64::from_le_bytes(b).into(),
        })
    }
}

fn each<const N: usize>(bytes: &[u8], out: &mut [f64], number: impl Fn([u8; N]) -> f64) {
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *out = number(*bytes);
    }
}

/// What the numbers of a tensor are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Floating-point numbers, decoded where the tensor is quantised.
    Float,
    /// Integers: least and greatest are exact.
    Integer,
    /// Truth values, as 0 and 1.
    Boolean,
    /// The magnitudes of complex numbers.
    Magnitude,
}

impl ValueKind {
    /// The word in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            ValueKind::Float => "float",
            ValueKind::Integer => "integer",
            ValueKind::Boolean => "boolean",
            ValueKind::Magnitude => "magnitude",
        }
    }
}
