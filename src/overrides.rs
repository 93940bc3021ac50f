//! `set=KEY=VALUE`: metadata as the user wants it shown; the source stays as it is.
//!
//! Works on the model alone; must not know files or views.

use crate::model::{Array, Meta, Model, Text, Value, ValueType};
use serde_json::Value as Json;

/// What a key is set to.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// A JSON value.
    Json(Json),
    /// A string, verbatim: the content of a file.
    Verbatim(Vec<u8>),
}

/// Why a key cannot be set.
#[allow(missing_docs)]
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum OverrideError {
    #[error("set={key}: this key says how the file is laid out and cannot be set")]
    Layout { key: String },
    #[error("set={key}: the file has a value of type {expected} here, {found} does not fit")]
    Type { key: String, expected: String, found: String },
    #[error("set={key}: {found} is no string, bool, integer, number or array of one of these")]
    Shape { key: String, found: String },
    #[error("set={key}: an empty array does not say what it is an array of")]
    EmptyArray { key: String },
    #[error("set: the key is empty")]
    NoKey,
}

/// Reads the JSON of a setting. An integer that no type of metadata holds is refused: JSON's
/// own numbers would round it.
pub fn json(text: &[u8]) -> Result<Json, String> {
    let value = serde_json::from_slice(text).map_err(|error| format!("not JSON ({error})"))?;
    match integers(text)
        .into_iter()
        .find(|n| n.parse::<u64>().is_err() && n.parse::<i64>().is_err())
    {
        None => Ok(value),
        Some(literal) => Err(format!(
            "{literal} is an integer of more than 64 bits, which no metadata type holds (a float has \
             a point or an exponent)"
        )),
    }
}

/// The integer literals of a valid JSON text.
fn integers(text: &[u8]) -> Vec<&str> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let start = at;
        at += 1;
        match byte {
            b'"' => {
                while let Some(&c) = text.get(at) {
                    at += if c == b'\\' { 2 } else { 1 };
                    if c == b'"' {
                        break;
                    }
                }
            }
            b'-' | b'0'..=b'9' => {
                let more = text[at..]
                    .iter()
                    .take_while(|c| matches!(c, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
                at += more.count();
                found.extend(std::str::from_utf8(&text[start..at]).ok());
            }
            _ => {}
        }
    }
    found.retain(|literal| !literal.contains(['.', 'e', 'E']));
    found
}

/// Sets `key` in `model`. An existing key keeps its type; a new one takes the JSON value's.
pub fn set(model: &mut Model, key: &str, setting: &Setting) -> Result<(), OverrideError> {
    if key.is_empty() {
        return Err(OverrideError::NoKey);
    }
    if key.starts_with("split.") || key == "general.alignment" {
        return Err(OverrideError::Layout { key: key.into() });
    }
    let at = model.metadata.iter().position(|m| *m.key == *key.as_bytes());
    let value = match at {
        Some(at) => {
            like(&model.metadata[at].value, setting).ok_or_else(|| OverrideError::Type {
                key: key.into(),
                expected: type_name(&model.metadata[at].value),
                found: show(setting),
            })?
        }
        None => fresh(key, setting)?,
    };
    if let Value::Str(Text::Inline(bytes)) = &value {
        let text = Some(String::from_utf8_lossy(bytes).into_owned());
        match key {
            "general.architecture" => model.architecture = text,
            "general.name" => model.name = text,
            _ => {}
        }
    }
    match at {
        Some(at) => model.metadata[at].value = value,
        None => model.metadata.push(Meta { key: key.as_bytes().into(), value }),
    }
    Ok(())
}

fn type_name(value: &Value) -> String {
    match value {
        Value::Array(array) => format!("array of {}", array.elem().name()),
        other => other.value_type().name().into(),
    }
}

/// The setting as people typed it, short enough for a message.
fn show(setting: &Setting) -> String {
    const LONGEST: usize = 60;
    match setting {
        Setting::Verbatim(_) => "the string of a file".into(),
        Setting::Json(json) => {
            let text = json.to_string();
            if text.chars().count() <= LONGEST {
                return text;
            }
            text.chars().take(LONGEST).chain("...".chars()).collect()
        }
    }
}

fn string(bytes: &[u8]) -> Value {
    Value::Str(Text::Inline(bytes.into()))
}

