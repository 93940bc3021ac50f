//! Shards of a safetensors checkpoint.

use super::*;

pub(super) const INDEX: &str = "model.safetensors.index.json";
pub(super) const ONE: &str = "model-00001-of-00002.safetensors";
pub(super) const TWO: &str = "model-00002-of-00002.safetensors";

pub(super) fn sharded_in(d: &Dir) {
    d.put(INDEX, index(&[("a", TWO), ("b", ONE), ("c", ONE)]));
    d.put(ONE, safetensors(&[("format", "pt")], &[("c", 4), ("b", 4)]));
    d.put(TWO, safetensors(&[("format", "pt")], &[("a", 4)]));
}

#[test]
fn index_directory_and_any_shard_lead_to_one_model() {
    let d = Dir::new();
    sharded_in(&d);
    for name in [INDEX, ONE, TWO, ""] {
        let loaded = d.served(name);
        assert_eq!(list(&loaded), [format!("c {ONE}"), format!("b {ONE}"), format!("a {TWO}")]);
        assert_eq!(loaded.entry, d.path(INDEX));
        assert_eq!(loaded.model.metadata.len(), 1);
        assert_eq!(loaded.model.warnings, [""; 0]);
    }
}

#[test]
fn a_snapshot_of_symlinks_is_a_directory_like_others() {
    let d = Dir::new();
    let real = Dir::new();
    sharded_in(&real);
    fs::create_dir_all(d.path("snapshots/abc")).unwrap();
    for name in [INDEX, ONE, TWO] {
        symlink(real.path(name), d.path(&format!("snapshots/abc/{name}"))).unwrap();
    }
    let loaded = d.served("snapshots/abc");
    assert_eq!(loaded.entry, d.path(&format!("snapshots/abc/{INDEX}")));
    assert_eq!(loaded.model.tensors.len(), 3);
}

#[test]
fn files_that_the_index_does_not_name_are_ignored_with_a_warning() {
    let d = Dir::new();
    sharded_in(&d);
    d.put("consolidated.safetensors", safetensors(&[], &[("tok", 4)]));
    d.put("pytorch_model.bin.index.json", index(&[("a", "x.bin")]));
    d.put("config.json", "{}");
    let want = "files of the directory that model.safetensors.index.json does not lead to are \
                ignored: consolidated.safetensors";
    assert_eq!(d.served("").model.warnings, [want]);
    assert_eq!(d.served(INDEX).model.warnings, [""; 0]);
    assert_eq!(list(&d.served("consolidated.safetensors")), ["tok consolidated.safetensors"]);
}

#[test]
fn a_shard_without_its_index_names_it() {
    let d = Dir::new();
    sharded_in(&d);
    fs::remove_file(d.path(INDEX)).unwrap();
    let want = format!("{TWO}: is shard 2 of 2 of a model; missing beside it: {INDEX}");
    assert_eq!(d.refused(TWO), want);
    assert!(d.refused("").starts_with(&format!("{ONE}: is shard 1 of 2")));
    // An index of another model does not name it: then it is one of its own.
    d.put("other.safetensors.index.json", index(&[("x", "other.safetensors")]));
    assert_eq!(list(&d.served(TWO)), [format!("a {TWO}")]);
    d.put("model-00001-of-00001.safetensors", safetensors(&[], &[("w", 1)]));
    assert_eq!(list(&d.served("model-00001-of-00001.safetensors")).len(), 1);
    d.put(INDEX, "{").put("other.safetensors.index.json", "");
    assert!(d.refused(TWO).contains(".safetensors.index.json: "));
}

#[test]
fn shards_that_are_missing_or_something_else_are_named() {
    let d = Dir::new();
    sharded_in(&d);
    d.put(TWO, "version https://git-lfs.github.com/spec/v1\n");
    assert!(d.refused("").starts_with(&format!("{TWO}: is a Git LFS pointer, not the model")));
    d.put(TWO, gguf(&[], &[]));
    assert_eq!(d.refused(INDEX), format!("{TWO}: is a GGUF file, not the model"));
    fs::remove_file(d.path(TWO)).unwrap();
    let want = format!("{INDEX}: 1 of its 2 shards is not there; missing beside it: {TWO}");
    for name in [INDEX, ONE, ""] {
        assert_eq!(d.refused(name), want);
    }
}

