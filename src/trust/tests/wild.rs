//! Lists as they are met: by other tools, from other systems, made by hand.

use super::super::testing::Case;
use super::super::{Found, List, find};
use super::digest;

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
        ("escaped", "SHA256SUMS", format!("\\{sum}  ./\\\\../m0\n{sum}  m0\n").into()),
        ("Windows", "SHA256SUMS", format!("{sum} *.\\m0\r\n").into()),
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
        ("m0.sha256", b"\0\x01\x1b[2J\n".into(), "not understood: \"\\0\\u{1}\\u{1b}[2J\""),
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
        ("SHA256SUMS", format!("{sum}  other\n{sum}  sub/m0\n# m0\n")),
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
