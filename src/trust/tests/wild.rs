//! Lists as they are met: by other tools, from other systems, made by hand.

use super::super::testing::Case;
use super::super::{Claim, Found, List, ListError, compare, contradiction, find};
use super::digest;
use crate::model::Format;

/// What is found of one list beside the model.
fn beside(case: &Case, name: &str, text: impl AsRef<[u8]>) -> Found {
    let path = case.put(name, text);
    let found = find(&case.model, &case.sources());
    std::fs::remove_file(path).unwrap();
    found
}

/// Files, by number, whose right digest a list gives.
fn right(case: &Case, found: &Found) -> Vec<usize> {
    let is = |shard: usize| Some(digest(&case.sha_of_file(shard)));
    found.anchors.iter().filter(|a| a.claim.sha256 == is(a.shard)).map(|a| a.shard).collect()
}

fn wide(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
    text.encode_utf16().flat_map(bytes).collect()
}

#[test]
fn what_is_understood() {
    let case = Case::new(&[&["a"]]);
    let sum = case.sha_of_file(0);
    let upper = sum.to_uppercase();
    let root = case.root.display().to_string();
    let own = case.root.file_name().unwrap().to_str().unwrap();
    let table = format!(
        "\u{feff}\r\nAlgorithm       Hash     Path\r\n---------       ----     ----\r\nSHA256          {upper}       .\\m0\r\n\r\n"
    );
    let texts: Vec<(&str, &str, Vec<u8>)> = vec![
        ("absolute, here", "SHA256SUMS", format!("{sum}  {root}/m0\n").into()),
        ("dot", "SHA256SUMS", format!("{sum}  .//./m0\n").into()),
        ("CRLF", "SHA256SUMS", format!("{upper} *m0\r\n").into()),
        ("a mark", "SHA256SUMS", format!("\u{feff}{sum}  m0\n").into()),
        ("a mark and a blank line", "SHA256SUMS", format!("\u{feff}\n{sum}  m0\n").into()),
        ("BSD", "SHA256SUMS", format!("SHA256 (./m0) = {upper}\r\n").into()),
        ("escaped", "SHA256SUMS", format!("\\{sum}  ./\\\\../m9\n{sum}  m0\n").into()),
        ("Windows", "SHA256SUMS", format!("{sum} *.\\m0\r\n").into()),
        ("blanks behind", "SHA256SUMS", format!("{sum}  m0 \t\n").into()),
        ("two tabs", "SHA256SUMS", format!("{sum}\t\tm0\n").into()),
        ("ends of lines of old", "SHA256SUMS", format!("{sum}  x\r{sum}  m0\r").into()),
        ("sha256sum -z", "SHA256SUMS", format!("{sum}  x\0{sum}  m0\0").into()),
        ("its own directory", "SHA256SUMS", format!("{sum}  {own}/m0\n").into()),
        ("as it came in", "m0.sha256", format!("{sum}  -\n").into()),
        ("as it came in, OpenSSL", "m0.sha256", format!("SHA2-256(stdin)= {sum}\n").into()),
        ("blanks in front", "SHA256SUMS", format!("  {sum}  m0\n").into()),
        ("a registry's", "m0.sha256", format!("sha256:{sum}\n").into()),
        ("alone", "m0.sha256", format!("{upper}\r\n").into()),
        ("alone, without a line's end", "m0.sha256", sum.clone().into()),
        ("made elsewhere", "m0.sha256", format!("{sum}  /build/out/m0\n").into()),
        ("made on Windows", "m0.sha256", format!("{sum} *C:\\models\\m0\r\n").into()),
        ("made below", "m0.sha256", format!("{sum}  out/m0\n").into()),
        ("PowerShell", "m0.sha256", wide(&table, u16::to_le_bytes)),
        ("PowerShell, big", "SHA256SUMS", wide(&table, u16::to_be_bytes)),
        (
            "signed",
            "SHA256SUMS",
            format!(
                "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n{sum}  m0\n-----BEGIN PGP SIGNATURE-----\n\niQIzBAEB\n=xyz\n-----END PGP SIGNATURE-----\n"
            )
            .into(),
        ),
        ("other sums too", "CHECKSUMS", format!("{0}  x\nMD5 (x) = {0}\n{sum}  m0\n", &sum[..32]).into()),
    ];
    for (what, name, text) in texts {
        let found = beside(&case, name, text);
        assert_eq!(right(&case, &found), [0], "{what}: {found:?}");
        assert_eq!(found.warnings, [""; 0], "{what}");
    }
}