#[test]
fn paths_in_an_index_stay_below_it() {
    let d = Dir::new();
    d.put("out.safetensors", safetensors(&[], &[("a", 4)]));
    d.put("in/sub/s.safetensors", safetensors(&[], &[("a", 4)]));
    let outside = d.path("out.safetensors");
    symlink("..", d.path("in/up")).unwrap();
    let why = |shard: &str| {
        d.put(&format!("in/{INDEX}"), index(&[("a", shard)]));
        d.refused("in")
    };
    let names = format!("in/{INDEX}: names the shard");
    let out = "which leads out of its directory";
    assert_eq!(why("../out.safetensors"), format!("{names} \"../out.safetensors\", {out}"));
    assert_eq!(
        why("sub/../../out.safetensors"),
        format!("{names} \"sub/../../out.safetensors\", {out}")
    );
    assert!(why(outside.to_str().unwrap()).ends_with(", which is an absolute path"));
    assert_eq!(
        why("up/out.safetensors"),
        format!("{names} up/out.safetensors, which lies outside its directory")
    );
    for empty in ["", ".", "./", "a\\u0000b"] {
        assert!(why(empty).ends_with(", which is not a file name"), "{empty}");
    }
    for fine in ["sub/s.safetensors", "./sub//s.safetensors"] {
        d.put(&format!("in/{INDEX}"), index(&[("a", fine)]));
        let loaded = d.served("in");
        assert_eq!(list(&loaded), ["a sub/s.safetensors"]);
    }
    d.put(&format!("in/{INDEX}"), index(&[]));
    assert_eq!(d.refused("in"), format!("in/{INDEX}: names no tensors"));
}

#[test]
fn headers_are_the_truth_where_the_index_errs() {
    let d = Dir::new();
    sharded_in(&d);
    d.put(INDEX, index(&[("a", TWO), ("b", ONE)]));
    let loaded = d.served("");
    assert_eq!(loaded.model.tensors.len(), 3);
    let want = format!("tensors that the index does not name: 1, the first is \"c\" in {ONE}");
    assert_eq!(loaded.model.warnings, [want]);

    d.put(INDEX, index(&[("a", TWO), ("b", ONE), ("c", TWO), ("d", TWO)]));
    let want = format!(
        "{INDEX}: incomplete: tensor \"c\" is not in {TWO}, where the index says it is \
         (it is in {ONE}), nor 1 more tensors in their shards"
    );
    assert_eq!(d.refused(""), want);
}

#[test]
fn a_name_in_two_shards_is_decided_by_the_index_or_not_at_all() {
    let d = Dir::new();
    sharded_in(&d);
    d.put(ONE, safetensors(&[], &[("c", 4), ("a", 9), ("b", 4)]));
    let loaded = d.served("");
    assert_eq!(list(&loaded), [format!("c {ONE}"), format!("b {ONE}"), format!("a {TWO}")]);
    assert_eq!(loaded.model.tensors[2].extent.len, 4);
    let want = format!(
        "tensors in a second shard, which the index names in another, not shown: 1, \
         the first is \"a\" in {ONE}"
    );
    assert_eq!(loaded.model.warnings, [want]);

    d.put(INDEX, index(&[("b", ONE), ("z", TWO)]));
    d.put(TWO, safetensors(&[], &[("a", 4), ("z", 4)]));
    let want = format!("{TWO}: tensor \"a\" is also in {ONE}, and the index does not name it");
    assert_eq!(d.refused(""), want);
}

#[test]
fn metadata_of_shards_is_merged_and_the_first_holds() {
    let d = Dir::new();
    sharded_in(&d);
    d.put(ONE, safetensors(&[("format", "pt"), ("x", "1")], &[("c", 4), ("b", 4)]));
    d.put(TWO, safetensors(&[("format", "np"), ("x", "1"), ("y", "2")], &[("a", 4)]));
    let model = d.served("").model;
    let keys: Vec<_> = model.metadata.iter().map(|m| m.key.escape_ascii().to_string()).collect();
    assert_eq!(keys, ["format", "x", "y"]);
    let pt = crate::model::Text::Inline(b"pt"[..].into());
    assert_eq!(model.meta("format"), Some(&crate::model::Value::Str(pt)));
    let want = format!(
        "metadata key \"format\" of {TWO} differs from that of a file before; the first holds"
    );
    assert_eq!(model.warnings, [want]);
}
