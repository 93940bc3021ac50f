//! What `verify` says of files that are damaged, cut, grown, gone, or others.

use super::super::*;
use super::{Case, pattern};
use crate::model::Model;
use crate::source::IoMode;
use sha2::{Digest, Sha256};

#[test]
fn verify_names_tensor_chunk_and_offset() {
    let case = Case::new();
    case.seal();
    case.flip(0, 70_112 + 2 * 4096 + 17, 0x20); // tensor 2
    case.flip(0, 70_105, 1); // padding
    case.flip(1, 39_999, 0x80); // end of tensor 3
    let report = case.verify().unwrap();
    let seen: Vec<_> =
        report.bad.iter().map(|b| (b.tensor, b.part, b.chunk, b.shard, b.offset, b.len)).collect();
    assert_eq!(
        seen,
        [
            (None, Part::Padding, Some(0), 0, 70_101, 11),
            (Some(2), Part::Tensor(2), Some(2), 0, 70_112 + 8192, 4096),
            (Some(3), Part::Tensor(3), Some(8), 1, 5000 + 32_768, 2232),
        ]
    );
    let good = &case.bytes[0][70_112 + 8192..][..4096];
    assert_eq!(report.bad[1].expected, crc_hex(crc32fast::hash(good)));
    assert_ne!(report.bad[1].found, report.bad[1].expected);
}

/// A change of five bytes that leaves every CRC32 over them as it was: the generator itself.
fn forge(case: &Case, shard: usize, at: u64) {
    let generator = (0xEDB8_8320u64 << 1 | 1).to_le_bytes();
    (at..).zip(&generator[..5]).for_each(|(at, &mask)| case.flip(shard, at, mask));
}

#[test]
fn verify_sees_what_only_sha256_can() {
    let case = Case::new();
    case.seal();
    let crc = crc32fast::hash(&case.bytes[1][5000..]);
    forge(&case, 1, 6000);
    let bytes = std::fs::read(case.path(1)).unwrap();
    assert_ne!(bytes, case.bytes[1]);
    assert_eq!(crc32fast::hash(&bytes[5000..]), crc);
    let report = case.verify().unwrap();
    assert_eq!(report.bad.len(), 1);
    assert_eq!((report.bad[0].tensor, report.bad[0].chunk), (Some(3), None));
    assert_eq!(report.bad[0].found, hex(&Sha256::digest(&bytes[5000..])));
    // In a header it is seen before the model is mounted.
    std::fs::write(case.path(1), &case.bytes[1]).unwrap();
    forge(&case, 1, 300);
    let error = case.load().unwrap_err();
    assert!(error.to_string().contains("the header of"), "{error}");
    let check = |sha256| {
        let options = VerifyOptions { sha256, file: None };
        let (path, sources) = (beside(&case.path(0)), case.sources(IoMode::Auto));
        verify_against(&path, &case.model, &sources, options, &|_| {}).unwrap().report.bad
    };
    assert_eq!(check(true).len(), 1);
    assert_eq!((check(true)[0].part, check(true)[0].chunk), (Part::Header, None));
    assert_eq!(check(false), []);
}

#[test]
fn a_damaged_header_is_damage_and_another_model_is_not() {
    let case = Case::new();
    let path = case.seal();
    case.flip(1, 4500, 8);
    let options = VerifyOptions::default();
    let check =
        |model: &Model| verify_against(&path, model, &case.sources(IoMode::Auto), options, &|_| {});
    let unopened = || case.verify_unopened();
    // The header still says the same of the tensors (a metadata value was hit).
    let verified = check(&case.model).unwrap();
    let bad = &verified.report.bad;
    assert_eq!((bad.len(), bad[0].part, bad[0].shard, bad[0].chunk), (1, Part::Header, 1, Some(1)));
    assert!(verified.described.is_none());
    // It says something else (a name was hit).
    let mut other = case.model.clone();
    other.tensors[3].name = b"t\x83".as_slice().into();
    let verified = check(&other).unwrap();
    assert_eq!((verified.report.bad.len(), verified.report.bad[0].part), (1, Part::Header));
    assert_eq!(verified.described.unwrap().tensors, case.model.tensors);
    // It says nothing any more: the model cannot be opened.
    let verified = unopened().unwrap().unwrap();
    assert_eq!(verified.described.unwrap().shards, case.model.shards);
    // With a sound header, a description that differs is another model's.
    case.flip(1, 4500, 8);
    assert!(check(&other).unwrap_err().is_mistrust());
    assert!(unopened().is_none());
    // So it is when most bytes differ.
    std::fs::write(case.path(0), pattern(250_000, 99)).unwrap();
    assert!(check(&other).unwrap_err().is_mistrust());
    assert!(unopened().is_none());
}

