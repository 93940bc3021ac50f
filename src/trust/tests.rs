//! Anchors against one another, against what is known and against the bytes; lists and what
//! is found beside a model.

mod wild;

use super::testing::{Case, sha};
use super::*;
use crate::bytes::hex::from_hex;
use std::collections::HashMap;

fn digest(text: &str) -> [u8; 32] {
    from_hex(text.as_bytes()).unwrap()
}

fn anchor(shard: usize, kind: Kind, claim: Claim) -> Anchor {
    Anchor { kind, shard, origin: "/x/list".into(), repo: None, commit: None, claim }
}

fn of_file(sha256: [u8; 32]) -> Claim {
    Claim { sha256: Some(sha256), ..Claim::default() }
}

#[derive(Default)]
struct Some256(HashMap<usize, [u8; 32]>, HashMap<usize, ([u8; 32], u32)>, HashMap<usize, u32>);

impl Known for Some256 {
    fn file_sha256(&self, shard: usize) -> Option<[u8; 32]> {
        self.0.get(&shard).copied()
    }

    fn file_crc32(&self, shard: usize) -> Option<u32> {
        self.2.get(&shard).copied()
    }

    fn tensor_sha256(&self, index: usize) -> Option<[u8; 32]> {
        self.1.get(&index).map(|(sha, _)| *sha)
    }

    fn tensor_crc32(&self, index: usize) -> Option<u32> {
        self.1.get(&index).map(|(_, crc)| *crc)
    }
}

#[test]
fn an_anchor_agrees_disagrees_or_has_nothing_in_common() {
    let case = Case::new(&[&["a", "b"], &["c"]]);
    let known = Some256([(0, [1; 32])].into(), [(1, ([2; 32], 7))].into(), [(0, 5)].into());
    let verdict = |shard, claim| {
        let anchor = anchor(shard, Kind::Sha256Sums, claim);
        let wrong = contradicted(std::slice::from_ref(&anchor), &case.model, &known, "sealed");
        let agrees = agreement(&anchor, &known);
        assert_eq!(agrees == Some(false), wrong.is_some());
        agrees
    };
    assert_eq!(verdict(0, of_file([1; 32])), Some(true));
    assert_eq!(verdict(0, of_file([9; 32])), Some(false));
    assert_eq!(verdict(1, of_file([1; 32])), None, "of a file that nobody hashed");
    let tensors = |list: &[(u32, Sum)]| Claim { tensors: list.to_vec(), ..Claim::default() };
    assert_eq!(verdict(0, tensors(&[(1, Sum::Sha256([2; 32]))])), Some(true));
    assert_eq!(verdict(0, tensors(&[(1, Sum::Crc32(7))])), Some(true));
    assert_eq!(verdict(0, tensors(&[(1, Sum::Crc32(8))])), Some(false));
    assert_eq!(verdict(0, tensors(&[(0, Sum::Crc32(8))])), None);
    let both = Claim { tensors: vec![(1, Sum::Crc32(8))], ..of_file([1; 32]) };
    assert_eq!(verdict(0, both), Some(false));
    let crc = |crc32| Claim { crc32: Some(crc32), ..of_file([1; 32]) };
    assert_eq!((verdict(0, crc(5)), verdict(0, crc(6))), (Some(true), Some(false)));
    let both =
        Claim { tensors: vec![(1, Sum::Sha256([2; 32])), (1, Sum::Crc32(8))], ..Claim::default() };
    assert_eq!(verdict(0, both), Some(false), "a right SHA-256 does not hide a wrong CRC32");
    assert_eq!(verdict(0, Claim { payload: Some([3; 32]), ..Claim::default() }), None);
}

#[test]
fn a_contradiction_names_both_and_fits_four_lines() {
    let case = Case::new(&[&["a"], &["c"]]);
    let store =
        Anchor { origin: "/hub/blobs/01".into(), ..anchor(1, Kind::HfBlob, of_file([1; 32])) };
    let list = anchor(1, Kind::Sha256Sums, of_file([2; 32]));
    let other = anchor(0, Kind::Sha256Sums, of_file([3; 32]));
    let wrong = contradiction(&[other.clone(), store.clone(), list], &case.model).unwrap();
    let text = wrong.to_string();
    assert_eq!(
        text,
        format!(
            "m1: two trusted sources disagree about the SHA-256 of the whole file\n  {} by the name of the blob /hub/blobs/01\n  {} in /x/list",
            "01".repeat(32),
            "02".repeat(32)
        )
    );
    assert_eq!(contradiction(&[other, store], &case.model), None);
}

