//! Where tensor data lies: every tensor inside the file, aligned, none over another.
//!
//! ggml wants tensors packed in declaration order. Files that leave gaps or change the
//! order are sound and are served with a warning; the rest is refused.

use super::GgufError;
use super::error::Dims;
use crate::format::Quoted;
use crate::model::Tensor;

/// The data section of one file.
#[derive(Debug)]
pub(super) struct Placement {
    /// Where it starts. Without tensors it may be missing: then the end of the file at most.
    pub(super) start: u64,
    /// What is unusual about it.
    pub(super) warnings: Vec<String>,
}

/// Makes the offsets of `tensors` absolute, checks them, and sorts by place.
///
/// `infos_end` is where the tensor infos end, `len` the size of the file.
pub(super) fn place(
    tensors: &mut [Tensor],
    infos_end: u64,
    alignment: u64,
    len: u64,
) -> Result<Placement, GgufError> {
    // In 128 bits sums of a few 64-bit numbers cannot wrap, so nothing is missed.
    let align = u128::from(alignment);
    let data_start = u128::from(infos_end).next_multiple_of(align);
    if !tensors.is_empty() && data_start > u128::from(len) {
        return Err(GgufError::NoData { data_start, alignment, len });
    }
    if let Some(t) = tensors.iter().find(|t| !t.extent.offset.is_multiple_of(alignment)) {
        let (name, offset) = (t.name.clone(), t.extent.offset);
        return Err(GgufError::Unaligned { name, offset, alignment });
    }

    let mut warnings = Vec::new();
    unusual_dimensions(tensors, &mut warnings);
    out_of_order(tensors, &mut warnings);
    // Stable: tensors without bytes keep their order at one place.
    tensors.sort_by_key(|t| t.extent.offset);

    let survey = survey(tensors, align)?;
    let file_end = u128::from(len);
    let end = data_start.saturating_add(survey.end);
    if survey.end > 0 && end > file_end {
        return Err(past_end(tensors, data_start, end, len, survey.gaps == 0));
    }
    let padded_end = data_start.saturating_add(survey.end.next_multiple_of(align));
    for t in &mut *tensors {
        let at = data_start.saturating_add(u128::from(t.extent.offset));
        // A tensor without bytes may stand behind last padding that is not there.
        if at > file_end && at > padded_end {
            return Err(GgufError::OutOfFile { name: t.name.clone(), start: at, end: at, len });
        }
        t.extent.offset = u64::try_from(at).unwrap_or(len).min(len);
    }

    if survey.gaps > 0 {
        warnings.push(format!(
            "gaps between tensors: {}, {} bytes in all, the first before {}",
            survey.gaps,
            survey.gap_bytes,
            Quoted(&survey.first_gap)
        ));
    }
    if file_end > padded_end {
        let more = file_end.saturating_sub(padded_end);
        warnings.push(format!("{more} {} after the last tensor", bytes(more)));
    } else if file_end < padded_end && !tensors.is_empty() {
        let lacks = padded_end.saturating_sub(file_end);
        warnings.push(format!(
            "the padding after the last tensor is missing ({lacks} {})",
            bytes(lacks)
        ));
    }
    Ok(Placement { start: u64::try_from(data_start).unwrap_or(len).min(len), warnings })
}

fn bytes(n: u128) -> &'static str {
    if n == 1 { "byte" } else { "bytes" }
}

/// What lies between the tensors, from the start of the data section.
#[derive(Default)]
struct Survey {
    /// One past the last byte of any tensor.
    end: u128,
    gaps: u64,
    gap_bytes: u128,
    first_gap: Box<[u8]>,
}

/// Walks tensors in the order of their data.
fn survey(tensors: &[Tensor], align: u128) -> Result<Survey, GgufError> {
    let mut s = Survey::default();
    let mut last: Option<&Tensor> = None;
    for t in tensors.iter().filter(|t| t.extent.len > 0) {
        let (start, end) = range(t);
        if let Some(previous) = last
            && start < s.end
        {
            return Err(GgufError::Overlap {
                first: previous.name.clone(),
                first_at: range(previous),
                second: t.name.clone(),
                second_at: (start, end),
            });
        }
        let packed = s.end.next_multiple_of(align);
        if start > packed {
            if s.gaps == 0 {
                s.first_gap = t.name.clone();
            }
            s.gaps = s.gaps.saturating_add(1);
            s.gap_bytes = s.gap_bytes.saturating_add(start.saturating_sub(packed));
        }
        s.end = end;
        last = Some(t);
    }
    Ok(s)
}

fn range(t: &Tensor) -> (u128, u128) {
    let start = u128::from(t.extent.offset);
    (start, start.saturating_add(u128::from(t.extent.len)))
}

/// The first tensor that does not lie inside the file. When all tensors are packed as ggml
/// packs them, the sizes agree among themselves and the file is too short for them.
fn past_end(tensors: &[Tensor], data_start: u128, end: u128, len: u64, packed: bool) -> GgufError {
    let cut = tensors.iter().filter(|t| t.extent.len > 0).find_map(|t| {
        let (from, to) = range(t);
        let (from, to) = (data_start.saturating_add(from), data_start.saturating_add(to));
        (to > u128::from(len)).then(|| (t.name.clone(), from, to))
    });
    let (name, from, to) = cut.expect("some tensor ends where the data ends");
    if packed {
        GgufError::Truncated { name, need: end, len }
    } else {
        GgufError::OutOfFile { name, start: from, end: to, len }
    }
}

fn unusual_dimensions(tensors: &[Tensor], warnings: &mut Vec<String>) {
    let mut many = tensors.iter().filter(|t| t.shape.len() > 4);
    if let Some(first) = many.next() {
        warnings.push(format!(
            "tensors with more than 4 dimensions: {}, the first is {} {}",
            many.count().saturating_add(1),
            Quoted(&first.name),
            Dims(&first.shape)
        ));
    }
}

fn out_of_order(tensors: &[Tensor], warnings: &mut Vec<String>) {
    let mut back = tensors
        .iter()
        .zip(tensors.iter().skip(1))
        .filter(|(a, b)| b.extent.offset < a.extent.offset)
        .map(|(_, b)| b);
    if let Some(first) = back.next() {
        warnings.push(format!(
            "tensors whose data lies before that of the tensor declared before: {}, the first is {}",
            back.count().saturating_add(1),
            Quoted(&first.name)
        ));
    }
}
