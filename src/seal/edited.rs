//! Seals that somebody edited, with their hash made right again.
#![allow(clippy::unwrap_used)]

use super::crc_hex;
use super::tests::Case;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

type Edit = (&'static str, &'static dyn Fn(&mut Value));

#[test]
fn an_untouched_seal_in_other_spacing_is_still_the_seal() {
    let case = Case::new();
    case.seal();
    case.edit(|_| {});
    assert!(case.verify().unwrap().is_good());
}

/// Every byte is as sealed and yet a sum is wrong: that is no damage of the model.
#[test]
fn verify_tells_a_fault_of_the_seal_from_damage() {
    let edits: &[Edit] = &[
        ("\"file0\" has SHA-256", &|b| b["sources"][0]["sha256"] = "00".repeat(32).into()),
        ("\"file1\" has SHA-256", &|b| b["sources"][1]["sha256"] = "00".repeat(32).into()),
        // A sum of a table, and that of the whole with it.
        ("tensor \"t3\": 4096 bytes at 5000 have checksum", &|b| {
            let sums = &mut b["tensors"][3]["crcs"];
            alter(sums, 0, "abcd");
            let table = STANDARD.decode(sums.as_str().unwrap()).unwrap();
            let mut whole = crc32fast::Hasher::new();
            for (number, sum) in (0..).zip(table.as_chunks::<4>().0) {
                let len = 4096.min(35_000 - 4096 * number);
                let sum = u32::from_le_bytes(*sum);
                whole.combine(&crc32fast::Hasher::new_with_initial_len(sum, len));
            }
            b["tensors"][3]["crc32"] = crc_hex(whole.finalize()).into();
        }),
        ("tensor \"t3\": 35000 bytes at 5000 have checksum", &|b| {
            b["tensors"][3]["sha256"] = "00".repeat(32).into()
        }),
    ];
    for (what, edit) in edits {
        let case = Case::new();
        case.seal();
        case.edit(edit);
        let error = case.verify().unwrap_err();
        assert!(error.is_mistrust() && error.to_string().contains(what), "{what}: {error}");
        // Damage elsewhere in the file is damage, and is listed.
        let shard = usize::from(*what != edits[0].0);
        case.flip(shard, case.bytes[shard].len() as u64 - 1, 1);
        let report = case.verify().unwrap();
        assert_eq!(report.bad[0].shard as usize, shard, "{what}");
    }
}

fn remove(entry: &mut Value, key: &str) {
    entry.as_object_mut().unwrap().shift_remove(key).unwrap();
}

/// Puts other characters into a text, which must differ from those there.
fn alter(value: &mut Value, at: usize, with: &str) {
    let mut text = value.as_str().unwrap().to_owned();
    assert_ne!(&text[at..at + with.len()], with);
    text.replace_range(at..at + with.len(), with);
    *value = text.into();
}

/// What may be edited without being refused says nothing about bytes or layout, is shown as
/// what the seal says, or is compared by `verify` (its own test is above): each is named here,
/// so that a new field has to be decided about.
#[test]
fn every_field_is_compared_or_known_to_be_told_only() {
    const TOLD: &[&str] = &[
        "/created",
        "/tool/name",
        "/tool/version",
        "/sources/0/name",  // a warning
        "/sources/1/name",  // a warning
        "/sources/0/mtime", // a warning
        "/sources/1/mtime", // a warning
        "/sources/0/sha256",
        "/sources/1/sha256",
        "/tensors/0/sha256",
        "/tensors/2/sha256",
        "/tensors/3/sha256",
    ];
    fn leaves(value: &Value, path: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, v)| leaves(v, &format!("{path}/{key}"), out));
            }
            Value::Array(list) => {
                list.iter().enumerate().for_each(|(i, v)| leaves(v, &format!("{path}/{i}"), out));
            }
            _ => out.push(path.to_owned()),
        }
    }
    let case = Case::new();
    let good = std::fs::read(case.seal()).unwrap();
    let seal: Value = serde_json::from_slice(&good).unwrap();
    let mut paths = Vec::new();
    leaves(&seal["body"], "", &mut paths);
    assert!(paths.len() > 60, "{paths:?}");
    for path in paths {
        std::fs::write(super::beside(&case.path(0)), &good).unwrap();
        case.edit(|body| {
            let value = body.pointer_mut(&path).unwrap();
            *value = match &*value {
                Value::Number(number) => (number.as_u64().unwrap() + 1).into(),
                Value::String(text) if text.is_empty() => "AAAAAA==".into(),
                // Another digit where it was one, another character of base64 elsewhere.
                Value::String(text) => {
                    let first = if text.starts_with('0') { "1" } else { "0" };
                    format!("{first}{}", &text[1..]).into()
                }
                other => panic!("{path}: {other}"),
            };
        });
        match case.load() {
            Ok(_) => assert!(TOLD.contains(&&*path), "{path} was edited and taken"),
            Err(error) => {
                assert!(error.is_mistrust(), "{path}: {error}");
                assert!(!TOLD.contains(&&*path), "{path}: {error}");
            }
        }
    }
}