#[test]
fn lists_of_tensors_contradict_each_other_too() {
    let case = Case::new(&[&["a", "b", "c"]]);
    let tensors = |list: &[(u32, Sum)]| {
        anchor(0, Kind::GgufHash, Claim { tensors: list.to_vec(), ..Claim::default() })
    };
    let one = tensors(&[(0, Sum::Crc32(1)), (1, Sum::Sha256([1; 32])), (2, Sum::Crc32(2))]);
    let two = tensors(&[(1, Sum::Sha256([2; 32])), (2, Sum::Crc32(2))]);
    let three = tensors(&[(0, Sum::Sha256([3; 32])), (2, Sum::Crc32(3))]);
    let wrong = contradiction(&[one.clone(), two.clone()], &case.model).unwrap();
    assert_eq!((wrong.of.as_str(), wrong.sum), ("its tensor \"b\"", "SHA-256"));
    let wrong = contradiction(&[one.clone(), three.clone()], &case.model).unwrap();
    assert_eq!((wrong.of.as_str(), wrong.sum), ("its tensor \"c\"", "CRC32"));
    assert!(contradiction(&[two, three], &case.model).is_some());
    assert_eq!(contradiction(&[one.clone(), one], &case.model), None);
}

#[test]
fn a_tensor_is_contradicted_while_it_is_sealed() {
    let case = Case::new(&[&["a", "b"]]);
    let claim =
        Claim { tensors: vec![(0, Sum::Crc32(5)), (1, Sum::Sha256([1; 32]))], ..Claim::default() };
    let anchors = [anchor(0, Kind::GgufHash, claim)];
    let check = |index, sha256, crc32| {
        contradicted_tensor(&anchors, &case.model, index, sha256, crc32, "found").is_some()
    };
    assert!(!check(0, None, 5) && check(0, None, 6));
    assert!(!check(1, Some([1; 32]), 9) && check(1, Some([2; 32]), 9) && !check(1, None, 9));
}

#[test]
fn what_several_say_is_joined() {
    let a = Claim { tensors: vec![(0, Sum::Crc32(1)), (2, Sum::Crc32(2))], ..of_file([1; 32]) };
    let b = Claim { tensors: vec![(0, Sum::Sha256([7; 32]))], ..Claim::default() };
    let anchors = [anchor(1, Kind::Sfv, a), anchor(1, Kind::GgufHash, b)];
    let joined = joined(&anchors, 2);
    assert!(joined[0].is_empty());
    assert_eq!(joined[1].sha256, Some([1; 32]));
    let all = [(0, Sum::Sha256([7; 32])), (0, Sum::Crc32(1)), (2, Sum::Crc32(2))];
    assert_eq!(joined[1].tensors, all);
}

/// What a list says, in short.
fn read(case: &Case, name: &str, text: &str) -> Result<List, ListError> {
    List::read(&case.put(name, text), &case.model)
}

#[test]
fn a_list_of_files_matches_by_the_last_part_of_the_name() {
    let case = Case::new(&[&["a"], &["b"]]);
    let (zero, one) = (case.sha_of_file(0), case.sha_of_file(1));
    let text = format!("# made by hand\n{zero}  models/m0\nSHA256 (./m1) = {one}\n{zero}  other\n");
    let list = read(&case, "list", &text).unwrap();
    assert_eq!(list.kind, Kind::Sha256Sums);
    assert_eq!(list.claims, [of_file(digest(&zero)), of_file(digest(&one))]);
    assert_eq!(list.strangers, (1, Some("other".to_owned())));
}

#[test]
fn a_list_of_a_mount_has_tensors() {
    let case = Case::new(&[&["a", "x/y"]]);
    let (file, a, b) = (case.sha_of_file(0), case.sha_of_tensor(0), case.sha_of_tensor(1));
    let text = format!(
        "{file}  source/m0\n{a}  tensors/a.bin\n{b}  tensors/x%2Fy.bin\n{b}  tensors/z.bin\n"
    );
    let list = read(&case, "SHA", &text).unwrap();
    assert_eq!(list.claims[0].sha256, Some(digest(&file)));
    let tensors = [(0, Sum::Sha256(digest(&a))), (1, Sum::Sha256(digest(&b)))];
    assert_eq!(list.claims[0].tensors, tensors);
    assert_eq!(list.strangers.0, 1);
    let list = read(&case, "t.sfv", "; SFV\ntensors/a.bin 0000000A\n").unwrap();
    assert_eq!((list.kind, &*list.claims[0].tensors), (Kind::Sfv, &[(0, Sum::Crc32(10))][..]));
}

