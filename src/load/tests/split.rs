//! Parts of a split GGUF.

use super::*;

pub(super) fn split_in(d: &Dir) {
    d.put("m-00001-of-00003.gguf", part(0, 3, 3, &[]));
    d.put("m-00002-of-00003.gguf", part(1, 3, 3, &[("b", 40), ("a", 4)]));
    d.put("m-00003-of-00003.gguf", part(2, 3, 3, &[("c", 4)]));
}

#[test]
fn any_part_of_a_split_is_the_whole_model() {
    let d = Dir::new();
    split_in(&d);
    let rows = ["b m-00002-of-00003.gguf", "a m-00002-of-00003.gguf", "c m-00003-of-00003.gguf"];
    for name in ["m-00001-of-00003.gguf", "m-00003-of-00003.gguf", ""] {
        let loaded = d.served(name);
        assert_eq!(list(&loaded), rows);
        assert_eq!(loaded.entry, d.path("m-00001-of-00003.gguf"));
        assert_eq!(loaded.model.shards.len(), 3);
        assert_eq!(loaded.model.warnings, [""; 0]);
        let keys: Vec<_> = loaded.model.metadata.iter().map(|m| m.key.to_vec()).collect();
        assert_eq!(keys, [&b"split.no"[..], b"split.count", b"split.tensors.count"]);
    }
}

#[test]
fn siblings_are_looked_for_beside_the_name_given() {
    let d = Dir::new();
    fs::create_dir(d.path("blobs")).unwrap();
    fs::create_dir(d.path("snap")).unwrap();
    for (i, bytes) in [part(0, 2, 2, &[("a", 4)]), part(1, 2, 2, &[("b", 4)])].iter().enumerate() {
        let blob = format!("blobs/{i}");
        d.put(&blob, bytes);
        symlink(format!("../{blob}"), d.path(&format!("snap/m-0000{}-of-00002.gguf", i + 1)))
            .unwrap();
    }
    let loaded = d.served("snap/m-00002-of-00002.gguf");
    assert_eq!(loaded.entry, d.path("snap/m-00001-of-00002.gguf"));
    assert_eq!(list(&loaded), ["a m-00001-of-00002.gguf", "b m-00002-of-00002.gguf"]);
    let e = d.refused("blobs/1");
    let want = "blobs/1: is part 2 of 2 of a split model, but is not named so \
                (PREFIX-00002-of-00002.gguf), and the other parts cannot be found";
    assert_eq!(e, want);
}

#[test]
fn a_set_that_is_not_whole_names_what_is_missing() {
    let d = Dir::new();
    split_in(&d);
    fs::remove_file(d.path("m-00001-of-00003.gguf")).unwrap();
    let want = "m-00002-of-00003.gguf: is part 2 of 3 of a split model; missing beside it: \
                m-00001-of-00003.gguf";
    assert_eq!(d.refused("m-00002-of-00003.gguf"), want);
    assert_eq!(d.refused(""), want);
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let (one, two) = ("m-00001-of-00002.gguf", "m-00002-of-00002.gguf");
    let with = |first: Vec<u8>, second: Vec<u8>| {
        let d = Dir::new();
        d.put(one, first).put(two, second);
        d
    };
    let a: &[(&str, u64)] = &[("a", 4)];
    let b: &[(&str, u64)] = &[("b", 4)];
    let first = || part(0, 2, 2, a);
    let says = |d: Dir, want: &str| assert_eq!(d.refused(one), want);
    says(
        with(first(), part(0, 2, 2, b)),
        "m-00002-of-00002.gguf: part 2 of 2 should have split.no 1 and split.count 2, \
         but has split.no 0 and split.count 2",
    );
    says(
        with(first(), part(1, 3, 2, b)),
        "m-00002-of-00002.gguf: part 2 of 2 should have split.no 1 and split.count 2, \
         but has split.no 1 and split.count 3",
    );
    says(
        with(first(), gguf(&[], b)),
        "m-00002-of-00002.gguf: part 2 of 2 should have split.no 1 and split.count 2, \
         but has no split.count",
    );
    says(
        with(part(0, 2, 7, a), part(1, 2, 7, b)),
        "m-00001-of-00002.gguf: split.tensors.count is 7, but the 2 parts hold 2 tensors",
    );
    says(
        with(part(1, 2, 2, a), part(1, 2, 2, b)),
        "m-00001-of-00002.gguf: is named part 1 of 2, but its split.no and split.count make it \
         part 2 of 2",
    );
    says(
        with(part(5, 2, 2, a), part(1, 2, 2, b)),
        "m-00001-of-00002.gguf: split.no is 5 and split.count 2; no such part can be",
    );
    says(
        with(first(), part(1, 2, 2, a)),
        "m-00002-of-00002.gguf: tensor \"a\" is also in m-00001-of-00002.gguf",
    );
    says(
        with(first(), safetensors(&[], b)),
        "m-00002-of-00002.gguf: is a safetensors file, not the model",
    );
    let d = with(first(), gguf_of_version(2, &[("split.no", 1), ("split.count", 2)], b));
    let want = "m-00002-of-00002.gguf: GGUF version 2, but another part has version 3";
    assert_eq!(d.served(one).model.warnings, [want]);
}

#[test]
fn a_count_of_one_or_none_is_no_split() {
    let d = Dir::new();
    for count in [0, 1] {
        d.put("m.gguf", gguf(&[("split.count", count), ("split.tensors.count", 9)], &[("a", 4)]));
        assert_eq!(list(&d.served("m.gguf")), ["a m.gguf"]);
    }
    // The name alone makes no split either.
    d.put("n-00002-of-00003.gguf", gguf(&[], &[("a", 4)]));
    assert_eq!(list(&d.served("n-00002-of-00003.gguf")).len(), 1);
}

#[test]
fn warnings_of_one_file_of_a_set_name_it() {
    let d = Dir::new();
    split_in(&d);
    let mut bytes = part(2, 3, 3, &[("c", 4)]);
    bytes.extend(b"xy");
    d.put("m-00003-of-00003.gguf", &bytes);
    let want = "m-00003-of-00003.gguf: 2 bytes after the last tensor";
    assert_eq!(d.served("m-00001-of-00003.gguf").model.warnings, [want]);
}
