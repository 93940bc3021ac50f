//! Damage, and files that change, under values that are made from several stored ones.

use super::*;
use std::os::unix::fs::FileExt;
use weightfs::seal::{self, Seal, SealOptions};

/// Bytes of a chunk of the seal.
const CHUNK: u64 = 4096;

impl Case {
    /// Sealed, and then one bit of a tensor flipped; both opened anew.
    fn damaged(mut self, tensor: usize, at: u64) -> (Case, std::ops::Range<u64>) {
        let path = self._file.path().to_path_buf();
        let open = || Source::open(&path, IoMode::Pread).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let output = dir.path().join("seal.json");
        let options = SealOptions {
            chunk_bytes: CHUNK,
            output: Some(output.clone()),
            ..SealOptions::default()
        };
        seal::create(&self.model, &[open()], &path, &options, &|_| {}).unwrap();
        let extent = self.model.tensors[tensor].extent;
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        let byte = self.bytes[(extent.offset + at) as usize] ^ 4;
        file.write_all_at(&[byte], extent.offset + at).unwrap();
        let seal = Seal::load(&output, &self.model, &[open()]).unwrap();
        let options = StoreOptions::default();
        self.store = Store::new(Arc::clone(&self.model), vec![open()], Some(seal), options);
        let start = extent.offset + at / CHUNK * CHUNK;
        (self, start..(start + CHUNK).min(extent.end()))
    }

    /// Wherever a read begins, exactly the values in front of the first that needs a bad byte
    /// come: `of` tells which stored element of which tensor a value is made from.
    fn check_prefixes(
        &self,
        name: &str,
        bad: &std::ops::Range<u64>,
        of: impl Fn(u64) -> (usize, u64),
    ) {
        let mounted = self.mounted(name);
        for repr in [Repr::Float(Target::F32), Repr::Float(Target::BF16), Repr::Stored] {
            let dtype = view::shown(self.stock(), &mounted, repr).unwrap();
            if dtype.block().elements != 1 {
                continue;
            }
            let size = dtype.block().bytes;
            let is_bad = |value: u64| {
                let (tensor, element) = of(value);
                let Tensor { dtype, extent, .. } = &self.model.tensors[tensor];
                let start = extent.offset + element / dtype.block().elements * dtype.block().bytes;
                start < bad.end && start + dtype.block().bytes > bad.start
            };
            let count = elements(mounted.shape);
            let all: Vec<bool> = (0..count).map(is_bad).collect();
            assert!(all.contains(&true) && all.contains(&false), "{name}: a test of nothing");
            let content = view::bin(self.stock(), &mounted, repr).unwrap();
            let mut dice = 12345u64;
            for i in 0..24 {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let from = if i == 0 { 0 } else { (dice >> 33) % (count * size) };
                let len = (dice >> 11) % (count * size - from) + 1;
                let mut out = vec![0; len as usize];
                let first = (from / size..(from + len).div_ceil(size)).find(|&v| all[v as usize]);
                let good = match content.read(&self.store, from, &mut out) {
                    Ok(_) => None,
                    Err(failure) => Some(failure.good as u64),
                };
                let wanted = first.map(|v| (v * size).saturating_sub(from));
                assert_eq!(good, wanted, "{name} {dtype} {from}+{len}");
            }
        }
    }
}