/// `setting` in the type of `old`, when it fits.
fn like(old: &Value, setting: &Setting) -> Option<Value> {
    match (old, setting) {
        (Value::Str(_), Setting::Verbatim(bytes)) => Some(string(bytes)),
        (_, Setting::Verbatim(_)) => None,
        (Value::Array(array), Setting::Json(Json::Array(items))) => {
            let elem = array.elem();
            let items = items.iter().map(|item| typed(elem, item)).collect::<Option<Vec<_>>>()?;
            Some(Value::Array(Array::Inline { elem, items }))
        }
        (old, Setting::Json(json)) => typed(old.value_type(), json),
    }
}

/// `json` as a scalar of type `kind`, when it fits exactly.
fn typed(kind: ValueType, json: &Json) -> Option<Value> {
    let unsigned = || json.as_u64();
    let signed = || json.as_i64();
    Some(match kind {
        ValueType::U8 => Value::U8(unsigned()?.try_into().ok()?),
        ValueType::U16 => Value::U16(unsigned()?.try_into().ok()?),
        ValueType::U32 => Value::U32(unsigned()?.try_into().ok()?),
        ValueType::U64 => Value::U64(unsigned()?),
        ValueType::I8 => Value::I8(signed()?.try_into().ok()?),
        ValueType::I16 => Value::I16(signed()?.try_into().ok()?),
        ValueType::I32 => Value::I32(signed()?.try_into().ok()?),
        ValueType::I64 => Value::I64(signed()?),
        // The nearest number to a fraction; an integer must be met exactly, and one beyond the
        // type's range does not fit.
        ValueType::F32 => {
            let nearest = Some(json.as_f64()? as f32).filter(|x| x.is_finite())?;
            Value::F32(Some(nearest).filter(|&x| is_met(json, f64::from(x)))?)
        }
        ValueType::F64 => Value::F64(json.as_f64().filter(|&x| is_met(json, x))?),
        ValueType::Bool => Value::Bool(json.as_bool()?),
        ValueType::Str => string(json.as_str()?.as_bytes()),
        ValueType::Array => return None,
    })
}

/// Whether `float` is the number in `json`, when that is an integer.
fn is_met(json: &Json, float: f64) -> bool {
    let integer = json.as_u64().map(i128::from).or_else(|| json.as_i64().map(i128::from));
    integer.is_none_or(|n| float as i128 == n)
}

/// A new key's value, in the type that the JSON value has.
fn fresh(key: &str, setting: &Setting) -> Result<Value, OverrideError> {
    let json = match setting {
        Setting::Verbatim(bytes) => return Ok(string(bytes)),
        Setting::Json(json) => json,
    };
    let wrong = || OverrideError::Shape { key: key.into(), found: show(setting) };
    match json {
        Json::Array(items) if items.is_empty() => {
            Err(OverrideError::EmptyArray { key: key.into() })
        }
        Json::Array(items) => {
            let elem = common_type(items).ok_or_else(wrong)?;
            let items = items.iter().map(|item| typed(elem, item)).collect::<Option<Vec<_>>>();
            Ok(Value::Array(Array::Inline { elem, items: items.ok_or_else(wrong)? }))
        }
        scalar => natural_type(scalar).and_then(|kind| typed(kind, scalar)).ok_or_else(wrong),
    }
}

/// u64 for a number without sign or fraction, i64 with a sign, else f64.
fn natural_type(json: &Json) -> Option<ValueType> {
    match json {
        Json::String(_) => Some(ValueType::Str),
        Json::Bool(_) => Some(ValueType::Bool),
        Json::Number(n) if n.is_u64() => Some(ValueType::U64),
        Json::Number(n) if n.is_i64() => Some(ValueType::I64),
        Json::Number(_) => Some(ValueType::F64),
        Json::Null | Json::Array(_) | Json::Object(_) => None,
    }
}

