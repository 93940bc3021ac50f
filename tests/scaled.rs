//! Any range of a scaled view is that slice of it, for every layout.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;
use std::io::Write;
use std::sync::LazyLock;
use weightfs::content::{Body, Content};
use weightfs::dtype::DType;
use weightfs::dtype::DType::{BF16, F8_E4M3, F8_E8M0, F32, I8, I32, I64, NVFP4, U8, U32};
use weightfs::model::{ByteOrder, Extent, Format, Model, Shard, Tensor, elements};
use weightfs::quant::Target;
use weightfs::scale::{Hints, Known, Scaled, Scales};
use weightfs::source::{IoMode, Source};
use weightfs::store::{Store, StoreOptions};

type Entry = (&'static str, DType, &'static [u64]);

struct Weight {
    store: Store,
    plan: Scaled,
    _file: tempfile::NamedTempFile,
}

fn weight(format: Format, tensors: &[Entry], shape: [u64; 2], to: Target) -> Weight {
    let mut bytes = vec![0u8; 8];
    let mut dice = 0x9E37_79B9_7F4A_7C15_u64;
    let mut all = Vec::new();
    for &(name, dtype, dims) in tensors {
        let len = dtype.nbytes(elements(dims)).unwrap();
        let offset = bytes.len() as u64;
        match dtype {
            I64 => bytes.extend(shape.map(u64::to_le_bytes).concat()),
            // Numbers, so that NaN does not hide a mistake.
            F32 => (0..len / 4).for_each(|i| bytes.extend((0.37 + i as f32).to_le_bytes())),
            BF16 => (0..len / 2).for_each(|i| bytes.extend([i as u8, 0x3F])),
            _ => bytes.extend((0..len).map(|_| {
                dice ^= dice << 13;
                dice ^= dice >> 7;
                dice ^= dice << 17;
                (dice >> 32) as u8 & 0x77
            })),
        }
        let extent = Extent { shard: 0, offset, len };
        all.push(Tensor { name: name.as_bytes().into(), dtype, shape: dims.into(), extent });
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bytes).unwrap();
    let model = Model {
        format,
        format_version: 0,
        byte_order: ByteOrder::Little,
        architecture: None,
        name: None,
        metadata: Vec::new(),
        shards: vec![Shard {
            file: (*b"m").into(),
            len: bytes.len() as u64,
            data_start: 8,
            tensor_infos: 0,
        }],
        tensors: all,
        warnings: Vec::new(),
    };
    let source = Source::open(file.path(), IoMode::Pread).unwrap();
    let store = Store::new(model.clone(), vec![source], None, StoreOptions::default());
    let config = json!({"quantization": {"group_size": 32, "bits": 5}});
    let read = |t: &Tensor, out: &mut [u8]| store.read(t.extent, 0, out).is_ok();
    let scales = Scales::build(&model, &Hints::new(Some(&config), None), &read);
    let Some(Known::Scaled(found)) = scales.of(&model, 0) else { panic!("{tensors:?}") };
    let stored = &model.tensors[0];
    let count = elements(&found.method.shape(&stored.shape, &stored.shape).unwrap());
    let plan = Scaled::plan(found, stored, stored.extent, count, ByteOrder::Little, to).unwrap();
    Weight { store, plan, _file: file }
}

/// One weight of each layout.
fn weights(to: Target) -> Vec<Weight> {
    let safetensors = |tensors: &[Entry], shape| weight(Format::Safetensors, tensors, shape, to);
    vec![
        safetensors(&[("weight", F8_E4M3, &[300, 70]), ("weight_scale", F32, &[3, 2])], [0; 2]),
        safetensors(&[("weight", F8_E4M3, &[3, 9, 5]), ("weight_scale", F32, &[1, 9, 1])], [0; 2]),
        safetensors(&[("weight", F8_E4M3, &[3, 9, 5]), ("weight_scale", F32, &[3, 1, 5])], [0; 2]),
        safetensors(&[("weight", I8, &[900, 1]), ("weight_scale", BF16, &[900])], [0; 2]),
        safetensors(
            &[
                ("weight", U8, &[2, 3, 32]),
                ("weight_scale", F8_E4M3, &[2, 3, 4]),
                ("weight_scale_2", F32, &[2]),
            ],
            [0; 2],
        ),
        safetensors(
            &[("down_proj_blocks", U8, &[2, 7, 3, 16]), ("down_proj_scales", U8, &[2, 7, 3])],
            [0; 2],
        ),
        safetensors(&[("weight_packed", U8, &[5, 48]), ("weight_scale", F8_E8M0, &[5, 2])], [0; 2]),
        safetensors(
            &[
                ("weight_packed", I32, &[9, 3]),
                ("weight_scale", F32, &[9, 1]),
                ("weight_shape", I64, &[2]),
                ("weight_zero_point", I32, &[2, 1]),
            ],
            [9, 19],
        ),
        safetensors(
            &[("weight", U32, &[4, 10]), ("scales", F32, &[4, 2]), ("biases", F32, &[4, 2])],
            [0; 2],
        ),
        weight(
            Format::Gguf,
            &[("a.weight", NVFP4, &[2, 3, 128]), ("a.scale", F32, &[2])],
            [0; 2],
            to,
        ),
    ]
}

static WEIGHTS: LazyLock<Vec<Weight>> =
    LazyLock::new(|| Target::ALL.into_iter().flat_map(weights).collect());

fn read(store: &Store, plan: &Scaled, from: u64, out: &mut [u8]) {
    let content = Content { head: (&[]).into(), body: Body::Scaled(Box::new(plan.clone())) };
    assert_eq!(content.read(store, from, out).unwrap(), out.len());
}

fn bytes(weight: &Weight, from: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0xAA; len];
    read(&weight.store, &weight.plan, from, &mut out);
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn any_range_is_that_slice(which in 0usize..30, from: u64, len in 1usize..5000) {
        let weight = &WEIGHTS[which % WEIGHTS.len()];
        let all = bytes(weight, 0, weight.plan.len() as usize);
        let from = from % weight.plan.len();
        let len = len.min(all.len() - from as usize);
        prop_assert_eq!(&bytes(weight, from, len), &all[from as usize..][..len]);
    }
}

#[test]
fn values_one_by_one_are_those_read_at_once() {
    for weight in WEIGHTS.iter() {
        let size = weight.plan.to.size();
        let all = bytes(weight, 0, weight.plan.len() as usize);
        for (i, value) in all.chunks(size).enumerate().step_by(7) {
            assert_eq!(bytes(weight, (i * size) as u64, size), value, "{:?}", weight.plan.method);
        }
    }
}

#[test]
fn a_slice_of_planes_is_that_part() {
    for weight in weights(Target::F32) {
        let method = weight.plan.method;
        if method.dims.planes == 1 {
            continue;
        }
        let plane = method.dims.rows * method.dims.columns;
        let part = Scaled { first: plane, elements: plane, ..weight.plan.clone() };
        let mut out = vec![0; plane as usize * 4];
        read(&weight.store, &part, 0, &mut out);
        assert_eq!(out, bytes(&weight, plane * 4, plane as usize * 4), "{method:?}");
        let mut middle = [0; 9];
        read(&weight.store, &part, 3, &mut middle);
        assert_eq!(middle, out[3..12]);
    }
}
