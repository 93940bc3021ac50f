//! Conventions that are known by name only: their weights are served as stored.

use super::super::{Finding, Reason};
use super::{Site, is_fp8};
use crate::dtype::DType;

/// The end of a weight's name, that of a companion which settles it, and what it is called.
const OTHERS: [(&str, &str, &str); 9] = [
    ("W_q", "scale", "HQQ"),
    ("weight._data", "weight._scale", "quanto"),
    ("_weight_qdata", "_weight_scale", "torchao"),
    ("q_weight", "q_scale", "EXL2"),
    ("trellis", "suh", "EXL3"),
    ("trellis", "su", "EXL3"),
    ("codes", "codebooks", "AQLM"),
    ("Qidxs", "SU", "QuIP#"),
    ("indices", "centroids", "VPTQ"),
];

/// `site` has the whole name as its stem.
pub(super) fn recognise(site: &Site<'_>) -> Option<Finding> {
    if let Some(stem) = super::module(site.stem, b"qweight") {
        let site = Site { stem, near: site.names.around(site.place, stem), ..*site };
        return Some(Finding::Hidden(Reason::Named(quantised(&site))));
    }
    let convention = OTHERS.iter().find_map(|(end, mate, convention)| {
        let stem = super::module(site.stem, end.as_bytes())?;
        site.names.find(stem, mate).map(|_| *convention)
    })?;
    let reason = Reason::Named(convention);
    Some(if is_fp8(site.tensor.dtype) {
        Finding::Unscaled(reason)
    } else {
        Finding::Hidden(reason)
    })
}

/// Which of the conventions that call their codes `qweight`.
fn quantised(site: &Site<'_>) -> &'static str {
    if site.tensor.dtype == DType::I8 && site.mate("wscales").is_some() {
        return "SVDQuant";
    }
    let scales = site.mate("scales").map(|scales| &*site.get(scales).shape);
    match (site.shape(), scales) {
        ([_, columns], Some([_, scales])) if columns == scales => "GPTQ",
        ([_, columns], Some([_, scales]))
            if columns.checked_mul(8) == Some(*scales) && site.mate("g_idx").is_none() =>
        {
            "AWQ"
        }
        _ if site.mate("g_idx").is_some() => "GPTQ",
        _ if site.hints.method() == Some("awq") => "AWQ",
        _ => "qweight",
    }
}