#[test]
fn a_manifest_of_gguf_hash_has_its_traps() {
    let case = Case::new(&[&["blk.0:w", "a b", "c/m0:d"]]);
    let [x, y, z] = [0, 1, 2].map(|i| case.sha_of_tensor(i));
    let all = sha(&[case.tensor(0), case.tensor(1), case.tensor(2)].concat());
    let text = format!(
        "xxh64     f66e9cd66a4396a0  C:/d:e/m0:blk.0:w\nxxh64     f66e9cd66a4396a0  C:/d:e/m0\nsha256    {x}  C:/d:e/m0:blk.0:w\n\
         sha256    {y}  C:/d:e/m0:a b\nsha256    {z}  C:/d:e/m0:c/m0:d\nsha256    {all}  C:/d:e/m0\n"
    );
    let list = read(&case, "m0.manifest", &text).unwrap();
    assert_eq!(list.kind, Kind::GgufHash);
    // The last line is no SHA-256 of the file, though it looks like one.
    assert_eq!((list.claims[0].sha256, list.claims[0].payload), (None, Some(digest(&all))));
    let tensors: Vec<_> =
        list.claims[0].tensors.iter().map(|(i, sum)| (*i, sum.digits())).collect();
    assert_eq!(tensors, [(0, x), (0, "f66e9cd66a4396a0".to_owned()), (1, y), (2, z)]);
    assert_eq!(list.claims[0].payload_xxh64, Some(0xf66e_9cd6_6a43_96a0));
    assert_eq!(list.strangers.0, 0);
    let colons = format!("sha256    {all}  {}\n", ":".repeat(30_000));
    assert!(read(&case, "colons", &colons).unwrap().claims[0].is_empty());
}

#[test]
fn a_digest_alone_is_of_the_file_that_the_list_is_named_after() {
    let case = Case::new(&[&["a"], &["b"]]);
    let one = case.sha_of_file(1);
    assert_eq!(read(&case, "m1.sha256", &one).unwrap().claims[1].sha256, Some(digest(&one)));
    assert!(read(&case, "some.sha256", &one).unwrap().claims.iter().all(Claim::is_empty));
    let single = Case::new(&[&["a"]]);
    let zero = single.sha_of_file(0);
    assert_eq!(read(&single, "digest", &zero).unwrap().claims[0].sha256, Some(digest(&zero)));
}

#[test]
fn two_lines_that_disagree_and_texts_that_are_no_list() {
    let case = Case::new(&[&["a"]]);
    let zero = case.sha_of_file(0);
    let text = format!("{zero}  m0\n{zero}  m0\n{}  m0\n", "0".repeat(64));
    let error = read(&case, "l", &text).unwrap_err();
    assert!(error.to_string().ends_with("l: two different digests for m0"), "{error}");
    for text in ["", "hello\n", "{}", "[1]", "{\"a\":", "weightfs_report: 2\n", "\u{feff}{\"x\":1}"]
    {
        assert!(matches!(read(&case, "l", text), Err(ListError::Unfit { .. })), "{text}");
    }
    let deep = format!("{{\"a\":{}", "[".repeat(100_000));
    assert!(matches!(read(&case, "l", &deep), Err(ListError::Unfit { .. })));
    let absent = List::read(&case.root.join("none"), &case.model);
    assert!(matches!(absent, Err(ListError::Absent { .. })));
}

