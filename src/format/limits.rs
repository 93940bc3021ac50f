//! What a reader may spend on one file. Counts in a file are claims: each is compared with
//! what is left of the file first, then with these.

/// Caps for one parse. [`Limits::default`] refuses no file that anybody is known to have
/// made and keeps every other one within 256 MiB and about a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Memory that tensors, names, shapes and keys may take.
    pub reserved_bytes: u64,
    /// Tensors in one file. The largest public checkpoints have some 100,000 in all.
    pub tensors: u64,
    /// Metadata keys in one file. Real files have under a hundred.
    pub keys: u64,
    /// Strings and inner arrays that are walked one by one, in one file. The largest
    /// vocabularies have 262,144 tokens and as many merges.
    pub elements: u64,
    /// Bytes read from the file for its header (GGUF), where a jump over something long counts
    /// as what the system reads ahead for it. The largest known headers are near 30 MiB.
    pub header_bytes: u64,
    /// Bytes of a metadata key: the specification's own limit.
    pub key_bytes: u64,
    /// Bytes of a tensor name. ggml allows 63, safetensors any; names past 255 are shown
    /// shortened.
    pub name_bytes: u64,
    /// Bytes of a string that has to be held whole while it is looked at: an element of a
    /// GGUF array, a safetensors metadata value.
    pub string_bytes: u64,
    /// How deep arrays may nest; 1 is an array of numbers. No writer nests at all.
    pub array_depth: u32,
    /// Dimensions of a safetensors tensor (GGUF has a limit of its own, 8). numpy stops at 64.
    pub dimensions: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            reserved_bytes: 128 << 20,
            tensors: 1 << 20,
            keys: 1 << 20,
            elements: 16 << 20,
            header_bytes: 256 << 20,
            key_bytes: 65_535,
            name_bytes: 65_535,
            string_bytes: 8 << 20,
            array_depth: 4,
            dimensions: 65_535,
        }
    }
}

/// Something grew past one of the [`Limits`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {found} is over the limit of {limit}")]
pub struct OverLimit {
    /// What there is too much of, with its unit.
    pub what: &'static str,
    /// How much the file asks for.
    pub found: u64,
    /// How much is allowed.
    pub limit: u64,
}

/// Compares one count with its limit.
pub(crate) fn within(what: &'static str, found: u64, limit: u64) -> Result<(), OverLimit> {
    if found > limit { Err(OverLimit { what, found, limit }) } else { Ok(()) }
}

/// Bytes the allocator keeps beside each allocation, about.
const ALLOCATION: u64 = 16;

/// Memory spent so far, against [`Limits::reserved_bytes`].
#[derive(Debug)]
pub(crate) struct Budget {
    spent: u64,
    limit: u64,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Budget {
        Budget { spent: 0, limit: limits.reserved_bytes }
    }

    /// Before `count` items of type `T` are kept in a vector.
    pub(crate) fn items<T>(&mut self, count: u64) -> Result<(), OverLimit> {
        let size = u64::try_from(size_of::<T>()).unwrap_or(u64::MAX);
        self.take(count.saturating_mul(size))
    }

    /// Before an allocation of `bytes` of its own.
    pub(crate) fn allocation(&mut self, bytes: u64) -> Result<(), OverLimit> {
        self.take(bytes.saturating_add(ALLOCATION))
    }

    fn take(&mut self, bytes: u64) -> Result<(), OverLimit> {
        self.spent = self.spent.saturating_add(bytes);
        within("memory for the header, in bytes", self.spent, self.limit)
    }

    /// Bytes spent so far.
    pub(crate) fn spent(&self) -> u64 {
        self.spent
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_stops_before_it_is_exceeded() {
        let limits = Limits { reserved_bytes: 100, ..Limits::default() };
        let mut budget = Budget::new(&limits);
        assert_eq!(budget.items::<u64>(8), Ok(()));
        assert_eq!(budget.allocation(20), Ok(()));
        assert_eq!(budget.spent(), 100);
        let err = budget.allocation(0).unwrap_err();
        assert_eq!(
            err.to_string(),
            "memory for the header, in bytes: 116 is over the limit of 100"
        );
        assert!(budget.items::<u64>(u64::MAX).is_err());
    }
}