/// Somebody edits a field and makes the hash right again.
#[test]
fn every_edited_field_is_refused() {
    let edits: &[Edit] = &[
        ("chunk size", &|b| b["chunk"]["size"] = 8192.into()),
        ("chunk size", &|b| b["chunk"]["size"] = 5000.into()),
        ("algorithm", &|b| b["chunk"]["algorithm"] = "crc32c".into()),
        ("grid", &|b| b["chunk"]["grid"] = "file".into()),
        ("encoding", &|b| b["chunk"]["encoding"] = "hex".into()),
        ("no chunk", &|b| drop(b.as_object_mut().unwrap().shift_remove("chunk"))),
        ("no tensors", &|b| drop(b.as_object_mut().unwrap().shift_remove("tensors"))),
        ("no regions", &|b| drop(b.as_object_mut().unwrap().shift_remove("regions"))),
        ("no sources", &|b| drop(b.as_object_mut().unwrap().shift_remove("sources"))),
        ("source size", &|b| b["sources"][0]["size"] = 250_001.into()),
        ("source list", &|b| drop(b["sources"].as_array_mut().unwrap().pop())),
        ("region kind", &|b| b["regions"][1]["kind"] = "trailing".into()),
        ("region offset", &|b| b["regions"][1]["offset"] = 70_102.into()),
        ("region length", &|b| b["regions"][1]["nbytes"] = 10.into()),
        ("region source", &|b| b["regions"][1]["source"] = 1.into()),
        ("region list", &|b| drop(b["regions"].as_array_mut().unwrap().pop())),
        ("region table", &|b| b["regions"][0]["crcs"] = "AAAAAA==".into()), // header: other sums
        ("tensor name", &|b| b["tensors"][0]["name"] = "t9".into()),
        ("tensor hex name", &|b| b["tensors"][2]["name_hex"] = "00".into()),
        ("tensor hex name", &|b| b["tensors"][2]["name_hex"] = "0".into()),
        ("tensor source", &|b| b["tensors"][0]["source"] = 1.into()),
        ("tensor dtype", &|b| b["tensors"][0]["dtype"] = "I8".into()),
        ("tensor shape", &|b| b["tensors"][0]["shape"] = serde_json::json!([1, 70_001])),
        ("tensor offset", &|b| b["tensors"][0]["offset"] = 101.into()),
        ("tensor length", &|b| b["tensors"][0]["nbytes"] = 70_000.into()),
        ("tensor crc32", &|b| b["tensors"][0]["crc32"] = "123".into()),
        ("tensor crc32", &|b| b["tensors"][0]["crc32"] = "ABCDEF01".into()),
        ("tensor sha256", &|b| b["tensors"][0]["sha256"] = "12".into()),
        ("tensor table", &|b| b["tensors"][0]["crcs"] = "AAAA".into()),
        ("tensor table", &|b| b["tensors"][0]["crcs"] = "A!".into()),
        ("empty tensor's table", &|b| b["tensors"][1]["crcs"] = "AAAAAA==".into()),
        ("tensor list", &|b| drop(b["tensors"].as_array_mut().unwrap().pop())),
        ("tensor twice", &|b| {
            let last = b["tensors"][3].clone();
            b["tensors"].as_array_mut().unwrap().push(last);
        }),
        ("tensor order", &|b| b["tensors"].as_array_mut().unwrap().swap(0, 3)),
        ("a table elsewhere", &|b| b["chunk_table"] = serde_json::json!({})),
        ("source format", &|b| b["sources"][1]["format"] = "safetensors".into()),
        ("source version", &|b| b["sources"][1]["format_version"] = 2.into()),
        ("source data start", &|b| b["sources"][0]["data_start"] = 101.into()),
        ("source data start", &|b| b["sources"][0]["data_start"] = 99.into()),
        ("source infos", &|b| b["sources"][0]["tensor_infos"] = 25.into()),
        ("no source format", &|b| remove(&mut b["sources"][0], "format")),
        ("no source sha256", &|b| remove(&mut b["sources"][0], "sha256")),
        ("no source sha256", &|b| remove(&mut b["sources"][1], "sha256")),
        ("source sha256", &|b| b["sources"][0]["sha256"] = "00".into()),
        ("header crc32", &|b| b["regions"][0]["crc32"] = "12345678".into()),
        ("padding crc32", &|b| b["regions"][1]["crc32"] = "12345678".into()),
        ("trailing crc32", &|b| b["regions"][2]["crc32"] = "12345678".into()),
        ("no crc32", &|b| remove(&mut b["regions"][1], "crc32")),
        ("header sha256", &|b| b["regions"][3]["sha256"] = "00".repeat(32).into()),
        ("padding sha256", &|b| b["regions"][1]["sha256"] = "00".repeat(32).into()),
        ("region table", &|b| b["regions"][1]["crcs"] = "AAAAAA==".into()),
        ("region table", &|b| b["regions"][1]["crcs"] = "AAAAA===".into()),
        ("tensor name beside its bytes", &|b| b["tensors"][2]["name"] = "t2".into()),
        ("whole crc32", &|b| b["tensors"][0]["crc32"] = "12345678".into()),
        ("whole crc32", &|b| b["tensors"][3]["crc32"] = "00000000".into()),
        ("no crc32", &|b| remove(&mut b["tensors"][0], "crc32")),
        ("no sha256", &|b| remove(&mut b["tensors"][2], "sha256")),
        ("empty tensor's crc32", &|b| b["tensors"][1]["crc32"] = "00000001".into()),
        ("empty tensor's crc32", &|b| remove(&mut b["tensors"][1], "crc32")),
        ("empty tensor's sha256", &|b| b["tensors"][1]["sha256"] = "00".repeat(32).into()),
        ("empty tensor's sha256", &|b| remove(&mut b["tensors"][1], "sha256")),
        ("a sum of a table", &|b| alter(&mut b["tensors"][2]["crcs"], 3, "x")),
        ("the last sum of a table", &|b| alter(&mut b["tensors"][2]["crcs"], 194, "x")),
        ("a table's alphabet", &|b| alter(&mut b["tensors"][2]["crcs"], 50, "=")),
        ("a table's padding", &|b| alter(&mut b["tensors"][2]["crcs"], 194, "==")),
        ("arrays of a file that has none", &|b| {
            b["sources"][0]["arrays"] = serde_json::json!([[24, 90]])
        }),
        ("arrays that are no pairs", &|b| b["sources"][1]["arrays"] = serde_json::json!([[24]])),
        ("a table's leftover bits", &|b| alter(&mut b["tensors"][0]["crcs"], 94, "B")),
    ];
    for (what, edit) in edits {
        let case = Case::new();
        case.seal();
        case.edit(edit);
        let error = case.load().err().unwrap_or_else(|| panic!("{what} was taken"));
        assert!(error.is_mistrust(), "{what}: {error}");
        assert!(error.to_string().starts_with(case.dir.path().to_str().unwrap()), "{error}");
    }
}