#[test]
fn a_report_is_read_back_in_both_forms() {
    let case = Case::new(&[&["a", "b"]]);
    let (file, a) = (case.sha_of_file(0), case.sha_of_tensor(0));
    let yaml = format!(
        "weightfs_report: 1\ngenerated: \"x\"\nsource: {{\"file\": \"m0\", \"sha256\": \"{}\"}}\nfiles:\n  - {{\"file\": \"m0\", \"sha256\": \"{file}\"}}\n\
         anchors:\n  - {{\"file\": \"m0\", \"sha256\": \"{a}\"}}\ntensors:\n  - {{\"name\": \"a\", \"sha256\": \"{a}\", \"crc32\": \"00000001\"}}\n\
         \x20 - {{\"name\": \"?\", \"name_hex\": \"62\", \"crc32\": \"0000000b\"}}\n  - {{\"name\": \"zz\"}}\n",
        "0".repeat(64)
    );
    let json = format!(
        "{{\"weightfs_report\": 1, \"files\": [{{\"file\": \"m0\", \"sha256\": \"{file}\"}}], \"anchors\": [], \
         \"tensors\": [{{\"name\": \"a\", \"sha256\": \"{a}\"}}, {{\"name\": \"?\", \"name_hex\": \"62\", \"sha256\": null, \"crc32\": \"0000000b\"}}, {{\"name\": \"zz\"}}]}}"
    );
    let (sha, crc) = ((0, Sum::Sha256(digest(&a))), (1, Sum::Crc32(11)));
    for (text, tensors) in [(yaml, vec![sha, (0, Sum::Crc32(1)), crc]), (json, vec![sha, crc])] {
        let list = read(&case, "r", &text).unwrap();
        assert_eq!(list.kind, Kind::Provenance);
        assert_eq!(list.claims[0].sha256, Some(digest(&file)));
        assert_eq!(list.claims[0].tensors, tensors);
        assert_eq!(list.strangers, (1, Some("zz".to_owned())));
    }
    for bad in ["  - {", "  - {\"name\": 1}", "  - {\"name\": \"a\", \"sha256\": \"12\"}"] {
        let text = format!("weightfs_report: 1\ntensors:\n{bad}\n");
        assert!(matches!(read(&case, "r", &text), Err(ListError::Unfit { .. })), "{bad}");
    }
}

#[test]
fn what_lies_beside_is_found_and_what_leads_away_is_not() {
    let case = Case::new(&[&["a"], &["b"]]);
    let (zero, one) = (case.sha_of_file(0), case.sha_of_file(1));
    let kinds = |case: &Case| {
        let found = find(&case.model, &case.sources());
        let kinds: Vec<_> = found.anchors.iter().map(|a| (a.kind, a.shard)).collect();
        (kinds, found.warnings)
    };
    assert_eq!(kinds(&case), (vec![], vec![]));
    case.put("SHA256SUMS", format!("{zero}  m0\n{one}  elsewhere/m2\n{one}  ../x/m2\n"));
    assert_eq!(kinds(&case), (vec![(Kind::Sha256Sums, 0)], vec![]));
    case.put("m1.sha256", format!("{one}\n"));
    case.put("m0.manifest", format!("sha256    {}  x/m0:a\n", case.sha_of_tensor(0)));
    let (found, warnings) = kinds(&case);
    let want = [(Kind::GgufHash, 0), (Kind::Sha256Sums, 0), (Kind::Sha256Sums, 1)];
    assert_eq!((found.as_slice(), warnings.len()), (&want[..], 0));
    let outside = case.dir.path().with_extension("outside");
    std::fs::write(&outside, format!("{zero}  m0\n")).unwrap();
    std::os::unix::fs::symlink(&outside, case.root.join("sha256sum.txt")).unwrap();
    let (found, warnings) = kinds(&case);
    std::fs::remove_file(outside).unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("leads out of the model's directory"), "{warnings:?}");
}

