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
    quantization: Option<Json>,
    algorithm: Option<String>,
    mlx: Option<Json>,
    experts: Option<String>,
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
                .cloned()
        };
        let quantization = inside("quantization_config");
        let beside = hf_quant_config.and_then(|c| c.get("quantization"));
        let algorithm = quantization
            .as_ref()
            .and_then(|q| text(q, "quant_algo"))
            .or_else(|| beside.and_then(|q| text(q, "quant_algo")));
        let mlx = inside("quantization")
            .or_else(|| quantization.clone())
            .filter(|q| q.get("group_size").is_some());
        Hints {
            experts: config.and_then(|c| text(c, "expert_dtype")),
            quantization,
            algorithm,
            mlx,
        }
    }

    /// The method it names.
    pub fn method(&self) -> Option<&str> {
        self.quantization.as_ref()?.get("quant_method")?.as_str()
    }

    /// The most telling word in it, for a message.
    pub fn said(&self) -> Option<&str> {
        let quantization = self.quantization.as_ref();
        let format = || quantization?.get("format")?.as_str();
        self.algorithm.as_deref().or_else(format).or_else(|| self.method())
    }

    /// Type of the experts, where it is told (DeepSeek-V4).
    pub fn experts(&self) -> Option<&str> {
        self.experts.as_deref()
    }

    /// Whether bytes without a type of their own are exponents when they are scales.
    pub fn byte_scales_are_exponents(&self) -> bool {
        self.quantization.as_ref().and_then(|q| text(q, "scale_fmt")).as_deref() == Some("ue8m0")
    }

    /// The block it names: `Err` when it says that there are no blocks.
    pub fn block(&self) -> Result<Option<[u64; 2]>, ()> {
        let Some(quantization) = &self.quantization else { return Ok(None) };
        match quantization.get("weight_block_size") {
            None => {}
            Some(Json::Null) => return Err(()),
            Some(size) => return pair(size).map(Some).ok_or(()),
        }
        let mut blocks = self.weights().filter_map(|w| w.get("block_structure").and_then(pair));
        let first = blocks.next();
        Ok(first.filter(|first| blocks.all(|b| b == *first)))
    }

    /// The only value of a number that all groups of compressed-tensors give for `key`.
    pub fn number(&self, key: &str) -> Option<u64> {
        let mut numbers = self.weights().map(|w| w.get(key).and_then(Json::as_u64));
        let first = numbers.next()?;
        first.filter(|_| numbers.all(|n| n == first))
    }

    /// `weights` of each group of compressed-tensors.
    fn weights(&self) -> impl Iterator<Item = &Json> {
        self.groups().filter_map(|group| group.get("weights"))
    }

    fn groups(&self) -> impl Iterator<Item = &Json> {
        let groups = self.quantization.as_ref().and_then(|q| q.get("config_groups"));
        groups.and_then(Json::as_object).into_iter().flat_map(|groups| groups.values())
    }

    /// MLX: group size, bits and mode of the module `path`, of which some have their own.
    pub fn mlx(&self, path: &str) -> Option<(u64, u64, &str)> {
        let all = self.mlx.as_ref()?;
        let own = all.get(path).filter(|own| own.is_object()).unwrap_or(all);
        let mode = own.get("mode").or_else(|| all.get("mode"));
        let mode = mode.and_then(Json::as_str).unwrap_or("affine");
        Some((own.get("group_size")?.as_u64()?, own.get("bits")?.as_u64()?, mode))
    }

    /// What it says when that is something else than `family`.
    pub fn denies(&self, family: Family) -> Option<&str> {
        if let Some(algorithm) = &self.algorithm {
            if algorithm.ends_with("_AWQ") || algorithm.ends_with("_SVD") {
                return Some(algorithm);
            }
            if let Some(told) = told_by_algorithm(algorithm)
                && !told.contains(&family)
            {
                return Some(algorithm);
            }
        }
        let own = self.quantization.as_ref().and_then(|q| q.get("format"));
        let formats = own.into_iter().chain(self.groups().filter_map(|g| g.get("format")));
        let mut formats = formats.filter_map(Json::as_str).peekable();
        let first = *formats.peek()?;
        formats.all(|f| !told_by_format(f).is_none_or(|t| t.contains(&family))).then_some(first)
    }
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
        assert_eq!(hints(json!({"weight_block_size": [128, 64]})).block(), Ok(Some([128, 64])));
        assert_eq!(hints(json!({"weight_block_size": null})).block(), Err(()));
        assert_eq!(hints(json!({"weight_block_size": [0, 64]})).block(), Err(()));
        assert_eq!(hints(json!({"quant_method": "fp8"})).block(), Ok(None));
        assert_eq!(Hints::default().block(), Ok(None));
        let nested = json!({"text_config": {"quantization_config": {"weight_block_size": [8, 8]}}});
        assert_eq!(Hints::new(Some(&nested), None).block(), Ok(Some([8, 8])));
    }

    #[test]
    fn another_format_is_denied_and_mixed_ones_are_not() {
        let one = hints(json!({"format": "nvfp4-pack-quantized"}));
        assert_eq!(one.denies(Family::Nvfp4), None);
        assert_eq!(one.denies(Family::Mxfp4), Some("nvfp4-pack-quantized"));
        let mixed = json!({"format": "mixed-precision", "config_groups": {"a": {"format": "float-quantized"}}});
        assert_eq!(hints(mixed).denies(Family::Nvfp4), None);
        let beside = json!({"quantization": {"quant_algo": "NVFP4_AWQ"}});
        assert_eq!(Hints::new(None, Some(&beside)).denies(Family::Nvfp4), Some("NVFP4_AWQ"));
    }

    #[test]
    fn numbers_of_groups_must_agree() {
        let groups = |bits: [u64; 2]| {
            json!({"config_groups": {
                "a": {"weights": {"num_bits": bits[0]}}, "b": {"weights": {"num_bits": bits[1]}}}})
        };
        assert_eq!(hints(groups([4, 4])).number("num_bits"), Some(4));
        assert_eq!(hints(groups([4, 8])).number("num_bits"), None);
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