#[test]
fn what_is_not_is_said_with_its_line() {
    let case = Case::new(&[&["a"]]);
    let sum = case.sha_of_file(0);
    let texts: Vec<(&str, Vec<u8>, &str)> = vec![
        ("SHA256SUMS", b"hello\nworld\n".into(), "line 1 is not understood: \"hello\", nor is one"),
        ("SHA256SUMS", format!("\n{}  m0\n", &sum[1..]).into(), "line 2 is not understood: "),
        (
            "SHA256SUMS",
            format!("x\n\u{feff}{sum}  m0\n").into(),
            "line 1 is not understood: \"x\", nor",
        ),
        (
            "SHA256SUMS",
            format!("{sum}  /build/out/m0\n").into(),
            "line 1 is about another directory, \"/build/out/m0\"",
        ),
        (
            "SHA256SUMS",
            format!("{sum} *D:\\x\\m0\r\n").into(),
            "line 1 is about another directory, \"D:/x/m0\"",
        ),
        ("SHA256SUMS", format!("# x\n{sum}\n").into(), "line 2 is a digest without a name"),
        (
            "m0.sha256",
            format!("{sum}{sum}  m0\n").into(),
            "algorithm \"SHA-512\" is not supported: that of \"m0\"",
        ),
        (
            "CHECKSUMS",
            format!("BLAKE3 (m0) = {sum}\n").into(),
            "algorithm \"BLAKE3\" is not supported",
        ),
        ("CHECKSUMS", format!("{}  m0\n", &sum[..32]).into(), "algorithm \"MD5\" is not supported"),
        ("m0.sha256", vec![b'x'; 200_000], "line 1 is not understood: \"a line without end\""),
        ("m0.sha256", wide(&format!("{sum}  m0"), u16::to_le_bytes), "line 1 is not understood: "),
        ("m0.sha256", b"\x02\x01\x1b[2J\n".into(), "not understood: \"\\u{2}\\u{1}\\u{1b}[2J\""),
        (
            "SHA256SUMS",
            format!("{sum}  sub/m0\n").into(),
            "line 1 is about another directory, \"sub/m0\"",
        ),
        ("SHA256SUMS", format!("{sum}  M0\n").into(), "line 1 is about another file, \"M0\""),
        ("SHA256SUMS", format!("{sum}  -\n").into(), "line 1 is a digest without a name"),
        ("m0.sha256", format!("{sum}  old\n").into(), "line 1 is about another file, \"old\""),
        (
            "SHA256SUMS",
            format!("\n-----BEGIN PGP SIGNATURE-----\n{sum}  m0\n").into(),
            "line 2 begins a PGP signature without end",
        ),
        (
            "SHA256SUMS",
            format!("{{\"m0\":\"{sum}\"}}").into(),
            "line 1 is not understood: \"{\\\"m0",
        ),
        (
            "SHA256SUMS",
            format!("{sum}  tensors/zz.bin\n").into(),
            "line 1 is about \"tensors/zz.bin\", a tensor that the model does not have",
        ),
    ];
    for (name, text, want) in texts {
        let found = beside(&case, name, text);
        assert_eq!(found.anchors, [], "{want}");
        let [warning] = &found.warnings[..] else { panic!("{want}: {:?}", found.warnings) };
        assert!(warning.contains(want) && warning.contains(name), "{warning}");
    }
    // A file of such a name may be anything, and a list may be of other models.
    for (name, text) in [
        ("m0.sig", "\u{1}\u{2}\n".to_owned()),
        ("m0.manifest", "hello\n".to_owned()),
        ("SHA256SUMS", format!("{sum}  other\n{sum}  sub/other\n# m0\n")),
    ] {
        let found = beside(&case, name, text);
        assert_eq!((found.anchors.len(), found.warnings.len()), (0, 0), "{name}: {found:?}");
    }
}

