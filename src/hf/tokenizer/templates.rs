//! Chat templates: the main one and those with a name.

use crate::hf::meta::{MAX_STRING, Meta};
use crate::hf::{File, Plan};
use crate::model::{Text, Value};

/// The key of the main template.
const MAIN: &str = "tokenizer.chat_template";

/// What the keys of the others begin with.
const NAMED: &[u8] = b"tokenizer.chat_template.";

fn length(text: &Text) -> u64 {
    match text {
        Text::Span(extent) => extent.len,
        Text::Inline(bytes) => bytes.len() as u64,
    }
}

fn template(value: &Value) -> Option<&Text> {
    match value {
        Value::Str(text) if length(text) <= MAX_STRING => Some(text),
        _ => None,
    }
}

/// Adds the files of all templates.
pub(super) fn plan(meta: Meta<'_>, plan: &mut Plan) {
    if main(meta).is_some() {
        plan.files.push(File::ChatTemplate);
    }
    plan.files.extend(all_named(meta).map(|(key, ..)| File::NamedTemplate(key)));
    let unusable = meta.model().metadata.iter().filter(|entry| {
        (*entry.key == *MAIN.as_bytes() || entry.key.starts_with(NAMED))
            && template(&entry.value).is_none()
    });
    plan.warnings.extend(unusable.map(|entry| {
        format!(
            "hf/ has no chat template {}: it is no string of at most {MAX_STRING} bytes",
            String::from_utf8_lossy(&entry.key)
        )
    }));
}

/// The main template.
pub(super) fn main<'a>(meta: Meta<'a>) -> Option<&'a Text> {
    template(meta.get(MAIN)?)
}

/// The name and the template under the metadata key with this index.
pub(super) fn named(meta: Meta<'_>, key: u32) -> Option<(&[u8], &Text)> {
    let entry = meta.model().metadata.get(key as usize)?;
    let name = entry.key.strip_prefix(NAMED).filter(|name| !name.is_empty())?;
    Some((name, template(&entry.value)?))
}

/// All templates that have a name, with the index of their key.
pub(super) fn all_named<'a>(
    meta: Meta<'a>,
) -> impl Iterator<Item = (u32, &'a [u8], &'a Text)> + use<'a> {
    let count = u32::try_from(meta.model().metadata.len()).unwrap_or(u32::MAX);
    (0..count).filter_map(move |key| named(meta, key).map(|(name, text)| (key, name, text)))
}
