//! Seals that somebody else wrote, from the published layout alone.
#![allow(clippy::unwrap_used)]

use super::described::described;
use super::tests::Case;
use super::*;
use crate::model::Format;
use serde_json::{Map, Value, json};

fn remove(entry: &mut Value, key: &str) {
    entry.as_object_mut().unwrap().shift_remove(key).unwrap();
}

/// The keys of an object in this order.
fn reorder(value: &mut Value, order: &[&str]) {
    let old = value.as_object_mut().unwrap();
    let new: Map<_, _> =
        order.iter().map(|&key| (key.to_owned(), old.shift_remove(key).unwrap())).collect();
    assert!(old.is_empty(), "{old:?}");
    *value = Value::Object(new);
}

/// Only what the layout names: nothing that saves time.
fn plain(body: &mut Value) {
    for source in body["sources"].as_array_mut().unwrap() {
        remove(source, "data_start");
        remove(source, "tensor_infos");
    }
    for region in body["regions"].as_array_mut().unwrap() {
        if region["kind"] == "trailing" {
            region["kind"] = "padding".into();
        }
    }
}

/// Ends the header of a file at `end`: what lies behind it up to the data is padding.
fn cut_header(case: &Case, body: &mut Value, shard: usize, end: usize) {
    let regions = body["regions"].as_array_mut().unwrap();
    let at = regions.iter().position(|r| r["source"] == shard && r["kind"] == "header").unwrap();
    let whole = regions[at]["nbytes"].as_u64().unwrap() as usize;
    let entry = |kind: &str, from: usize, to: usize| {
        let bytes = &case.bytes[shard][from..to];
        let sums: Vec<u8> =
            bytes.chunks(4096).flat_map(|c| crc32fast::hash(c).to_le_bytes()).collect();
        json!({
            "source": shard, "kind": kind, "offset": from, "nbytes": to - from,
            "crc32": crc_hex(crc32fast::hash(bytes)), "crcs": STANDARD.encode(sums),
        })
    };
    regions[at] = entry("header", 0, end);
    regions.insert(at + 1, entry("padding", end, whole));
}

const ORDERS: [[&str; 6]; 4] = [
    ["chunk", "created", "regions", "sources", "tensors", "tool"],
    ["tensors", "tool", "sources", "regions", "created", "chunk"],
    ["tensors", "regions", "sources", "created", "chunk", "tool"],
    ["sources", "regions", "chunk", "tensors", "created", "tool"],
];

type Edit = (&'static str, &'static dyn Fn(&mut Value));

const EDITS: &[Edit] = &[
    ("plain", &plain),
    ("no data start", &|b| remove(&mut b["sources"][0], "data_start")),
    ("no infos", &|b| remove(&mut b["sources"][1], "tensor_infos")),
    ("nulls", &|b| {
        for key in ["data_start", "tensor_infos", "arrays", "mtime"] {
            b["sources"][0][key] = Value::Null;
        }
    }),
    ("no mtime", &|b| remove(&mut b["sources"][0], "mtime")),
    ("no tool", &|b| remove(b, "tool")),
    ("a padding at the end", &|b| b["regions"][2]["kind"] = "padding".into()),
    ("header without SHA-256", &|b| remove(&mut b["regions"][0], "sha256")),
    ("headers with null", &|b| {
        b["regions"][0]["sha256"] = Value::Null;
        b["regions"][3]["sha256"] = Value::Null;
    }),
    ("order 0", &|b| reorder(b, &ORDERS[0])),
    ("order 1", &|b| reorder(b, &ORDERS[1])),
    ("order 2", &|b| reorder(b, &ORDERS[2])),
    ("order 3", &|b| reorder(b, &ORDERS[3])),
    ("plain in another order", &|b| {
        plain(b);
        reorder(b, &ORDERS[1]);
    }),
];

/// With all of its bytes checked, and a flipped one found, wherever it is.
#[test]
fn what_the_layout_allows_is_taken_and_checks_everything() {
    for (what, edit) in EDITS {
        let case = Case::new();
        case.seal();
        let before = case.load().unwrap();
        case.edit(edit);
        let seal = case.load().unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(case.verify().unwrap().is_good(), "{what}");
        for index in 0..case.model.tensors.len() {
            assert_eq!(seal.tensor(index), before.tensor(index), "{what}");
        }
        for (shard, at) in [(0, 70_105), (0, 200), (1, case.bytes[1].len() as u64 - 1)] {
            case.flip(shard, at, 1);
            assert_eq!(case.verify().unwrap().bad.len(), 1, "{what}: {shard} {at}");
            case.flip(shard, at, 1);
        }
        for shard in 0..2 {
            case.flip(shard, 9, 1);
            assert!(case.load().unwrap_err().is_mistrust(), "{what}: header of {shard}");
            let verified = case.verify_unopened().unwrap().unwrap();
            assert_eq!(verified.report.bad.len(), 1, "{what}");
            case.flip(shard, 9, 1);
        }
    }
}