/// The one type that holds all `items`: mixed numbers widen, anything else must agree.
fn common_type(items: &[Json]) -> Option<ValueType> {
    use ValueType::{F64, I64, U64};
    let mut types = items.iter().map(natural_type);
    let first = types.next()??;
    types.try_fold(first, |so_far, next| match (so_far, next?) {
        (a, b) if a == b => Some(a),
        (I64, U64) | (U64, I64) => Some(I64),
        (F64, U64 | I64) | (U64 | I64, F64) => Some(F64),
        _ => None,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::model::{ByteOrder, Format};
    use serde_json::json;

    fn model() -> Model {
        let meta = |key: &str, value| Meta { key: key.as_bytes().into(), value };
        Model {
            format: Format::Gguf,
            format_version: 3,
            byte_order: ByteOrder::Little,
            architecture: None,
            name: None,
            metadata: vec![
                meta("n", Value::U8(1)),
                meta("s", string(b"old")),
                meta("a", Value::Array(Array::Inline { elem: ValueType::I16, items: vec![] })),
                meta("f", Value::F32(1.0)),
            ],
            shards: vec![],
            tensors: vec![],
            warnings: vec![],
        }
    }

    fn after(key: &str, json: Json) -> Result<Value, OverrideError> {
        let mut model = model();
        set(&mut model, key, &Setting::Json(json))?;
        Ok(model.meta(key).unwrap().clone())
    }

    #[test]
    fn an_existing_key_keeps_its_type() {
        assert_eq!(after("n", json!(255)).unwrap(), Value::U8(255));
        assert_eq!(after("f", json!(2)).unwrap(), Value::F32(2.0));
        assert_eq!(after("s", json!("new")).unwrap(), string(b"new"));
        let items = vec![Value::I16(-1), Value::I16(2)];
        assert_eq!(
            after("a", json!([-1, 2])).unwrap(),
            Value::Array(Array::Inline { elem: ValueType::I16, items })
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for (key, json) in [
            ("n", json!(256)),
            ("n", json!(-1)),
            ("n", json!("1")),
            ("n", json!(1.5)),
            ("s", json!(1)),
            ("a", json!(1)),
            ("a", json!([40000])),
            ("f", json!(1e300)),
        ] {
            let error = after(key, json.clone()).unwrap_err();
            assert!(matches!(error, OverrideError::Type { .. }), "{key}={json}: {error}");
        }
    }

    #[test]
    fn a_new_key_takes_the_type_of_the_value() {
        assert_eq!(after("x", json!(3)).unwrap(), Value::U64(3));
        assert_eq!(after("x", json!(-3)).unwrap(), Value::I64(-3));
        assert_eq!(after("x", json!(0.5)).unwrap(), Value::F64(0.5));
        assert_eq!(after("x", json!(true)).unwrap(), Value::Bool(true));
        assert!(matches!(
            after("x", json!([1, -1])),
            Ok(Value::Array(Array::Inline { elem: ValueType::I64, .. }))
        ));
        assert!(matches!(after("x", json!([1, "a"])), Err(OverrideError::Shape { .. })));
        assert!(matches!(after("x", json!([])), Err(OverrideError::EmptyArray { .. })));
        assert!(matches!(after("x", json!({})), Err(OverrideError::Shape { .. })));
        assert!(matches!(after("x", json!(null)), Err(OverrideError::Shape { .. })));
    }

    #[test]
    fn integers_are_exact_or_refused() {
        for text in [
            "18446744073709551616",
            "-9223372036854775809",
            "[1, 18446744073709551616]",
            r#"["\\", 99999999999999999999]"#,
        ] {
            assert!(super::json(text.as_bytes()).is_err_and(|e| e.contains("64 bits")), "{text}");
        }
        for text in [
            "18446744073709551615",
            "-9223372036854775808",
            "1.8446744073709551616e19",
            r#""18446744073709551616""#,
            r#"{"a\"18446744073709551616": [1, -2, 3e400000]}"#.split(',').next().unwrap_or("1"),
            "-0",
        ] {
            let read = super::json(text.as_bytes());
            assert!(read.is_ok() || !read.unwrap_err().contains("64 bits"), "{text}");
        }
        assert!(after("f", json!(16_777_217)).is_err());
        assert!(after("x", json!([0.5, u64::MAX])).is_err());
        assert_eq!(after("f", json!(0.1)).unwrap(), Value::F32(0.1));
    }

    #[test]
    fn the_keys_of_the_layout_cannot_be_set() {
        for key in ["split.count", "split.no", "general.alignment"] {
            assert!(matches!(after(key, json!(1)), Err(OverrideError::Layout { .. })));
        }
    }

    #[test]
    fn a_file_is_a_string_verbatim_and_names_reach_the_model() {
        let mut model = model();
        set(&mut model, "s", &Setting::Verbatim(b"{{ x }}\n\xff".to_vec())).unwrap();
        assert_eq!(model.meta("s"), Some(&string(b"{{ x }}\n\xff")));
        set(&mut model, "general.name", &Setting::Json(json!("mine"))).unwrap();
        assert_eq!(model.name.as_deref(), Some("mine"));
        assert!(set(&mut model, "n", &Setting::Verbatim(vec![])).is_err());
    }
}