#[test]
fn a_name_with_a_backslash_is_a_name_where_there_is_such_a_file() {
    let mut case = Case::new(&[&["a"]]);
    case.model.shards[0].file = b"x\\m0".as_slice().into();
    let list = case.put("l", format!("{}  x\\m0\n", case.sha_of_file(0)));
    let list = List::read(&list, &case.model).unwrap();
    assert!(list.claims[0].sha256.is_some(), "{list:?}");
}

#[test]
fn a_list_is_here_by_its_own_path_and_by_the_way_there() {
    let case = Case::new(&[&["a"]]);
    let way = case.dir.path().with_extension("way");
    std::os::unix::fs::symlink(&case.root, &way).unwrap();
    let text = format!("{}  {}/m0\n", case.sha_of_file(0), case.root.display());
    case.put("SHA256SUMS", text);
    let list = List::beside(&way.join("SHA256SUMS"), &case.model);
    std::fs::remove_file(way).unwrap();
    assert_eq!(list.unwrap().unwrap().warnings, [""; 0]);
}

#[test]
fn a_list_of_some_tensors_covers_no_file() {
    let case = Case::new(&[&["a", "b"]]);
    let (a, b) = (case.sha_of_tensor(0), case.sha_of_tensor(1));
    let uncovered = |text: String| {
        let list = List::read(&case.put("l", text), &case.model).unwrap();
        compare(&list.claims, &case.model, &case.sources(), &|_| {}).unwrap().uncovered
    };
    assert_eq!(uncovered(format!("{a}  tensors/a.bin\n")), [0]);
    assert_eq!(uncovered(format!("{a}  tensors/a.bin\n{b}  tensors/b.bin\n")), [0; 0]);
    let file = case.sha_of_file(0);
    assert_eq!(uncovered(format!("{a}  tensors/a.bin\n{file}  m0\n")), [0; 0]);
}

#[test]
fn crc32s_that_differ_are_named_and_silence_nothing() {
    let case = Case::new(&[&["a"]]);
    let text = format!("{}  m0\nm0 deadbeef\nm0 deadbeee\n", case.sha_of_file(0));
    let found = beside(&case, "SHA256SUMS", &text);
    assert_eq!(found.warnings, [""; 0]);
    assert_eq!(right(&case, &found), [0]);
    let said = contradiction(&found.anchors, &case.model).unwrap().to_string();
    assert!(said.contains("the CRC32 of the whole file"), "{said}");
    assert!(said.contains("deadbeef") && said.contains("deadbeee"), "{said}");
    let given = List::read(&case.put("l", &text), &case.model);
    assert!(matches!(given, Err(ListError::Twice { .. })), "{given:?}");
}

