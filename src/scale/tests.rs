//! Which tensors are recognised as what, and near misses that are not.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::model::Shard;
use serde_json::{Value as Json, json};

type Entry<'a> = (&'a str, DType, &'a [u64]);

pub(super) fn model_of(format: Format, tensors: &[Entry<'_>]) -> Model {
    let mut at = 0;
    let tensors = tensors
        .iter()
        .map(|&(name, dtype, shape)| {
            let len = dtype.nbytes(crate::model::elements(shape)).unwrap();
            at += len;
            let extent = Extent { shard: 0, offset: at - len, len };
            Tensor { name: name.as_bytes().into(), dtype, shape: shape.into(), extent }
        })
        .collect();
    Model {
        format,
        format_version: 0,
        byte_order: ByteOrder::Little,
        architecture: None,
        name: None,
        metadata: Vec::new(),
        shards: vec![Shard { file: (*b"m").into(), len: at, data_start: 0, tensor_infos: 0 }],
        tensors,
        warnings: Vec::new(),
    }
}

/// `weight_shape` holds `told`; nothing else is asked for.
fn built(model: &Model, config: &Json, told: [u64; 2]) -> Scales {
    let read = |tensor: &Tensor, out: &mut [u8]| {
        if tensor.name.ends_with(b"weight_format") {
            out.fill(told[0] as u8);
            return true;
        }
        assert!(tensor.name.ends_with(b"weight_shape"));
        out.copy_from_slice(&told.map(u64::to_le_bytes).concat());
        true
    };
    Scales::build(model, &Hints::new(Some(config), None), &read)
}

/// Of the first tensor: the convention, its name and its shape, or the kind of reason.
fn first(tensors: &[Entry<'_>], config: Json, told: [u64; 2]) -> String {
    let model = model_of(Format::Safetensors, tensors);
    let scales = built(&model, &config, told);
    let tensor = &model.tensors[0];
    match scales.of(&model, 0) {
        None => "-".into(),
        Some(Known::Unscaled(reason)) => format!("unscaled: {}", reason.kind().0),
        Some(Known::Hidden(reason)) => {
            let (kind, name) = reason.kind();
            format!("hidden: {kind} {name}").trim_end().to_owned()
        }
        Some(Known::Scaled(weight)) => {
            for companion in 1..model.tensors.len() as u32 {
                assert!(scales.is_companion(companion), "{}", weight.method.convention);
            }
            let name = weight.method.name(&tensor.name);
            let shape = weight.method.shape(&tensor.shape, &tensor.shape).unwrap();
            format!("{} {} {shape:?}", weight.method.convention, String::from_utf8_lossy(&name))
        }
    }
}

fn recognised(tensors: &[Entry<'_>]) -> String {
    first(tensors, Json::Null, [0, 0])
}

use DType::{BF16, F8_E4M3, F8_E8M0, F16, F32, I8, I32, I64, U8, U32};

#[test]
fn fp8_with_every_name_of_a_scale() {
    for (scale, shape, convention) in [
        ("a.weight_scale_inv", &[2u64, 3][..], "fp8-block"),
        ("a.weight_scale", &[], "fp8-tensor"),
        ("a.scale_weight", &[1], "fp8-tensor"),
        ("a.qscale_weight", &[], "fp8-tensor"),
        ("a.scale", &[256, 1], "fp8-channel"),
    ] {
        let found = recognised(&[("a.weight", F8_E4M3, &[256, 384]), (scale, F32, shape)]);
        assert_eq!(found, format!("{convention} a.weight [256, 384]"), "{scale}");
    }
    let bare = recognised(&[("weight", F8_E4M3, &[4, 4]), ("weight_scale", BF16, &[4])]);
    assert_eq!(bare, "fp8-channel weight [4, 4]");
    let mx = recognised(&[("a.weight", F8_E4M3, &[4, 64]), ("a.weight_scale", U8, &[4, 2])]);
    assert_eq!(mx, "mxfp8 a.weight [4, 64]");
}

#[test]
fn fp8_near_misses_are_cast() {
    let weight = ("a.weight", F8_E4M3, &[4u64, 6][..]);
    for (scale, dtype, shape, kind) in [
        ("a.weight_scale", F32, &[5u64][..], "shape"),
        ("a.weight_scale", DType::F64, &[], "type"),
        ("a.weight_scale", U8, &[4, 1], "type"),
        ("a.weight_scale", I32, &[], "type"),
        ("a.weight_inv_scale", F32, &[], "none"),
        ("b.weight_scale", F32, &[], "none"),
        ("a.weight_scale_2", F32, &[], "beside"),
    ] {
        assert_eq!(recognised(&[weight, (scale, dtype, shape)]), format!("unscaled: {kind}"));
    }
    let two = [weight, ("a.weight_scale", F32, &[][..]), ("a.scale", F32, &[])];
    assert_eq!(recognised(&two), "unscaled: several");
}

#[test]
fn floats_scales_and_integers_are_no_weights_with_scales() {
    for (dtype, name) in [(BF16, "a.weight"), (F8_E4M3, "a.k_scale"), (F8_E8M0, "a.scale")] {
        assert_eq!(recognised(&[(name, dtype, &[4, 4]), ("a.weight_scale", F32, &[])]), "-");
    }
    assert_eq!(recognised(&[("a.weight", I8, &[4, 4])]), "-");
    assert_eq!(recognised(&[("a.weight", U8, &[4, 4])]), "-");
    assert_eq!(recognised(&[("a.weight", F8_E4M3, &[0, 4]), ("a.scale", F32, &[])]), "-");
}

#[test]
fn nvfp4_of_both_makers() {
    let packed = [
        ("a.weight_packed", U8, &[4u64, 16][..]),
        ("a.weight_scale", F8_E4M3, &[4, 2]),
        ("a.weight_global_scale", F32, &[1]),
        ("a.input_global_scale", F32, &[1]),
    ];
    assert_eq!(recognised(&packed), "nvfp4-compressed-tensors a.weight [4, 32]");
    let experts = [
        ("a.weight", U8, &[3u64, 4, 16][..]),
        ("a.weight_scale", F8_E4M3, &[3, 4, 2]),
        ("a.weight_scale_2", F32, &[3]),
    ];
    assert_eq!(recognised(&experts), "nvfp4-modelopt a.weight [3, 4, 32]");
    let with = |change: Entry<'static>| {
        let mut tensors = experts;
        let at = tensors.iter().position(|t| t.0 == change.0).unwrap();
        tensors[at] = change;
        recognised(&tensors)
    };
    assert_eq!(with(("a.weight_scale_2", F32, &[2])), "hidden: shape");
    assert_eq!(with(("a.weight_scale_2", F16, &[3])), "hidden: type");
    assert_eq!(with(("a.weight_scale", F8_E4M3, &[3, 4, 1])), "hidden: shape");
    assert_eq!(with(("a.weight_scale", U8, &[3, 4, 2])), "hidden: type");
    assert_eq!(recognised(&packed[..2]), "hidden: shape");
    assert_eq!(recognised(&packed[..1]), "hidden: none");
}

#[test]
fn mxfp4_of_every_maker() {
    for (codes, dtype, scale, scale_dtype, convention) in [
        ("a.weight_packed", U8, "a.weight_scale", U8, "mxfp4-compressed-tensors"),
        ("a.weight", U8, "a.weight_scale", F8_E8M0, "mxfp4"),
        ("a.weight", I8, "a.scale", F8_E8M0, "mxfp4-deepseek"),
    ] {
        let found = recognised(&[(codes, dtype, &[4, 32]), (scale, scale_dtype, &[4, 2])]);
        assert_eq!(found, format!("{convention} a.weight [4, 64]"));
    }
    let six = [("a.weight_packed", U8, &[4u64, 48][..]), ("a.weight_scale", U8, &[4, 2])];
    assert_eq!(recognised(&six), "mxfp6-compressed-tensors a.weight [4, 64]");
    let config = json!({"expert_dtype": "fp8"});
    let denied = [("a.weight", I8, &[4u64, 32][..]), ("a.scale", F8_E8M0, &[4, 2])];
    assert_eq!(first(&denied, config, [0, 0]), "hidden: told");
}

#[test]
fn gpt_oss_under_both_names() {
    let shape = &[2u64, 6, 3, 16][..];
    for (stem, join, expected) in [
        ("x.gate_up_proj", "_", "mxfp4-gpt-oss x.gate_up_proj [2, 96, 6]"),
        ("x.mlp1_weight", ".", "mxfp4-gpt-oss x.mlp1_weight [2, 6, 96]"),
    ] {
        let (blocks, scales) = (format!("{stem}{join}blocks"), format!("{stem}{join}scales"));
        let pair = |scale: &[u64]| recognised(&[(&*blocks, U8, shape), (&*scales, U8, scale)]);
        assert_eq!(pair(&[2, 6, 3]), expected);
        assert_eq!(pair(&[2, 6, 2]), "hidden: shape");
        assert_eq!(recognised(&[(&*blocks, U8, shape)]), "hidden: none");
    }
    let other = [("x.other_blocks", U8, shape), ("x.other_scales", U8, &[2, 6, 3][..])];
    assert_eq!(recognised(&other), "-");
}

#[test]
fn packed_integers_need_a_shape_that_fits() {
    let tensors = |words: &'static [u64]| {
        [
            ("a.weight_packed", I32, words),
            ("a.weight_scale", BF16, &[4u64, 2][..]),
            ("a.weight_shape", I64, &[2]),
        ]
    };
    let found = |words, told| first(&tensors(words), Json::Null, told);
    assert_eq!(found(&[4, 8], [4, 64]), "pack-quantized a.weight [4, 64]");
    assert_eq!(found(&[4, 16], [4, 64]), "pack-quantized a.weight [4, 64]");
    for told in [[5, 64], [4, 0], [4, 1 << 40], [4, u64::MAX], [u64::MAX, 64]] {
        assert_eq!(found(&[4, 8], told), "hidden: tells", "{told:?}");
    }
    // Three bits, with and without gaps: told by nobody.
    assert_eq!(found(&[4, 12], [4, 128]), "hidden: tells");
    assert_eq!(found(&[4, 13], [4, 128]), "hidden: tells");
    let config = json!({"quantization_config": {"config_groups": {"g": {"weights":
        {"num_bits": 8, "group_size": 32}}}}});
    assert_eq!(first(&tensors(&[4, 8]), config, [4, 64]), "hidden: tells");
    let mut ordered = tensors(&[4, 8]).to_vec();
    ordered.push(("a.weight_g_idx", I32, &[64]));
    assert_eq!(first(&ordered, Json::Null, [4, 64]), "hidden: beside");
}

#[test]
fn int8_per_channel_and_with_zero_points() {
    let mut tensors = vec![
        ("a.weight", I8, &[4u64, 6][..]),
        ("a.weight_scale", F32, &[4, 1]),
        ("a.weight_zero_point", I8, &[4, 1]),
    ];
    assert_eq!(recognised(&tensors), "int8-channel a.weight [4, 6]");
    assert_eq!(recognised(&tensors[..2]), "int8-channel a.weight [4, 6]");
    tensors[2].2 = &[4, 2];
    assert_eq!(recognised(&tensors), "unscaled: beside");
    tensors[1].2 = &[3];
    assert_eq!(recognised(&tensors[..2]), "unscaled: shape");
}

#[test]
fn mlx_is_told_by_its_configuration_or_by_its_bytes() {
    let affine = [
        ("a.b.weight", U32, &[4u64, 16][..]),
        ("a.b.scales", F16, &[4, 2]),
        ("a.b.biases", F16, &[4, 2]),
    ];
    assert_eq!(recognised(&affine), "hidden: not told");
    let told = |group, bits| {
        let config = json!({"quantization": {"group_size": group, "bits": bits}});
        first(&affine, config, [0, 0])
    };
    assert_eq!(told(64, 4), "mlx-affine a.b.weight [4, 128]");
    assert_eq!(told(32, 8), "mlx-affine a.b.weight [4, 64]");
    assert_eq!(told(64, 8), "hidden: told");
    for (groups, expected) in [
        (8u64, "mlx-nvfp4 a.b.weight [4, 128]"),
        (4, "mlx-mxfp4 a.b.weight [4, 128]"),
        (2, "mlx-mxfp8 a.b.weight [4, 64]"),
        (1, "hidden: shape"),
    ] {
        let scale = [4, groups];
        assert_eq!(recognised(&[affine[0], ("a.b.scales", U8, &scale)]), expected);
    }
}

#[test]
fn others_are_named_and_stored() {
    let gptq = [("a.qweight", I32, &[8u64, 64][..]), ("a.scales", F16, &[2, 64])];
    assert_eq!(recognised(&gptq), "hidden: named GPTQ");
    let awq = [("a.qweight", I32, &[64u64, 8][..]), ("a.scales", F16, &[2, 64])];
    assert_eq!(recognised(&awq), "hidden: named AWQ");
    let state = "a.weight.quant_state.bitsandbytes__nf4";
    let nf4 = [("a.weight", U8, &[32u64, 1][..]), (state, U8, &[9])];
    assert_eq!(recognised(&nf4), "hidden: named bitsandbytes 4-bit");
    let eight =
        [("a.weight", I8, &[4u64, 6][..]), ("a.SCB", F32, &[4]), ("a.weight_format", U8, &[])];
    assert_eq!(recognised(&eight), "int8-bitsandbytes a.weight [4, 6]");
    assert_eq!(first(&eight, Json::Null, [1, 0]), "unscaled: named");
    assert_eq!(recognised(&eight[..2]), "unscaled: named");
    let scale = ("a.weight_scale", F32, &[4u64, 4][..]);
    let halved = [("a.weight", U8, &[2u64, 64][..]), scale];
    assert_eq!(recognised(&halved), "hidden: named ModelOpt INT4");
    let told = json!({"quantization_config": {"quant_method": "bitnet"}});
    assert_eq!(first(&halved, told, [0, 0]), "hidden: named BitNet");
}

#[test]
fn one_warning_for_each_sort_with_a_count_and_the_first_name() {
    let model = model_of(
        Format::Safetensors,
        &[
            ("a.qweight", I32, &[8, 64]),
            ("a.scales", F16, &[2, 64]),
            ("b.qweight", I32, &[8, 64]),
            ("b.scales", F16, &[2, 64]),
            ("c.weight", F8_E4M3, &[4, 4]),
        ],
    );
    let scales = built(&model, &Json::Null, [0, 0]);
    assert_eq!(
        scales.warnings(&model),
        [
            "1 weight is shown unscaled in the float views: no scale tensor found (first c.weight)",
            "2 weights are served as stored, without float views: packed as GPTQ, which is not \
             supported (first a.qweight)",
        ]
    );
}

#[test]
fn a_withheld_weight_keeps_its_companions() {
    let model = model_of(
        Format::Safetensors,
        &[("a.weight_packed", U8, &[4, 32]), ("a.weight_scale", U8, &[4, 2])],
    );
    let mut scales = built(&model, &Json::Null, [0, 0]);
    assert_eq!(scales.renamed().collect::<Vec<_>>(), [0]);
    assert!(scales.is_companion(1) && !scales.is_companion(0));
    scales.withhold(0);
    assert_eq!(scales.renamed().count(), 0);
    assert!(!scales.is_companion(1));
}

#[test]
fn gguf_companions_belong_to_nvfp4_only() {
    let of = |dtype, shape: &[u64], scale: &[u64]| {
        let model =
            model_of(Format::Gguf, &[("b.up.weight", dtype, shape), ("b.up.scale", F32, scale)]);
        let scales = built(&model, &Json::Null, [0, 0]);
        match scales.of(&model, 0) {
            Some(Known::Scaled(weight)) => format!("{:?}", weight.method.grid.spread),
            Some(Known::Unscaled(reason)) => reason.kind().0.into(),
            other => format!("{other:?}"),
        }
    };
    assert_eq!(of(DType::NVFP4, &[4, 64], &[1]), "Tensor");
    assert_eq!(of(DType::NVFP4, &[3, 4, 64], &[3]), "Expert");
    assert_eq!(of(DType::NVFP4, &[3, 4, 64], &[4]), "shape");
    assert_eq!(of(DType::Q8_0, &[4, 64], &[1]), "beside");
}