/// Places (shard, offset, length) that a report calls bad, and why those are not there.
fn places(verified: &Verified) -> Vec<(u32, u64, u64, &str)> {
    let place = |bad: &'_ Bad| (bad.shard, bad.offset, bad.len);
    let mut all = Vec::new();
    for bad in &verified.report.bad {
        let (shard, offset, len) = place(bad);
        all.push((shard, offset, len, bad.found.strip_prefix("unreadable: ").unwrap_or("")));
    }
    all
}

#[test]
fn a_file_that_is_cut_lacks_what_stood_behind() {
    let case = Case::new();
    case.seal();
    let cut = |shard: usize, len: u64| {
        std::fs::write(case.path(shard), &case.bytes[shard][..len as usize]).unwrap();
        case.verify_unopened().unwrap().unwrap()
    };
    // The last five bytes, behind all tensors.
    let verified = cut(0, 249_995);
    let at = 70_112 + 150_000;
    let last = at + (250_000 - at) / 4096 * 4096;
    assert_eq!(places(&verified), [(0, last, 250_000 - last, "the file ends at 249995")]);
    assert_eq!(verified.lengths, [Some(249_995), Some(40_000)]);
    let bad = &verified.report.bad[0];
    assert_eq!((bad.tensor, bad.part), (None, Part::Trailing));
    // Within a tensor: from the chunk that is cut on.
    let verified = cut(0, 70_112 + 4096 * 3 + 1);
    assert_eq!(verified.report.bad[0].tensor, Some(2));
    assert_eq!(
        (verified.report.bad[0].chunk, places(&verified)[0].1),
        (Some(3), 70_112 + 4096 * 3)
    );
    let all: u64 = places(&verified).iter().map(|place| place.2).sum();
    assert_eq!(all, 250_000 - (70_112 + 4096 * 3));
    // Damage in what is left is found as well.
    case.flip(0, 70_112, 1);
    let verified = case.verify_unopened().unwrap().unwrap();
    assert_eq!(places(&verified)[0], (0, 70_112, 4096, ""));
    // Nothing is left, and even then the other file says whose seal it is.
    for len in [50, 0] {
        assert_eq!(places(&cut(0, len))[0].1, 0, "{len}");
    }
    // Others' bytes that are fewer are another file.
    std::fs::write(case.path(0), pattern(100_000, 99)).unwrap();
    assert!(case.verify_unopened().is_none());
}

#[test]
fn a_file_that_grew_has_too_much_and_one_that_is_gone_lacks_all() {
    let case = Case::new();
    case.seal();
    let long = [&case.bytes[1][..], b"12345"].concat();
    std::fs::write(case.path(1), long).unwrap();
    let verified = case.verify_unopened().unwrap().unwrap();
    assert_eq!(places(&verified), [(1, 40_000, 5, "")]);
    let bad = &verified.report.bad[0];
    assert_eq!((&*bad.expected, &*bad.found), (END, "5 bytes more"));
    std::fs::remove_file(case.path(1)).unwrap();
    let verified = case.verify_unopened().unwrap().unwrap();
    assert_eq!(verified.lengths, [Some(250_000), None]);
    assert!(
        places(&verified).iter().all(|place| (place.0, place.3) == (1, "there is no such file"))
    );
    assert_eq!(places(&verified).iter().map(|place| place.2).sum::<u64>(), 40_000);
    std::fs::remove_file(case.path(0)).unwrap();
    assert!(case.verify_unopened().is_none(), "a seal alone is no damaged model");
}

#[test]
fn what_was_asked_for_has_to_be_a_file_of_the_seal() {
    let case = Case::new();
    let seal = case.seal();
    case.flip(0, 50, 1);
    let (entry, options) = (case.path(0), VerifyOptions::default());
    let ask = |named: Option<&Path>| {
        verify_unopened(&seal, &entry, named, IoMode::Auto, options, &|_| {}).is_some()
    };
    assert!(ask(None) && ask(Some(&case.path(0))) && ask(Some(&case.path(1))));
    assert!(!ask(Some(&case.path(2))) && !ask(Some(Path::new("/file1"))));
    assert_eq!(sealed_in(case.dir.path()), [entry]);
}

#[test]
fn a_seal_that_leads_elsewhere_is_not_followed() {
    let case = Case::new();
    case.seal();
    case.flip(0, 50, 1);
    for name in ["../x", "/etc/passwd", "..", "sub/file1", ""] {
        case.edit(|body| body["sources"][1]["name"] = name.into());
        assert!(case.verify_unopened().is_none());
    }
    case.edit(|body| body["sources"][1]["name"] = "file1".into());
    assert!(case.verify_unopened().is_some());
    for edit in [("offset", u64::MAX), ("nbytes", 1 << 40), ("source", 2)] {
        case.edit(|body| body["tensors"][3][edit.0] = edit.1.into());
        assert!(case.verify_unopened().is_none());
    }
}

#[test]
fn sha256_of_a_whole_file() {
    let case = Case::new();
    let sum = sha256_file(&case.sources(IoMode::Auto)[0], &|_| {}).unwrap();
    assert_eq!(sum, <[u8; 32]>::from(Sha256::digest(&case.bytes[0])));
}