/// One that is right and one that is wrong: whoever added the second must not make both go away.
#[test]
fn a_list_beside_that_contradicts_itself_is_two_sources_that_disagree() {
    let case = Case::new(&[&["a"]]);
    let (zero, a) = (case.sha_of_file(0), case.sha_of_tensor(0));
    let wrong = "0".repeat(64);
    for (name, text, subject) in [
        ("SHA256SUMS", format!("{zero}  m0\n{wrong}  m0\n{zero}  m0\n"), "the whole file"),
        ("m0.manifest", format!("sha256 {a}  m0:a\nsha256 {wrong}  m0:a\n"), "its tensor \"a\""),
        ("m0.manifest", format!("sha256 {a}  m0\nsha256 {wrong}  m0\n"), "its tensors' bytes"),
    ] {
        let path = case.put(name, text);
        let found = find(&case.model, &case.sources());
        assert_eq!(found.warnings, [""; 0]);
        let said = contradiction(&found.anchors, &case.model).unwrap().to_string();
        let about = format!("m0: two trusted sources disagree about the SHA-256 of {subject}");
        assert!(said.starts_with(&about) && said.contains(&wrong), "{said}");
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn lists_in_the_forms_of_other_tools_and_systems() {
    let case = Case::new(&[&["a"]]);
    let zero = case.sha_of_file(0);
    let claims = |name: &str, text: String| {
        let path = case.put(name, text);
        let found = find(&case.model, &case.sources());
        std::fs::remove_file(path).unwrap();
        found.anchors.iter().filter(|a| a.claim.sha256 == Some(digest(&zero))).count()
    };
    assert_eq!(claims("SHA256SUMS", format!("\u{feff}{zero}  m0\r\n")), 1, "a mark in front");
    assert_eq!(claims("SHA256SUMS", format!("x\n\u{feff}{zero}  m0\n")), 0, "not in front");
    assert_eq!(claims("SHA256SUMS", format!("{zero} m0\n")), 1, "reversed");
    assert_eq!(claims("SHA256SUMS", format!("{zero}  ././m0\n")), 1);
    assert_eq!(claims("SHA256SUMS", format!("SHA2-256(m0)= {zero}\n")), 1, "OpenSSL 3");
    for suffix in ["sha256", "sha256sum", "sha256.txt"] {
        assert_eq!(claims(&format!("m0.{suffix}"), format!("{zero}\n")), 1, "{suffix}");
    }
}

#[test]
fn tensors_of_other_models_further_down_are_none_of_this_one() {
    let case = Case::new(&[&["a"]]);
    let a = case.sha_of_tensor(0);
    case.put("SHA256SUMS", format!("{a}  other/tensors/a.bin\n"));
    assert_eq!(find(&case.model, &case.sources()).anchors, []);
    case.put("SHA256SUMS", format!("{a}  ./tensors/a.bin\n"));
    assert_eq!(find(&case.model, &case.sources()).anchors.len(), 1);
}

#[test]
fn files_and_tensors_are_compared_with_their_bytes() {
    let mut case = Case::new(&[&["a", "b"], &["c"]]);
    let sums = |case: &Case| -> Vec<(u32, Sum)> {
        (0..2).map(|i| (i as u32, Sum::Sha256(digest(&case.sha_of_tensor(i))))).collect()
    };
    let whole = Claim { tensors: sums(&case), ..of_file(digest(&case.sha_of_file(0))) };
    let crc = Claim {
        tensors: vec![(2, Sum::Crc32(crc32fast::hash(case.tensor(2))))],
        ..Claim::default()
    };
    let claims = [whole, crc];
    let report = compare(&claims, &case.model, &case.sources(), &|_| {}).unwrap();
    assert_eq!(report.bad, []);
    assert_eq!((report.files, report.tensors, report.uncovered.len()), (1, 3, 0));
    // What is read twice counts once.
    assert_eq!((report.bytes, work(&claims, &case.model)), (100 + 40, 220));
    let payload = case.bytes[0][16..96].to_vec();
    let sum = |bytes: &[u8]| digest(&sha(bytes));
    let ranges = [(0, 60), (50, 70)].map(|(from, to)| Range {
        from: from as u64,
        to: to as u64,
        sha256: sum(&case.bytes[0][from..to]),
    });
    for (payload, ranges, want) in
        [(Some(sum(&payload)), vec![], 80), (None, ranges.into(), 16 + 80)]
    {
        let claim = Claim { payload, ranges, tensors: sums(&case), ..Claim::default() };
        let claims = [claim, Claim::default()];
        let report = compare(&claims, &case.model, &case.sources(), &|_| {}).unwrap();
        assert_eq!((report.bad.len(), report.bytes), (0, want));
    }

    case.damage(0, 60);
    case.damage(1, 20);
    let report = compare(&claims, &case.model, &case.sources(), &|_| {}).unwrap();
    let places: Vec<_> =
        report.bad.iter().map(|b| (b.shard, b.tensor(), b.offset, b.len)).collect();
    assert_eq!(places, [(0, None, 0, 100), (0, Some(1), 56, 40), (1, Some(2), 16, 40)]);
    // The tensors tell where the file is damaged; what is no tensor may be as well.
    assert_eq!(report.bad[0].suspect, [(0, 16), (96, 4)]);
    assert_eq!(report.bad[0].found, case.sha_of_file(0));
    assert_eq!(report.bad[2].found, format!("{:08x}", crc32fast::hash(case.tensor(2))));
}

#[test]
fn other_sums_of_files_and_tensors() {
    let mut case = Case::new(&[&["a", "b"]]);
    let crc = crc32fast::hash(&case.bytes[0]);
    let mut sum = xxh64::Xxh64::new();
    sum.update(case.tensor(1));
    let tensor = Sum::Xxh64(sum.finish());
    let list = read(&case, "l.sfv", &format!("m0 {crc:08x}\n")).unwrap();
    assert_eq!((list.kind, list.claims[0].crc32), (Kind::Sfv, Some(crc)));
    let mut sum = xxh64::Xxh64::new();
    sum.update(&case.bytes[0][16..96]);
    let (payload, other) = (Sum::Xxh64(sum.finish()), Sum::Xxh64(sum.finish() ^ 1));
    let of_all = |payload: Sum| {
        let (one, all) = (tensor.digits(), payload.digits());
        read(&case, "l", &format!("xxh64     {one}  x/m0:b\nxxh64     {all}  x/m0\n")).unwrap()
    };
    let (hashes, wrong) = (of_all(payload), of_all(other));
    assert_eq!(hashes.claims[0].tensors, [(1, tensor)]);
    let bad = |case: &Case, list: &List| {
        let report = compare(&list.claims, &case.model, &case.sources(), &|_| {}).unwrap();
        report.bad.iter().map(|bad| bad.tensor()).collect::<Vec<_>>()
    };
    assert_eq!((bad(&case, &list), bad(&case, &hashes)), (vec![], vec![]));
    assert_eq!(bad(&case, &wrong), [None]);
    case.damage(0, 60);
    assert_eq!((bad(&case, &list), bad(&case, &hashes)), (vec![None], vec![None, Some(1)]));
    let encoded = Case::new(&[&["a"]]);
    let mut model = encoded.model.clone();
    model.shards[0].file = b"a%b"[..].into();
    let path = encoded.put("list", format!("{}  mnt/source/a%25b\n", encoded.sha_of_file(0)));
    assert!(List::read(&path, &model).unwrap().claims[0].sha256.is_some());
}

#[test]
fn parts_and_payloads_are_compared_with_their_bytes() {
    let mut case = Case::new(&[&["a", "b"]]);
    let range = |case: &Case, from: usize, to: usize| Range {
        from: from as u64,
        to: to as u64,
        sha256: digest(&sha(&case.bytes[0][from..to])),
    };
    let parts = |ranges: Vec<Range>| vec![Claim { ranges, ..Claim::default() }];
    let all = parts(vec![range(&case, 0, 50), range(&case, 50, 100)]);
    let some = parts(vec![range(&case, 0, 50), range(&case, 60, 100)]);
    let beyond = parts(vec![Range { from: 0, to: 101, sha256: [0; 32] }]);
    let payload = sha(&[case.tensor(0), case.tensor(1)].concat());
    let payload = vec![Claim { payload: Some(digest(&payload)), ..Claim::default() }];
    let run = |case: &Case, claims: &[Claim]| {
        let report = compare(claims, &case.model, &case.sources(), &|_| {}).unwrap();
        let bad: Vec<_> = report.bad.iter().map(|b| (b.offset, b.len)).collect();
        (bad, report.files, report.tensors, report.uncovered.len())
    };
    assert_eq!(run(&case, &all), (vec![], 1, 0, 0));
    assert_eq!(run(&case, &some), (vec![], 0, 0, 1));
    assert_eq!(run(&case, &payload), (vec![], 0, 2, 0));
    assert_eq!(run(&case, &beyond).0, [(0, 101)]);
    assert_eq!(run(&case, &[Claim::default()]), (vec![], 0, 0, 1));
    case.damage(0, 3);
    assert_eq!(run(&case, &payload).0, []);
    case.damage(0, 70);
    assert_eq!(run(&case, &all).0, [(0, 50), (50, 50)]);
    assert_eq!(run(&case, &payload).0, [(0, 100)]);
}

#[test]
fn a_file_that_is_no_model_still_has_a_name_and_bytes() {
    let case = Case::new(&[&["a"]]);
    let zero = case.sha_of_file(0);
    let path = case.put(&format!("blobs/sha256-{zero}"), &case.bytes[0]);
    let name = path.file_name().unwrap().as_encoded_bytes();
    let (model, sources) = unopened(&[(name.into(), path.clone())]).unwrap();
    let found = find(&model, &sources);
    assert_eq!(found.anchors.len(), 1);
    let claims = joined(&found.anchors, 1);
    assert_eq!(compare(&claims, &model, &sources, &|_| {}).unwrap().bad, []);
    let other = |path: PathBuf| {
        unopened(&[(b"m0"[..].into(), case.root.join("m0")), (b"x"[..].into(), path)])
    };
    assert_eq!(other(case.root.join("m0")).unwrap().1.len(), 2);
    assert!(other(case.root.clone()).is_none());
    assert!(other(case.root.join("none")).is_none());
    assert!(unopened(&[]).is_none());
}
