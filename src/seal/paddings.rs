//! Seals of files with very many paddings, which are told together where they are zeros.
#![allow(clippy::unwrap_used)]

use super::grid::tests::model;
use super::tests::{Case, pattern};
use super::*;
use crate::source::IoMode;
use serde_json::{Value, json};

/// Paddings of the two files: more than are listed.
const FIRST: usize = 1100;
const SECOND: usize = 1030;
/// Bytes of all those of the first.
const BYTES: u64 = 12 * (FIRST as u64 - 1) + 9000;

/// Two files with paddings of 12 bytes between tensors of 20, but the third of the first, which
/// has 9000; the second has bytes behind the last tensor. Paddings are zeros, but those of `odd`
/// in the first.
fn many(odd: &[usize]) -> Case {
    let mut tensors = Vec::new();
    let mut places = Vec::new();
    let mut at = 100;
    for number in 0..=FIRST {
        tensors.push((0, at, 20));
        let padding = if number == 2 { 9000 } else { 12 };
        places.push((at + 20, padding));
        at += 20 + padding;
    }
    let last = SECOND as u64;
    tensors.extend((0..=last).map(|number| (1, 64 + 32 * number, 20)));
    let model = model(&[(100, at - 12), (64, 64 + 32 * last + 25)], &tensors);
    let mut case = Case::new();
    case.bytes = (1..).zip(&model.shards).map(|(i, s)| pattern(s.len as usize, i)).collect();
    for (number, &(offset, len)) in places[..FIRST].iter().enumerate() {
        if !odd.contains(&number) {
            case.bytes[0][offset as usize..][..len as usize].fill(0);
        }
    }
    for tensor in &tensors[FIRST + 1..][..SECOND] {
        case.bytes[1][tensor.1 as usize + 20..][..12].fill(0);
    }
    for (shard, bytes) in case.bytes.iter().enumerate() {
        std::fs::write(case.path(shard), bytes).unwrap();
    }
    case.model = model;
    case
}

fn regions(case: &Case) -> Vec<Value> {
    let text = std::fs::read(beside(&case.path(0))).unwrap();
    let seal: Value = serde_json::from_slice(&text).unwrap();
    seal["body"]["regions"].as_array().unwrap().clone()
}

/// The regions as the first version wrote them: every padding one by one.
fn one_by_one(case: &Case) -> Vec<Value> {
    let grid = Grid::new(&case.model, 4096);
    let listed = regions(case);
    let pieces = grid.pieces().filter(|p| !matches!(p.part, Part::Tensor(_)));
    let entry = |p: Piece| {
        let here = |r: &&Value| r["source"] == p.shard && r["offset"] == p.offset;
        if let Some(there) = listed.iter().find(here) {
            return there.clone();
        }
        let bytes = &case.bytes[p.shard as usize][p.offset as usize..p.end() as usize];
        let sums: Vec<u8> =
            bytes.chunks(4096).flat_map(|c| crc32fast::hash(c).to_le_bytes()).collect();
        json!({
            "source": p.shard, "kind": p.part.kind(), "offset": p.offset, "nbytes": p.len,
            "crc32": crc_hex(crc32fast::hash(bytes)), "crcs": STANDARD.encode(sums),
        })
    };
    pieces.map(entry).collect()
}

#[test]
fn zeros_are_told_together_and_all_else_one_by_one() {
    let case = many(&[0, 50, 98]);
    case.seal();
    let regions = regions(&case);
    let told: Vec<_> = regions
        .iter()
        .map(|r| (r["source"].as_u64().unwrap(), r["kind"].as_str().unwrap(), &r["zeros"]))
        .collect();
    let none = &Value::Null;
    assert_eq!(
        told,
        [
            (0, "header", none),
            (0, "padding", none),
            (0, "padding", none),
            (0, "padding", none),
            (0, "padding", &json!(FIRST - 3)),
            (1, "header", none),
            (1, "trailing", none),
            (1, "padding", &json!(SECOND)),
        ]
    );
    assert_eq!(
        (&regions[4]["nbytes"], &regions[7]["nbytes"]),
        (&json!(BYTES - 36), &json!(12 * SECOND))
    );
}

#[test]
fn what_is_expected_of_them_are_the_sums_of_their_bytes() {
    let case = many(&[7]);
    case.seal();
    let seal = case.load().unwrap();
    for piece in seal.grid().pieces() {
        let bytes = &case.bytes[piece.shard as usize][piece.offset as usize..piece.end() as usize];
        let sums: Vec<_> = bytes.chunks(4096).map(crc32fast::hash).collect();
        for first in 0..sums.len() {
            let mut out = vec![0; sums.len() - first];
            seal.expected(&piece, first as u64, &mut out).unwrap();
            assert_eq!(out, sums[first..], "{piece:?}");
        }
    }
    assert!(case.verify().unwrap().is_good());
}

#[test]
fn a_bit_in_a_padding_is_found_wherever_it_is() {
    let case = many(&[]);
    case.seal();
    let places: Vec<_> =
        Grid::new(&case.model, 4096).pieces().filter(|p| p.part == Part::Padding).collect();
    assert_eq!(places.len(), FIRST + SECOND);
    for piece in places.into_iter().step_by(97) {
        let at = piece.end() - 1;
        case.flip(piece.shard as usize, at, 0x10);
        let report = case.verify().unwrap();
        let seen: Vec<_> = report.bad.iter().map(|b| (b.part, b.shard, b.offset + b.len)).collect();
        assert_eq!(seen, [(Part::Padding, piece.shard, piece.end())]);
        case.flip(piece.shard as usize, at, 0x10);
    }
}

