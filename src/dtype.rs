//! Element types: how many elements a block holds and how many bytes it takes.
//!
//! Must not know files, tensors or how GGUF, safetensors and npy spell or number
//! their types beyond the common upper-case name; each format maps its own tags.

/// The size of one block: the smallest run of elements that has whole bytes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Elements in a block, at least 1.
    pub elements: u64,
    /// Bytes of a block, at least 1.
    pub bytes: u64,
}

/// What kind of values a type holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Plain floating-point numbers, of any width.
    Float,
    /// Blocks of quantised numbers with their scales.
    Quantised,
    /// Integers.
    Integer,
    /// Truth values.
    Boolean,
    /// Complex numbers.
    Complex,
}

macro_rules! dtypes {
    ($($variant:ident $name:literal $elements:literal $bytes:literal $kind:ident,)*) => {
        /// Every element type of GGUF (newest ggml) and safetensors (0.8).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs, non_camel_case_types)]
        #[repr(u8)]
        pub enum DType { $($variant,)* }

        impl DType {
            /// All types, in declaration order.
            pub const ALL: &'static [DType] = &[$(DType::$variant,)*];

            /// The upper-case name that both formats' own tools print.
            pub const fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)* }
            }

            /// Elements and bytes of one block.
            pub const fn block(self) -> Block {
                match self { $(DType::$variant => Block { elements: $elements, bytes: $bytes },)* }
            }

            /// What kind of values the type holds.
            pub const fn kind(self) -> Kind {
                match self { $(DType::$variant => Kind::$kind,)* }
            }
        }
    };
}

dtypes! {
    F32 "F32" 1 4 Float,
    F16 "F16" 1 2 Float,
    BF16 "BF16" 1 2 Float,
    F64 "F64" 1 8 Float,
    F8_E4M3 "F8_E4M3" 1 1 Float,
    F8_E5M2 "F8_E5M2" 1 1 Float,
    F8_E8M0 "F8_E8M0" 1 1 Float,
    F8_E4M3FNUZ "F8_E4M3FNUZ" 1 1 Float,
    F8_E5M2FNUZ "F8_E5M2FNUZ" 1 1 Float,
    F6_E2M3 "F6_E2M3" 4 3 Float,
    F6_E3M2 "F6_E3M2" 4 3 Float,
    F4 "F4" 2 1 Float,
    I8 "I8" 1 1 Integer,
    I16 "I16" 1 2 Integer,
    I32 "I32" 1 4 Integer,
    I64 "I64" 1 8 Integer,
    U8 "U8" 1 1 Integer,
    U16 "U16" 1 2 Integer,
    U32 "U32" 1 4 Integer,
    U64 "U64" 1 8 Integer,
    BOOL "BOOL" 1 1 Boolean,
    C64 "C64" 1 8 Complex,
    Q4_0 "Q4_0" 32 18 Quantised,
    Q4_1 "Q4_1" 32 20 Quantised,
    Q5_0 "Q5_0" 32 22 Quantised,
    Q5_1 "Q5_1" 32 24 Quantised,
    Q8_0 "Q8_0" 32 34 Quantised,
    Q8_1 "Q8_1" 32 36 Quantised,
    Q2_K "Q2_K" 256 84 Quantised,
    Q3_K "Q3_K" 256 110 Quantised,
    Q4_K "Q4_K" 256 144 Quantised,
    Q5_K "Q5_K" 256 176 Quantised,
    Q6_K "Q6_K" 256 210 Quantised,
    Q8_K "Q8_K" 256 292 Quantised,
    IQ1_S "IQ1_S" 256 50 Quantised,
    IQ1_M "IQ1_M" 256 56 Quantised,
    IQ2_XXS "IQ2_XXS" 256 66 Quantised,
    IQ2_XS "IQ2_XS" 256 74 Quantised,
    IQ2_S "IQ2_S" 256 82 Quantised,
    IQ3_XXS "IQ3_XXS" 256 98 Quantised,
    IQ3_S "IQ3_S" 256 110 Quantised,
    IQ4_NL "IQ4_NL" 32 18 Quantised,
    IQ4_XS "IQ4_XS" 256 136 Quantised,
    TQ1_0 "TQ1_0" 256 54 Quantised,
    TQ2_0 "TQ2_0" 256 66 Quantised,
    MXFP4 "MXFP4" 32 17 Quantised,
    NVFP4 "NVFP4" 64 36 Quantised,
    Q1_0 "Q1_0" 128 18 Quantised,
    Q2_0 "Q2_0" 64 18 Quantised,
}

impl DType {
    /// The type whose [`DType::name`] is `name`, exactly.
    pub fn from_name(name: &str) -> Option<DType> {
        Self::ALL.iter().copied().find(|d| d.name() == name)
    }

    /// Offset and width, in bytes, of the multi-byte numbers in a block: what a big-endian file
    /// has turned. `None` where nobody defines how the blocks are laid out there.
    pub fn numbers(self) -> Option<&'static [(usize, usize)]> {
        Some(match self {
            DType::Q4_0 | DType::Q8_0 => &[(0, 2)],
            DType::Q4_K => &[(0, 2), (2, 2)],
            DType::Q6_K => &[(208, 2)],
            DType::MXFP4 | DType::NVFP4 => &[],
            _ => match (self.block().elements, self.block().bytes) {
                (1, 1) => &[],
                (1, 2) => &[(0, 2)],
                (1, 4) => &[(0, 4)],
                (1, 8) => &[(0, 8)],
                _ => return None,
            },
        })
    }

    /// Bytes of `elements` elements, or `None` when they do not fill whole blocks
    /// or the product leaves 64 bits.
    pub fn nbytes(self, elements: u64) -> Option<u64> {
        let block = self.block();
        if !elements.is_multiple_of(block.elements) {
            return None;
        }
        (elements / block.elements).checked_mul(block.bytes)
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_round_trip() {
        for &d in DType::ALL {
            assert_eq!(DType::from_name(d.name()), Some(d));
        }
        assert_eq!(DType::from_name("f32"), None);
    }

    #[test]
    fn nbytes_needs_whole_blocks() {
        assert_eq!(DType::Q4_0.nbytes(64), Some(36));
        assert_eq!(DType::Q4_0.nbytes(16), None);
        assert_eq!(DType::F4.nbytes(6), Some(3));
        assert_eq!(DType::F4.nbytes(3), None);
        assert_eq!(DType::F64.nbytes(u64::MAX), None);
        assert_eq!(DType::F32.nbytes(0), Some(0));
    }
}
