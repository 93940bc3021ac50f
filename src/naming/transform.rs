//! What a converter did to a tensor's values, as data: what must be undone to have the
//! checkpoint's values. Nothing here touches a byte.
//!
//! facts: codes R (rows permuted), A (arithmetic), T (transposed). Changes of name, of shape
//! alone, and slices are not transforms: the catalog applies those itself.

/// The change that turns the served (stored) values into those of the checkpoint.
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
    /// Stored is the transpose of the checkpoint's matrix (GPT-2's Conv1D).
    Transpose,
    /// The values differ, but the metadata does not say how (head count missing or not
    /// fitting the rows): they cannot be undone.
    Unknown,
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
            Transform::Unknown => Some("unknown"),
        }
    }

    /// Whether each value depends on the stored value at its own place alone, so that a
    /// slice may be taken before or after.
    pub const fn is_elementwise(self) -> bool {
        matches!(self, Transform::None | Transform::SubtractOne | Transform::LogNegated)
    }
}
