//! What a converter did to a tensor's values, as data: what is undone to have the
//! checkpoint's values. Nothing here touches a byte.
//!
//! facts: codes R (rows permuted), A (arithmetic), T (transposed), and many-to-one. Changes of
//! name, of shape alone, and slices are not transforms: the catalog applies those itself.

use crate::dtype::DType;
use crate::model::{Model, Tensor};

/// The change that turns stored values into those of the checkpoint. Whoever makes one has
/// checked that the shapes fit. `other` is the index of a second stored tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Transform {
    /// The bytes are the checkpoint's.
    #[default]
    None,
    /// Rows of q or k in ggml's rope order. With `D = rows / heads`, row `h*D + t` of the
    /// checkpoint is stored row `h*D + 2*(t % (D/2)) + t / (D/2)`. `rows % (2*heads) == 0`.
    RopeRows {
        /// Heads that the rows belong to: of queries for q, of keys for k.
        heads: u32,
    },
    /// Fused q, k, v stored as `[3, heads, d]`, in the checkpoint `[heads, 3, d]`
    /// (bloom, gptneox). `rows % (3*heads) == 0`.
    Qkv3 {
        /// Attention heads.
        heads: u32,
    },
    /// Fused q, k, v stored as all q heads, all k heads, all v heads; the checkpoint has, per
    /// key head, its q heads, its k and its v. `heads % kv_heads == 0` and
    /// `rows % (heads + 2*kv_heads) == 0`.
    Falcon {
        /// Query heads.
        heads: u32,
        /// Key and value heads, at least 2: with 1 both layouts are the same.
        kv_heads: u32,
    },
    /// Stored is `w + 1` (norms of gemma and nemotron).
    SubtractOne,
    /// Stored is `a = -exp(A_log)`; the checkpoint has `ln(-a)` (mamba).
    LogNegated,
    /// The last two dimensions are exchanged (GPT-2's Conv1D, gpt-oss' experts).
    Transpose,
    /// Elements of the last dimension taken in turn from this tensor and the other.
    Interleave {
        /// The tensor that has the odd places.
        other: u32,
    },
    /// As [`Transform::Interleave`] of the rows of each plane, the planes then transposed:
    /// two `[E, r, c]` become `[E, c, 2*r]`.
    InterleaveTranspose {
        /// The tensor that has the odd places.
        other: u32,
    },
    /// `[H, L, N]`, each plane transposed, and behind each the plane of the other, `[H, V, L]`
    /// (deepseek's kv_b).
    HeadsJoined {
        /// The tensor with the values.
        other: u32,
    },
    /// The codes of MXFP4 blocks, in the order of elements: `[..., n]` becomes
    /// `[..., n/32, 16]`. With another tensor, rows taken in turn from both.
    Mxfp4Blocks {
        /// The tensor that has the odd rows.
        other: Option<u32>,
    },
    /// The scales of the same: `[..., n/32]`.
    Mxfp4Scales {
        /// The tensor that has the odd rows.
        other: Option<u32>,
    },
}

impl Transform {
    /// The name used in JSON, after what it takes to undo the converter's change.
    pub const fn name(self) -> Option<&'static str> {
        match self {
            Transform::None => None,
            Transform::RopeRows { .. } => Some("unpermute_rope"),
            Transform::Qkv3 { .. } => Some("interleave_qkv"),
            Transform::Falcon { .. } => Some("regroup_falcon_qkv"),
            Transform::SubtractOne => Some("subtract_one"),
            Transform::LogNegated => Some("log_of_negated"),
            Transform::Transpose => Some("transpose"),
            Transform::Interleave { .. } => Some("interleave"),
            Transform::InterleaveTranspose { .. } => Some("interleave_transpose"),
            Transform::HeadsJoined { .. } => Some("join_kv_b"),
            Transform::Mxfp4Blocks { .. } => Some("mxfp4_blocks"),
            Transform::Mxfp4Scales { .. } => Some("mxfp4_scales"),
        }
    }

    /// Whether each value depends on the stored value at its own place alone, so that a
    /// slice may be taken before or after.
    pub const fn is_elementwise(self) -> bool {
        matches!(self, Transform::None | Transform::SubtractOne | Transform::LogNegated)
    }

    /// Whether one stored tensor and one mounted tensor do not have the same elements: several
    /// become one, or one is shown as several over the same bytes.
    pub const fn is_joined(self) -> bool {
        self.other().is_some()
            || matches!(self, Transform::Mxfp4Blocks { .. } | Transform::Mxfp4Scales { .. })
    }

    /// The second stored tensor that values come from.
    pub const fn other(self) -> Option<u32> {
        match self {
            Transform::Interleave { other }
            | Transform::InterleaveTranspose { other }
            | Transform::HeadsJoined { other } => Some(other),
            Transform::Mxfp4Blocks { other } | Transform::Mxfp4Scales { other } => other,
            _ => None,
        }
    }

    /// The type in which `tensor` is served: its own where elements or whole blocks only
    /// change places, F32 where they are computed.
    pub fn served(self, model: &Model, tensor: &Tensor) -> DType {
        let own = tensor.dtype;
        let all = self.other().is_none_or(|other| model.tensors[other as usize].dtype == own);
        match self {
            Transform::None
            | Transform::RopeRows { .. }
            | Transform::Qkv3 { .. }
            | Transform::Falcon { .. } => own,
            Transform::Transpose
            | Transform::Interleave { .. }
            | Transform::InterleaveTranspose { .. }
            | Transform::HeadsJoined { .. }
                if all && own.block().elements == 1 =>
            {
                own
            }
            Transform::Mxfp4Blocks { .. } | Transform::Mxfp4Scales { .. } => DType::U8,
            _ => DType::F32,
        }
    }
}
