//! See `tests/corpus/targets/hf.rs`.
#![no_main]

#[allow(dead_code)]
#[path = "../../corpus/targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::hf::run(data));
