//! What an input may claim: the property "memory within a small multiple of the input" is
//! asserted of the allocator, not of what the code says of itself. libFuzzer's own limit of
//! an allocation needs a sanitizer, and its limit of resident memory looks once a second.
//!
//! The count is of the whole process: one input at a time.

use peak_alloc::PeakAlloc;

#[global_allocator]
static CLAIMED: PeakAlloc = PeakAlloc;

/// Runs `act`, which may claim `most` bytes at a time beside what is claimed already.
pub(crate) fn within<T>(most: usize, act: impl FnOnce() -> T) -> T {
    let before = CLAIMED.current_usage();
    CLAIMED.reset_peak_usage();
    let done = act();
    let took = CLAIMED.peak_usage().saturating_sub(before);
    assert!(took <= most, "{took} bytes are claimed at a time, {most} would be fair");
    done
}
