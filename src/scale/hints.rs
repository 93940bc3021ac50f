//! What a checkpoint's configuration says about its quantisation.
//!
//! facts: scales 1.2. It settles sizes that names, types and shapes leave open, and where it
//! contradicts them nothing is applied. Absent, broken or unknown entries say nothing.

use serde_json::Value as Json;

/// A family of number formats, as far as a configuration tells them apart.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Fp8,
    Mxfp8,
    Mxfp6,
    Mxfp4,
    Nvfp4,
    Int8,
    Packed,
}

/// The parts of `config.json` and `hf_quant_config.json` that matter.
#[derive(Clone, Debug, Default)]
pub struct Hints {
    method: Option<String>,
    experts: Option<String>,
    exponents: bool,
    block: Block,
    bits: Option<u64>,
    group: Option<u64>,
    allowed: Option<Vec<Family>>,
    said: Option<String>,
    mlx: Option<Json>,
}

/// Sizes of blocks that a configuration names.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Block {
    #[default]
    Untold,
    Given([u64; 2]),
    /// It says that there are none, or nothing that makes sense.
    Denied,
}

impl Hints {
    /// From the two files, where they exist.
    pub fn new(config: Option<&Json>, hf_quant_config: Option<&Json>) -> Hints {
        let inside = |key: &str| {
            let config = config?;
            [Some(config), config.get("text_config")]
                .into_iter()
                .flatten()
                .find_map(|c| c.get(key))
                .filter(|q| q.is_object())
        };
        let quantization = inside("quantization_config");
        let beside = hf_quant_config.and_then(|c| c.get("quantization"));
        let of = |key: &str| quantization.and_then(|q| text(q, key));
        let algorithm = of("quant_algo").or_else(|| beside.and_then(|q| text(q, "quant_algo")));
        let groups: Vec<&Json> = quantization
            .and_then(|q| q.get("config_groups"))
            .and_then(Json::as_object)
            .map(|groups| groups.values().collect())
            .unwrap_or_default();
        let mut formats: Vec<&str> =
            groups.iter().filter_map(|g| g.get("format")?.as_str()).collect();
        formats.extend(quantization.and_then(|q| q.get("format")?.as_str()));
        let method = of("quant_method");
        Hints {
            experts: config.and_then(|c| text(c, "expert_dtype")),
            exponents: of("scale_fmt").as_deref() == Some("ue8m0"),
            block: block(quantization, &groups),
            bits: common(&groups, "num_bits"),
            group: common(&groups, "group_size"),
            allowed: allowed(algorithm.as_deref(), &formats),
            said: algorithm.or_else(|| of("format")).or_else(|| method.clone()),
            mlx: inside("quantization")
                .or(quantization)
                .filter(|q| q.get("group_size").is_some())
                .cloned(),
            method,
        }
    }

    /// The most telling word in it, for a message.
    pub fn said(&self) -> Option<&str> {
        self.said.as_deref()
    }

    /// The method it names.
    pub fn method(&self) -> Option<&str> {
        self.method.as_deref()
    }

    /// Type of the experts, where it is told (DeepSeek-V4).
    pub fn experts(&self) -> Option<&str> {
        self.experts.as_deref()
    }

    /// Whether bytes without a type of their own are exponents when they are scales.
    pub fn byte_scales_are_exponents(&self) -> bool {
        self.exponents
    }

    /// The block it names.
    pub fn block(&self) -> Block {
        self.block
    }

    /// Bits of a code, when all groups of compressed-tensors say the same.
    pub fn bits(&self) -> Option<u64> {
        self.bits
    }

    /// Codes for one scale, when all groups of compressed-tensors say the same.
    pub fn group(&self) -> Option<u64> {
        self.group
    }

    /// MLX: group size, bits and mode of the module `path`, of which some have their own.
    pub fn mlx(&self, path: &str) -> Option<(u64, u64, &str)> {
        let all = self.mlx.as_ref()?;
        let own = all.get(path).filter(|own| own.is_object()).unwrap_or(all);
        let mode = own.get("mode").or_else(|| all.get("mode"));
        let mode = mode.and_then(Json::as_str).unwrap_or("affine");
        Some((own.get("group_size")?.as_u64()?, own.get("bits")?.as_u64()?, mode))
    }

    /// Whether it says something else than `family`.
    pub fn denies(&self, family: Family) -> bool {
        self.allowed.as_ref().is_some_and(|allowed| !allowed.contains(&family))
    }
}

fn block(quantization: Option<&Json>, groups: &[&Json]) -> Block {
    match quantization.and_then(|q| q.get("weight_block_size")) {
        None => {}
        Some(size) => return pair(size).map_or(Block::Denied, Block::Given),
    }
    let blocks = groups.iter().filter_map(|g| g.get("weights")?.get("block_structure"));
    let mut blocks = blocks.filter_map(pair);
    match blocks.next() {
        Some(first) if blocks.all(|b| b == first) => Block::Given(first),
        _ => Block::Untold,
    }
}

/// The only number that the weights of all groups have under `key`.
fn common(groups: &[&Json], key: &str) -> Option<u64> {
    let mut numbers = groups.iter().map(|g| g.get("weights")?.get(key)?.as_u64());
    let first = numbers.next()?;
    first.filter(|_| numbers.all(|n| n == first))
}

