//! See `tests/corpus/targets/views.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../../corpus/targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::views::run(data));
