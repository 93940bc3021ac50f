//! A seal of one small model: the whole file (an input that begins with `{"w` or white
//! space), or its body, which is then given the self-hash it needs. No panic; a whole seal
//! that is accepted promises just what the files hold; one with a forged hash never
//! contradicts itself, and where its sums are those of the files every byte is served.

use super::memory::within;
use super::with_scratch;
use super::writers::{self, Tensor};
use sha2::{Digest, Sha256};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;
use weightfs::dtype::DType;
use weightfs::load::{self, Loaded};
use weightfs::model::{Extent, Model};
use weightfs::seal::{self, Part, Piece, Seal, SealOptions, hex};
use weightfs::source::{IoMode, Source};
use weightfs::store::{Store, StoreOptions};

/// Longer inputs say nothing that shorter ones do not.
const LONGEST: usize = 16 << 10;

/// What begins a whole seal, as weightfs writes it.
const WHOLE: &[u8] = b"{\"weightfs_manifest\"";

/// Bytes that an input may take: the tables of the grid and of its sums, a read buffer, and
/// so many for each of its own.
const CONSTANT: usize = 1 << 20;
const MULTIPLE: usize = 16;

struct Known {
    dir: TempDir,
    bytes: Vec<u8>,
    model: Arc<Model>,
    sources: Vec<Source>,
    text: Vec<u8>,
}

fn known() -> &'static Known {
    static KNOWN: OnceLock<Known> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let tensor = |name: &str, dtype, shape: &[u64], len: usize| Tensor {
            name: name.into(),
            dtype,
            shape: shape.into(),
            data: (0..len).map(|i| (i * 7 + i / 251 + len) as u8).collect(),
        };
        let tensors = [
            tensor("a", DType::F32, &[5, 500], 10_000),
            tensor("none", DType::F16, &[0, 3], 0),
            tensor("b \"q\"", DType::Q8_0, &[64], 68),
        ];
        let bytes = writers::gguf(false, &[], &tensors);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        std::fs::write(&path, &bytes).unwrap();
        let Loaded { model, sources, entry } = load::open(&path, IoMode::Pread).unwrap();
        let options = SealOptions {
            chunk_bytes: 4096,
            output: Some(dir.path().join("seal.json")),
            ..SealOptions::default()
        };
        let report = seal::create(&model, &sources, &entry, &options, &|_| {}).unwrap();
        let text = std::fs::read(report.path).unwrap();
        Known { dir, bytes, model: Arc::new(model), sources, text }
    })
}

/// The seal as it was made: the seed of this target.
pub(crate) fn sample() -> Vec<u8> {
    known().text.clone()
}

/// What stands in it as its body.
pub(crate) fn sample_body() -> Vec<u8> {
    let text = sample();
    let key = b"\"body\":";
    let at = text.windows(key.len()).position(|w| w == key).unwrap() + key.len();
    text[at..].trim_ascii().strip_suffix(b"}").unwrap().trim_ascii().to_vec()
}

fn is_whole(data: &[u8]) -> bool {
    data.trim_ascii_start().starts_with(&WHOLE[..3])
}

fn framed(body: &[u8]) -> Vec<u8> {
    let hash = hex(&Sha256::digest(body));
    let head = format!("{{\"weightfs_manifest\":1,\"body_sha256\":\"{hash}\",\"body\":");
    [head.as_bytes(), body, b"}"].concat()
}

/// One input. Whether it is accepted.
pub(crate) fn run(data: &[u8]) -> bool {
    if data.len() > LONGEST {
        return false;
    }
    let known = known();
    let forged = !is_whole(data);
    let text = if forged { framed(data) } else { data.to_vec() };
    let most = CONSTANT + MULTIPLE * text.len();
    with_scratch(|scratch| {
        let path = scratch.fill(&text);
        within(most, || accepted(known, path, forged))
    })
}

fn accepted(known: &Known, path: &Path, forged: bool) -> bool {
    let Ok(seal) = Seal::load(path, &known.model, &known.sources) else { return false };
    let true_sums = sums_agree(known, &seal);
    assert!(true_sums || forged, "a seal is accepted that promises other bytes");
    if true_sums {
        served(known, seal);
    }
    true
}

/// Whether all chunks have the promised sums. What is promised of a whole tensor must follow
/// from what is promised of its chunks.
fn sums_agree(known: &Known, seal: &Seal) -> bool {
    let grid = seal.grid();
    let mut agree = true;
    for piece in grid.pieces() {
        let mut whole = crc32fast::Hasher::new();
        for chunk in 0..grid.chunks_of(&piece) {
            let (offset, len) = grid.chunk_of(&piece, chunk);
            let bytes = &known.bytes[offset as usize..][..len as usize];
            let promised = promised(seal, &piece, chunk);
            agree &= promised == crc32fast::hash(bytes);
            whole.combine(&crc32fast::Hasher::new_with_initial_len(promised, len));
        }
        if let Part::Tensor(index) = piece.part {
            let sealed = seal.tensor(index as usize).unwrap();
            assert_eq!(sealed.crc32, whole.finalize(), "a tensor and its chunks");
        }
    }
    agree
}

fn promised(seal: &Seal, piece: &Piece, chunk: u64) -> u32 {
    let mut sum = [0];
    seal.expected(piece, chunk, &mut sum).unwrap();
    sum[0]
}

/// Every byte is served, whatever the chunk size says.
fn served(known: &Known, seal: Seal) {
    let path = known.dir.path().join("m.gguf");
    let source = Source::open(&path, IoMode::Pread).unwrap();
    let store =
        Store::new(Arc::clone(&known.model), vec![source], Some(seal), StoreOptions::default());
    let extent = Extent { shard: 0, offset: 0, len: known.bytes.len() as u64 };
    let mut out = vec![0; known.bytes.len()];
    store.read(extent, 0, &mut out).unwrap();
    assert!(out == known.bytes);
}
