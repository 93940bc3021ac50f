//! What is told about weights that are codes with scales.

use super::{Repr, Stock};
use crate::model::Model;
use crate::naming::{Catalog, Mounted, StemIndex, file_stem};
use crate::quant::Target;
use crate::scale::{Hints, Known, Scales};
use crate::store::Store;
use crate::view::document::LONGEST_SUFFIX;
use crate::view::json::lossy;
use serde_json::{Value as Json, json};
use std::borrow::Cow;

/// Any float type: names are the same in all of them.
const FLOAT: Repr = Repr::Float(Target::F32);

/// Finds the weights of `model` that are codes with scales. One whose name would be that of
/// another tensor of the mount stays as it is stored.
pub fn recognise(model: &Model, catalog: &Catalog, store: &Store, hints: &Hints) -> Scales {
    let read = |tensor: &crate::model::Tensor, out: &mut [u8]| {
        out.len() as u64 == tensor.extent.len && store.read(tensor.extent, 0, out).is_ok()
    };
    let mut scales = Scales::build(model, hints, &read);
    let renamed: Vec<u32> = scales
        .renamed()
        .flat_map(|source| catalog.targets(model, source))
        // Mounted tensors are counted in 32 bits.
        .map(|i| i as u32)
        .collect();
    if renamed.is_empty() {
        return scales;
    }
    let count = catalog.len(model);
    let stem = |i: u32| -> Cow<'_, [u8]> {
        let stock = Stock { model, scales: &scales };
        let (index, repr) = match (i as usize).checked_sub(count) {
            None => (i as usize, Repr::Stored),
            Some(at) => (renamed[at] as usize, FLOAT),
        };
        let mounted = catalog.get(model, index);
        match super::name(stock, &mounted, repr) {
            Cow::Borrowed(name) => file_stem(name, LONGEST_SUFFIX),
            Cow::Owned(name) => file_stem(&name, LONGEST_SUFFIX).into_owned().into(),
        }
    };
    let mut meeting = Vec::new();
    // Both counts are of 32 bits, and their sum too: a model has at most 2^20 tensors.
    StemIndex::build_all((count + renamed.len()) as u32, stem, |collision| {
        meeting.extend([collision.a, collision.b]);
        true
    });
    for i in meeting {
        let Some(at) = (i as usize).checked_sub(count) else { continue };
        let mounted = catalog.get(model, renamed[at] as usize);
        // One that a map has renamed already meets only itself.
        if super::name(Stock { model, scales: &scales }, &mounted, FLOAT) != mounted.name {
            scales.withhold(mounted.source);
        }
    }
    scales
}

/// Adds to the description of a tensor whether and how it is scaled.
pub(super) fn describe(stock: Stock<'_>, mounted: &Mounted<'_>, repr: Repr, document: &mut Json) {
    let Stock { model, scales } = stock;
    match scales.of(model, mounted.source) {
        None => {}
        Some(Known::Scaled(_)) if repr == Repr::Stored => {}
        Some(Known::Scaled(weight)) => {
            let mut tensors = vec![lossy(&weight.scale.name)];
            if let Some(second) = weight.second {
                tensors.push(lossy(&second.name));
            }
            document["scaled"] = true.into();
            document["scale"] = json!({
                "convention": weight.method.convention,
                "tensors": tensors,
                "block": weight.method.grid.block(weight.method.dims),
            });
        }
        Some(Known::Unscaled(reason) | Known::Hidden(reason)) => {
            document["scaled"] = false.into();
            document["reason"] = scales.explain(model, mounted.source, reason).into();
        }
    }
}