/// The families that there can be; `None` when all can.
fn allowed(algorithm: Option<&str>, formats: &[&str]) -> Option<Vec<Family>> {
    if let Some(algorithm) = algorithm {
        if algorithm.ends_with("_AWQ") || algorithm.ends_with("_SVD") {
            // What is stored is no drop-in for the weight.
            return Some(Vec::new());
        }
        if let Some(told) = told_by_algorithm(algorithm) {
            return Some(told.to_vec());
        }
    }
    let told: Option<Vec<&[Family]>> = formats.iter().map(|f| told_by_format(f)).collect();
    told.filter(|told| !told.is_empty()).map(|told| told.concat())
}

fn text(json: &Json, key: &str) -> Option<String> {
    json.get(key)?.as_str().map(str::to_owned)
}

fn pair(json: &Json) -> Option<[u64; 2]> {
    match &json.as_array()?[..] {
        [a, b] => Some([a.as_u64().filter(|a| *a > 0)?, b.as_u64().filter(|b| *b > 0)?]),
        _ => None,
    }
}

/// Formats of weights under an algorithm of ModelOpt; layers left in FP8 are common.
fn told_by_algorithm(algorithm: &str) -> Option<&'static [Family]> {
    use Family::{Fp8, Int8, Mxfp4, Mxfp8, Nvfp4};
    Some(match algorithm {
        "FP8" | "FP8_PER_CHANNEL_PER_TOKEN" | "FP8_PB_WO" => &[Fp8],
        "NVFP4" | "W4A16_NVFP4" | "W4A8_NVFP4_FP8" => &[Nvfp4, Fp8],
        "MXFP4" | "W4A8_MXFP4_FP8" => &[Mxfp4, Fp8],
        "MXFP8" => &[Mxfp8],
        "W8A16" | "W8A8_SQ_PER_CHANNEL" => &[Int8],
        _ => return None,
    })
}

/// Formats of compressed-tensors.
fn told_by_format(format: &str) -> Option<&'static [Family]> {
    use Family::{Fp8, Int8, Mxfp4, Mxfp6, Mxfp8, Nvfp4, Packed};
    Some(match format {
        "naive-quantized" => &[Fp8, Int8],
        "float-quantized" => &[Fp8],
        "int-quantized" => &[Int8],
        "pack-quantized" => &[Packed],
        "nvfp4-pack-quantized" => &[Nvfp4],
        "mxfp4-pack-quantized" => &[Mxfp4],
        "mxfp6-pack-quantized" => &[Mxfp6],
        "mxfp8-quantized" => &[Mxfp8],
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn hints(quantization: Json) -> Hints {
        Hints::new(Some(&json!({"quantization_config": quantization})), None)
    }

    #[test]
    fn blocks_are_given_denied_or_not_told() {
        let of = |quantization| hints(quantization).block();
        assert_eq!(of(json!({"weight_block_size": [128, 64]})), Block::Given([128, 64]));
        assert_eq!(of(json!({"weight_block_size": null})), Block::Denied);
        assert_eq!(of(json!({"weight_block_size": [0, 64]})), Block::Denied);
        assert_eq!(of(json!({"quant_method": "fp8"})), Block::Untold);
        assert_eq!(Hints::default().block(), Block::Untold);
        let nested = json!({"text_config": {"quantization_config": {"weight_block_size": [8, 8]}}});
        assert_eq!(Hints::new(Some(&nested), None).block(), Block::Given([8, 8]));
    }

    #[test]
    fn another_format_is_denied_and_mixed_ones_are_not() {
        let one = hints(json!({"format": "nvfp4-pack-quantized"}));
        assert!(!one.denies(Family::Nvfp4) && one.denies(Family::Mxfp4));
        assert_eq!(one.said(), Some("nvfp4-pack-quantized"));
        let mixed = json!({"format": "mixed-precision", "config_groups": {"a": {"format": "float-quantized"}}});
        assert!(!hints(mixed).denies(Family::Nvfp4));
        let beside = json!({"quantization": {"quant_algo": "NVFP4_AWQ"}});
        assert!(Hints::new(None, Some(&beside)).denies(Family::Nvfp4));
    }

    #[test]
    fn numbers_of_groups_must_agree() {
        let groups = |bits: [u64; 2]| {
            json!({"config_groups": {
                "a": {"weights": {"num_bits": bits[0]}}, "b": {"weights": {"num_bits": bits[1]}}}})
        };
        assert_eq!(hints(groups([4, 4])).bits(), Some(4));
        assert_eq!(hints(groups([4, 8])).bits(), None);
    }

    #[test]
    fn mlx_modules_may_have_sizes_of_their_own() {
        let config = json!({"quantization": {
            "group_size": 64, "bits": 4, "a.b": {"group_size": 32, "bits": 8}, "c": false}});
        let hints = Hints::new(Some(&config), None);
        assert_eq!(hints.mlx("x"), Some((64, 4, "affine")));
        assert_eq!(hints.mlx("a.b"), Some((32, 8, "affine")));
        assert_eq!(hints.mlx("c"), Some((64, 4, "affine")));
    }
}