#[test]
fn of_a_repository_the_line_counts_that_leads_to_the_model() {
    let case = Case::new(&[&["a"]]);
    let own = case.root.file_name().unwrap().to_str().unwrap();
    let (sum, other) = (case.sha_of_file(0), "ab".repeat(32));
    // Above the directory of the model: a directory that only a link leads to.
    let above = tempfile::tempdir().unwrap();
    let model = above.path().canonicalize().unwrap().join(own);
    std::fs::create_dir(&model).unwrap();
    std::fs::copy(case.root.join("m0"), model.join("m0")).unwrap();
    let source = crate::source::Source::open(&model.join("m0"), crate::source::IoMode::Auto);
    let sources = [source.unwrap()];
    let read = |text: String| {
        let list = above.path().join("SHA256SUMS");
        std::fs::write(&list, text).unwrap();
        List::read_for(&list, &case.model, &sources).map(|list| list.claims[0].clone())
    };
    let good = Claim { sha256: Some(digest(&sum)), ..Claim::default() };
    for text in [
        format!("{sum}  {own}/m0\n{other}  vae/m0\n"),
        format!("{other}  ./vae/m0\n{sum}  ./{own}/m0\n"),
        format!("{other}  m0\n{sum}  {own}/m0\n"),
        // Made elsewhere.
        format!("{sum}  /build/out/m0\n"),
        format!("{sum}  m0\n"),
    ] {
        assert_eq!(read(text.clone()).unwrap(), good, "{text}");
    }
    assert_eq!(read(format!("{other}  vae/m0\n")).unwrap(), Claim::default());
    let twice = read(format!("{other}  m0\n{sum}  m0\n"));
    assert!(matches!(twice, Err(ListError::Twice { .. })), "{twice:?}");
}

#[test]
fn a_line_like_those_of_gguf_hash_is_of_the_file_where_it_is_no_gguf() {
    let mut case = Case::new(&[&["a"]]);
    let text = format!("sha256    {}  m0\n", case.sha_of_file(0));
    let list = case.put("l", text);
    assert_eq!(List::read(&list, &case.model).unwrap().claims[0].sha256, None);
    case.model.format = Format::Safetensors;
    let claims = List::read(&list, &case.model).unwrap().claims;
    assert_eq!(claims[0].sha256, Some(digest(&case.sha_of_file(0))));
    assert_eq!(claims[0].payload, None);
}

/// BLAKE3 has as many digits as SHA-256, and b3sum writes the same lines: the list's name tells.
#[test]
fn digests_of_b3sum_are_not_taken_for_sha256_where_the_list_says_so() {
    let case = Case::new(&[&["a"]]);
    let (b3, sha) = ("3".repeat(64), case.sha_of_file(0));
    let list = |name: &str, text: String| List::read(&case.put(name, text), &case.model).unwrap();
    for name in ["B3SUMS", "m0.b3", "b3sums.txt", "m0.blake3", "x.b3sum"] {
        for text in [format!("{b3}  m0\n"), format!("{b3}\n"), format!("\\{b3} *m0\n")] {
            let list = list(name, text);
            assert!(list.claims[0].is_empty(), "{name}");
            let want = "algorithm \"BLAKE3\" is not supported: that of \"m0\" is not compared";
            assert!(list.warnings.len() == 1 && list.warnings[0].contains(want), "{name}");
        }
        // One that says its kind is of that.
        for text in [format!("SHA256 (m0) = {sha}\n"), format!("sha256:{sha}  m0\n")] {
            assert_eq!(list(name, text).claims[0].sha256, Some(digest(&sha)), "{name}");
        }
    }
    for name in ["SHA256SUMS", "m0.sha256", "CHECKSUMS", "web3.txt", "sub3summary"] {
        let list = list(name, format!("{sha}  m0\n"));
        assert!(list.claims[0].sha256.is_some(), "{name}");
    }
}

/// What is not used is said, wherever such a list is found.
#[test]
fn digests_of_b3sum_beside_the_model_are_a_warning() {
    let case = Case::new(&[&["a"]]);
    let b3 = "3".repeat(64);
    for name in ["m0.b3", "m0.b3sum", "m0.blake3", "B3SUMS", "b3sums.txt", "checksums.b3"] {
        let list = case.put(name, format!("{b3}  m0\n"));
        let found = find(&case.model, &case.sources());
        assert_eq!(found.anchors, [], "{name}");
        let want = "algorithm \"BLAKE3\" is not supported: that of \"m0\" is not compared";
        assert!(found.warnings.len() == 1 && found.warnings[0].contains(want), "{name}");
        std::fs::remove_file(list).unwrap();
    }
    // Lines about other files say nothing about this one.
    case.put("B3SUMS", format!("{b3}  other\n"));
    assert_eq!(find(&case.model, &case.sources()).warnings, [""; 0]);
}
