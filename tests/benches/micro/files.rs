//! The files that are measured: made in memory, as plain as the formats allow.

use std::fmt::Write as _;
use std::io::Write as _;
use tempfile::NamedTempFile;

/// The name of the n-th tensor, as long as real ones are.
pub(crate) fn name(n: usize) -> String {
    format!("blk.{}.part_{}.weight", n / 10, n % 10)
}

/// Bytes of each tensor's data: F32 `[4]`, padded.
const STRIDE: usize = 32;

fn string(text: &str, out: &mut Vec<u8>) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A GGUF of `tensors` tensors F32 `[4]` whose vocabulary has `tokens` tokens.
pub(crate) fn gguf(tensors: usize, tokens: usize) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend((tensors as u64).to_le_bytes());
    out.extend(2_u64.to_le_bytes());
    string("general.architecture", &mut out);
    out.extend(8_u32.to_le_bytes());
    string("llama", &mut out);
    string("tokenizer.ggml.tokens", &mut out);
    out.extend(9_u32.to_le_bytes());
    out.extend(8_u32.to_le_bytes());
    out.extend((tokens as u64).to_le_bytes());
    for token in 0..tokens {
        string(&format!("token{token}"), &mut out);
    }
    for tensor in 0..tensors {
        string(&name(tensor), &mut out);
        out.extend(1_u32.to_le_bytes());
        out.extend(4_u64.to_le_bytes());
        out.extend(0_u32.to_le_bytes());
        out.extend(((tensor * STRIDE) as u64).to_le_bytes());
    }
    out.resize(out.len().next_multiple_of(STRIDE) + tensors * STRIDE, 0);
    out
}

/// A safetensors file of `tensors` tensors F32 `[4]`.
pub(crate) fn safetensors(tensors: usize) -> Vec<u8> {
    let mut header = String::from("{");
    for tensor in 0..tensors {
        let comma = if tensor == 0 { "" } else { "," };
        let (from, to) = (tensor * 16, tensor * 16 + 16);
        let name = name(tensor);
        write!(
            header,
            r#"{comma}"{name}":{{"dtype":"F32","shape":[4],"data_offsets":[{from},{to}]}}"#
        )
        .expect("a string has room");
    }
    header.push('}');
    while header.len() % 8 != 0 {
        header.push(' ');
    }
    let mut out = (header.len() as u64).to_le_bytes().to_vec();
    out.extend(header.as_bytes());
    out.resize(out.len() + tensors * 16, 0);
    out
}

/// A GGUF of one F16 tensor `big.weight` of `bytes` bytes.
pub(crate) fn one_tensor(bytes: usize) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    out.extend(1_u64.to_le_bytes());
    out.extend(0_u64.to_le_bytes());
    string("big.weight", &mut out);
    out.extend(1_u32.to_le_bytes());
    out.extend((bytes as u64 / 2).to_le_bytes());
    out.extend(1_u32.to_le_bytes());
    out.extend(0_u64.to_le_bytes());
    out.resize(out.len().next_multiple_of(STRIDE), 0);
    out.extend(noise(bytes));
    out
}

/// The bytes as a file.
pub(crate) fn on_disk(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("room for it");
    file
}

/// Bytes without a pattern; a multiple of 8 of them.
pub(crate) fn noise(len: usize) -> Vec<u8> {
    let mut x = 0x9E37_79B9_7F4A_7C15_u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(len.div_ceil(8)).flatten().take(len).collect()
}