#[test]
fn white_space_may_stand_wherever_json_allows_it() {
    let case = Case::new();
    let path = case.seal();
    let good = std::fs::read_to_string(&path).unwrap();
    for (before, after) in [("", "\n\n"), (" \t\r\n", ""), ("\n", " \r\n\t ")] {
        std::fs::write(&path, format!("{before}{}{after}", good.trim_end())).unwrap();
        assert!(case.verify().unwrap().is_good());
        assert!(is_seal(&path) && described(&path).is_ok() && peek(&path).is_ok());
    }
    for after in ["x", "\n{}", "\u{a0}", "\0"] {
        std::fs::write(&path, format!("{}{after}", good.trim_end())).unwrap();
        assert!(case.load().unwrap_err().is_mistrust(), "{after:?}");
    }
}

#[test]
fn the_outermost_keys_may_stand_in_any_order() {
    let case = Case::new();
    let path = case.seal();
    let good = std::fs::read_to_string(&path).unwrap();
    let (head, body) = good.trim_end().split_once(",\"body\":").unwrap();
    let (version, hash) = head[1..].split_once(',').unwrap();
    let body = format!("\"body\":{}", &body[..body.len() - 1]);
    for parts in [[hash, version, &*body], [&*body, hash, version], [version, &*body, hash]] {
        std::fs::write(&path, format!("{{{}}}", parts.join(","))).unwrap();
        assert!(case.verify().unwrap().is_good());
        assert!(is_seal(&path));
    }
}

/// safetensors has no version: nothing, 0 and 1 are said of it.
#[test]
fn a_version_that_means_none() {
    let mut case = Case::new();
    (case.model.format, case.model.format_version) = (Format::Safetensors, 0);
    case.seal();
    for version in [Value::Null, 0.into(), 1.into()] {
        case.edit(|b| b["sources"][0]["format_version"] = version.clone());
        assert!(case.verify().unwrap().is_good(), "{version}");
    }
    case.edit(|b| remove(&mut b["sources"][0], "format_version"));
    assert!(case.verify().unwrap().is_good());
    for version in [json!(2), json!(-1), json!("1"), json!(1.0)] {
        case.edit(|b| b["sources"][0]["format_version"] = version.clone());
        assert!(case.load().unwrap_err().is_mistrust(), "{version}");
    }
}

/// Of a GGUF it says which layout the header has.
#[test]
fn a_gguf_has_a_version() {
    let case = Case::new();
    case.seal();
    case.edit(|b| remove(&mut b["sources"][0], "format_version"));
    assert!(case.load().unwrap_err().is_mistrust());
}

/// What is wrong is wrong in every order.
#[test]
fn another_order_hides_nothing() {
    let wrong: &[Edit] = &[
        ("hash", &|b| b["sources"][0]["size"] = 1.into()),
        ("chunk", &|b| b["chunk"]["size"] = 8192.into()),
        ("no chunk", &|b| remove(b, "chunk")),
        ("dtype", &|b| b["tensors"][0]["dtype"] = "I8".into()),
        ("crc", &|b| b["tensors"][0]["crc32"] = "12345678".into()),
        ("table", &|b| b["tensors"][0]["crcs"] = "AAAA".into()),
        ("region", &|b| b["regions"][1]["nbytes"] = 10.into()),
        ("one less", &|b| drop(b["tensors"].as_array_mut().unwrap().pop())),
    ];
    for (what, edit) in wrong {
        let case = Case::new();
        case.seal();
        case.edit(|body| {
            reorder(body, &ORDERS[1]);
            edit(body);
        });
        let error = case.load().err().unwrap_or_else(|| panic!("{what} was taken"));
        assert!(error.is_mistrust(), "{what}: {error}");
    }
}

/// The header may end where its text ends, before what aligns the data.
#[test]
fn a_header_without_its_padding_is_the_header_all_the_same() {
    for (first, second, order) in [(true, false, 0), (false, true, 1), (true, true, 2)] {
        let case = Case::new();
        case.seal();
        case.edit(|body| {
            if second {
                cut_header(&case, body, 1, 5);
            }
            if first {
                cut_header(&case, body, 0, 60);
            }
            plain(body);
            reorder(body, &ORDERS[order]);
        });
        case.load().unwrap();
        assert!(case.verify().unwrap().is_good());
        for (shard, at) in [(0, 10), (0, 59), (0, 60), (0, 99), (1, 0), (1, 7)] {
            case.flip(shard, at, 1);
            assert!(case.load().unwrap_err().is_mistrust(), "{shard} {at}");
            case.flip(shard, at, 1);
        }
        // Nothing may be left out, nor be there twice.
        for (from, to) in [(1, 0), (1, 1), (0, 0)] {
            let sound = std::fs::read(beside(&case.path(0))).unwrap();
            case.edit(|body| {
                let regions = body["regions"].as_array_mut().unwrap();
                let at = if first { from } else { 2 + from };
                match to {
                    0 => drop(regions.remove(at)),
                    _ => regions.insert(at, regions[at].clone()),
                }
            });
            assert!(case.load().unwrap_err().is_mistrust(), "{from} {to}");
            std::fs::write(beside(&case.path(0)), sound).unwrap();
        }
    }
}