#[test]
fn damage_is_met_by_exactly_the_values_that_need_it() {
    let little = ByteOrder::Little;
    for dtype in [DType::F16, DType::Q8_0, DType::Q4_K] {
        let (rows, columns) = (64u64, 1024u64);
        let shape = [rows, columns];
        let of = rope(4, rows as usize);
        let permuted = |v: u64| (0, of((v / columns) as usize) as u64 * columns + v % columns);
        for at in [10_000, 30_000] {
            let case =
                Case::new("llama", (4, 4), little, &[("blk.0.attn_q.weight", dtype, &shape)]);
            let (case, bad) = case.damaged(0, at);
            case.check_prefixes(Q, &bad, permuted);
        }
        // Rows longer than chunks, and shorter; panels that fit and one that does not.
        for (rows, columns) in [(64u64, 1024u64), (3, 66_560), (2_500, 256)] {
            let shape = [rows, columns];
            let entries: &[Entry<'_>] = &[("blk.0.ffn_up.weight", dtype, &shape)];
            let (case, bad) = Case::new("gpt2", (2, 2), little, entries).damaged(0, 20_000);
            let of = |v: u64| (0, v % rows * columns + v / rows);
            case.check_prefixes("transformer.h.0.mlp.c_fc.weight", &bad, of);
        }
        let (heads, rank, n, v) = (3u64, 256u64, 256u64, 40u64);
        let (k, w) = ([heads, rank, n], [heads, v, rank]);
        for (tensor, at) in [(0, 9_000), (1, 50_000)] {
            let entries: &[Entry<'_>] =
                &[("blk.0.attn_v_b.weight", dtype, &w), ("blk.0.attn_k_b.weight", dtype, &k)];
            let (case, bad) = Case::new("deepseek2", (3, 3), little, entries).damaged(tensor, at);
            let of = |value: u64| {
                let (r, l) = (value / rank, value % rank);
                let (h, s) = (r / (n + v), r % (n + v));
                if s < n { (1, (h * rank + l) * n + s) } else { (0, (h * v + s - n) * rank + l) }
            };
            case.check_prefixes("model.layers.0.self_attn.kv_b_proj.weight", &bad, of);
        }
        let wide = [2u64, 64, 256];
        let entries: &[Entry<'_>] = &[
            ("blk.0.ffn_up_exps.weight", dtype, &wide),
            ("blk.0.ffn_gate_exps.weight", dtype, &wide),
        ];
        let (case, bad) = Case::new("gpt-oss", (3, 3), little, entries).damaged(0, 15_000);
        let of = |value: u64| {
            let (e, h, c) = (value / (256 * 128), value / 128 % 256, value % 128);
            (usize::from(c.is_multiple_of(2)), (e * 64 + c / 2) * 256 + h)
        };
        case.check_prefixes("model.layers.0.mlp.experts.gate_up_proj", &bad, of);
    }
    let bias = [8u64, 4096];
    let entries: &[Entry<'_>] = &[
        ("blk.0.ffn_up_exps.bias", DType::F32, &bias),
        ("blk.0.ffn_gate_exps.bias", DType::F32, &bias),
    ];
    let (case, bad) = Case::new("gpt-oss", (3, 3), little, entries).damaged(0, 70_000);
    let of = |value: u64| (usize::from(value.is_multiple_of(2)), value / 2);
    case.check_prefixes("model.layers.0.mlp.experts.gate_up_proj_bias", &bad, of);
    let entries: &[Entry<'_>] = &[("output_norm.weight", DType::BF16, &[20_000])];
    let (case, bad) = Case::new("gemma", (3, 3), little, entries).damaged(0, 9_000);
    case.check_prefixes("model.norm.weight", &bad, |value| (0, value));
}

#[test]
fn a_file_that_changed_is_noticed_although_the_panel_is_kept() {
    let entries: &[Entry<'_>] = &[("blk.0.ffn_up.weight", DType::Q8_0, &[64, 64])];
    let case = Case::new("gpt2", (2, 2), ByteOrder::Little, entries);
    let name = "transformer.h.0.mlp.c_fc.weight";
    let whole = case.shown(name, Repr::Stored);
    std::fs::OpenOptions::new().write(true).open(case._file.path()).unwrap().set_len(70).unwrap();
    let content = view::bin(case.stock(), &case.mounted(name), Repr::Stored).unwrap();
    let mut out = vec![0; whole.len()];
    let failure = content.read(&case.store, 0, &mut out).unwrap_err();
    assert!(failure.error.is_stale() && failure.good == 0, "{failure:?}");
}