#[test]
fn few_paddings_are_listed_whatever_they_hold() {
    let mut case = Case::new();
    case.bytes[0][70_101..70_112].fill(0);
    std::fs::write(case.path(0), &case.bytes[0]).unwrap();
    case.seal();
    assert!(regions(&case).iter().all(|region| region["zeros"].is_null()));
    assert!(case.verify().unwrap().is_good());
}

#[test]
fn a_seal_that_lists_them_all_is_read_as_ever() {
    let case = many(&[0, 50, 98]);
    let good = std::fs::read(case.seal()).unwrap();
    let all = one_by_one(&case);
    assert_eq!(all.len(), 3 + FIRST + SECOND);
    case.edit(|body| body["regions"] = all.clone().into());
    assert!(case.verify().unwrap().is_good());
    case.flip(0, 152, 1);
    assert!(!case.verify().unwrap().is_good());
    case.flip(0, 152, 1);
    // Some listed and some told together.
    std::fs::write(beside(&case.path(0)), good).unwrap();
    case.edit(|body| {
        let list = body["regions"].as_array_mut().unwrap();
        list.insert(2, all[4].clone());
        list[5]["zeros"] = (FIRST - 4).into();
        list[5]["nbytes"] = (BYTES - 48).into();
    });
    let mixed = case.verify();
    assert!(mixed.is_ok_and(|report| report.is_good()));
}

type Edit = (&'static str, &'static dyn Fn(&mut Vec<Value>));

#[test]
fn what_is_told_together_is_compared_with_the_files() {
    let edits: &[Edit] = &[
        ("one more", &|r| r[2]["zeros"] = FIRST.into()),
        ("one less", &|r| r[2]["zeros"] = (FIRST - 2).into()),
        ("none", &|r| r[2]["zeros"] = 0.into()),
        ("a byte more", &|r| r[2]["nbytes"] = (BYTES - 11).into()),
        ("no bytes", &|r| drop(r[2].as_object_mut().unwrap().shift_remove("nbytes"))),
        ("the other file's", &|r| r[2]["source"] = 1.into()),
        ("no file's", &|r| r[2]["source"] = 7.into()),
        ("no source", &|r| drop(r[2].as_object_mut().unwrap().shift_remove("source"))),
        ("another kind", &|r| r[2]["kind"] = "trailing".into()),
        ("no kind", &|r| drop(r[2].as_object_mut().unwrap().shift_remove("kind"))),
        ("left out", &|r| drop(r.remove(2))),
        ("left out at the end", &|r| drop(r.pop())),
        ("twice", &|r| r.insert(3, r[2].clone())),
        ("in the other file", &|r| r.swap(2, 5)),
        ("one that is not zeros is left out", &|r| drop(r.remove(1))),
        ("a sum", &|r| r[2]["crc32"] = "00000000".into()),
        ("a table", &|r| r[2]["crcs"] = "".into()),
        ("a hash", &|r| r[2]["sha256"] = "00".repeat(32).into()),
        ("a place", &|r| r[2]["offset"] = 120.into()),
    ];
    let case = many(&[4]);
    let good = std::fs::read(case.seal()).unwrap();
    for (what, edit) in edits {
        std::fs::write(beside(&case.path(0)), &good).unwrap();
        case.edit(|body| edit(body["regions"].as_array_mut().unwrap()));
        let error = case.load().err().unwrap_or_else(|| panic!("{what} was taken"));
        assert!(error.is_mistrust(), "{what}: {error}");
    }
}

#[test]
fn parts_of_such_files_make_the_seal_of_one_run() {
    let case = many(&[3]);
    let whole = std::fs::read(case.seal()).unwrap();
    let parts: Vec<Seal> = (0..2)
        .map(|shard| {
            let mut alone = case.model.clone();
            alone.shards = vec![alone.shards[shard].clone()];
            alone.tensors.retain(|t| t.extent.shard as usize == shard);
            alone.tensors.iter_mut().for_each(|t| t.extent.shard = 0);
            let entry = case.path(shard);
            let open = || vec![Source::open(&entry, IoMode::Auto).unwrap()];
            let options = SealOptions { chunk_bytes: 4096, part: true, ..SealOptions::default() };
            let report =
                super::create::create_in(None, &alone, &open(), &entry, &options, &|_| {}).unwrap();
            Seal::load(&report.path, &alone, &open()).unwrap()
        })
        .collect();
    let options = SealOptions { force: true, ..SealOptions::default() };
    let sources = case.sources(IoMode::Auto);
    let report = merge(&parts, &case.model, &sources, &case.path(0), &options).unwrap();
    let text = |bytes: &[u8]| {
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        // Times differ, and the hash with them.
        text[text.find("\"tool\"").unwrap()..].to_owned()
    };
    assert_eq!(text(&std::fs::read(report.path).unwrap()), text(&whole));
}

#[test]
fn every_byte_that_tells_of_them_counts() {
    let case = many(&[]);
    let path = case.seal();
    let good = std::fs::read(&path).unwrap();
    let told = good.windows(7).position(|w| w == b"\"zeros\"").unwrap();
    for at in told - 50..told + 40 {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&path, bad).unwrap();
        assert!(case.load().unwrap_err().is_mistrust(), "byte {at}");
    }
}
