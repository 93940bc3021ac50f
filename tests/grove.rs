//! Several models in one file system, without FUSE: names, inode numbers, listings, clashes.
#![allow(clippy::unwrap_used)]

use serde_json::Value as Json;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use weightfs::fs::{FsError, Handle, Parts, WeightFs};
use weightfs::grove::{Grove, Member, Place, Spot};
use weightfs::layout::{FileKind, Ino};
use weightfs::load::{Loaded, open};
use weightfs::naming::Catalog;
use weightfs::scale::Scales;
use weightfs::source::IoMode;
use weightfs::store::{Store, StoreOptions, Verify};

/// A safetensors file with one tensor, `t`, of these bytes.
fn bytes(data: &[u8]) -> Vec<u8> {
    let end = data.len();
    let mut header =
        format!("{{\"t\":{{\"dtype\":\"U8\",\"shape\":[{end}],\"data_offsets\":[0,{end}]}}}}");
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat()
}

fn model(path: &Path) -> WeightFs {
    let Loaded { model, sources, .. } = open(path, IoMode::Pread).unwrap();
    let model = Arc::new(model);
    let store = Store::new(Arc::clone(&model), sources, None, StoreOptions::default());
    let parts = Parts {
        model,
        catalog: Catalog::identity(),
        store,
        verify: Verify::Always,
        warnings: Vec::new(),
        scales: Scales::default(),
        log: None,
        hf: None,
    };
    WeightFs::new(parts).unwrap()
}

/// A mount of models shown as `names` say; the data of each is its name. A name with `!` in front
/// could not be opened.
fn grove(names: &[&str]) -> (Grove, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let member = |(i, name): (usize, &&str)| {
        let path = dir.path().join(format!("{i}.safetensors"));
        std::fs::write(&path, bytes(name.as_bytes())).unwrap();
        let shown = name.trim_start_matches('!').split('/').map(|part| part.as_bytes().into());
        let model = match name.starts_with('!') {
            true => Err("it is broken".to_owned()),
            false => Ok(model(&path)),
        };
        Member { shown: shown.collect(), path, model }
    };
    let members = names.iter().enumerate().map(member).collect();
    (Grove::of_several(members, &["a note".to_owned()], Some("stderr".to_owned())), dir)
}

fn entries(grove: &Grove, spot: Spot) -> Vec<(Spot, String)> {
    let mut all = Vec::new();
    // In pieces, as the kernel asks.
    let mut from = 0;
    loop {
        let mut piece = Vec::new();
        grove
            .list(spot.ino(), from, &mut |next, spot, name| {
                if piece.len() == 3 {
                    return false;
                }
                assert!(next > from, "{next} does not lead on from {from}");
                from = next;
                piece.push((spot, String::from_utf8(name.to_vec()).unwrap()));
                true
            })
            .unwrap();
        if piece.is_empty() {
            return all;
        }
        all.append(&mut piece);
    }
}

/// Every path below `spot`, with what is there.
fn walk(grove: &Grove, spot: Spot, at: &str, all: &mut BTreeMap<String, Spot>) {
    for (entry, name) in entries(grove, spot) {
        if name == "." {
            assert_eq!(entry, spot, "{at}");
            continue;
        }
        if name == ".." {
            continue;
        }
        let path = format!("{at}/{name}");
        assert_eq!(grove.lookup(spot.ino(), name.as_bytes()).unwrap(), entry, "{path}");
        assert_eq!(grove.spot(entry.ino()).unwrap(), entry, "{path}");
        if entry.kind() == FileKind::Directory {
            walk(grove, entry, &path, all);
        }
        assert_eq!(all.insert(path.clone(), entry), None, "{path} is there twice");
    }
}

fn tree(grove: &Grove) -> BTreeMap<String, Spot> {
    let mut all = BTreeMap::new();
    walk(grove, grove.spot(Ino::ROOT).unwrap(), "", &mut all);
    all
}

fn read(grove: &Grove, spot: Spot) -> Vec<u8> {
    let handle = grove.open(spot.ino()).unwrap();
    let mut out = vec![0; 1 << 20];
    let n = grove.read(spot.ino(), handle, 0, &mut out).unwrap();
    grove.release(spot.ino(), handle);
    out.truncate(n);
    out
}

fn json(grove: &Grove, path: &str) -> Json {
    serde_json::from_slice(&read(grove, tree(grove)[path])).unwrap()
}

#[test]
fn each_model_is_where_it_is_said_to_be_and_no_other() {
    let names = ["b", "a/x", "a/y.gguf", "a/z/deep"];
    let (grove, _dir) = grove(&names);
    let tree = tree(&grove);
    for name in names {
        assert_eq!(read(&grove, tree[&format!("/{name}/tensors/t.bin")]), name.as_bytes());
        assert!(tree.contains_key(&format!("/{name}/.weightfs/status.json")), "{name}");
    }
    let top: Vec<_> = tree.keys().filter(|path| path.matches('/').count() == 1).collect();
    assert_eq!(top, ["/.weightfs", "/a", "/b", "/models.json"]);
}

#[test]
fn no_two_files_have_one_inode_number() {
    let (grove, _dir) = grove(&["a", "a/b", "c/d", "!e", "f"]);
    let mut seen: HashMap<Ino, String> = HashMap::new();
    for (path, spot) in tree(&grove) {
        let attr = grove.attr(spot).unwrap();
        assert_eq!(attr.ino, spot.ino(), "{path}");
        if let Some(other) = seen.insert(attr.ino, path.clone()) {
            panic!("{path} and {other} are {:?}", attr.ino);
        }
    }
}

#[test]
fn numbers_stay_when_a_model_is_mended() {
    let names = ["a/broken", "b", "c/d"];
    let (whole, _one) = grove(&names);
    let (less, _two) = grove(&["!a/broken", "b", "c/d"]);
    let (whole, less) = (tree(&whole), tree(&less));
    assert!(!less.contains_key("/a"), "a directory without a model");
    for (path, spot) in &less {
        assert_eq!(whole[path].ino(), spot.ino(), "{path}");
    }
}

#[test]
fn numbers_stay_when_models_come_before_between_and_behind() {
    let names = ["b/m", "d", "d/e/f"];
    let more = ["a", "b/a", "b/m", "c/d/e", "d", "d/e/f", "d/e/g", "z"];
    let (less, _one) = grove(&names);
    let (more, _two) = grove(&more);
    let (less, more) = (tree(&less), tree(&more));
    // The test's files are called by their places.
    let kept = less.iter().filter(|(path, _)| !is_own(path) && !path.contains("/source/"));
    for (path, spot) in kept {
        assert_eq!(more[path].ino(), spot.ino(), "{path}");
    }
}

#[test]
fn models_that_ask_for_one_number_are_told_apart() {
    // Enough of them for some to meet: with 700 of 65,535 numbers three or four pairs do.
    let names: Vec<String> = (0..700).map(|i| format!("m{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (grove, _dir) = grove(&names);
    let mut seen = HashMap::new();
    for name in names {
        let spot = grove.lookup(Ino::ROOT, name.as_bytes()).unwrap();
        assert_eq!(grove.spot(spot.ino()).unwrap(), spot);
        let tensors = grove.lookup(spot.ino(), b"tensors").unwrap();
        let file = grove.lookup(tensors.ino(), b"t.bin").unwrap();
        assert_eq!(read(&grove, file), name.as_bytes());
        assert_eq!(seen.insert(file.ino(), name), None);
    }
}

#[test]
fn the_way_up_leads_back() {
    let (grove, _dir) = grove(&["a", "a/b/c", "d/e"]);
    let tree = tree(&grove);
    let up = |path: &str| entries(&grove, tree[path])[1].clone();
    for (path, above) in [("/a/b", "/a"), ("/a/b/c", "/a/b"), ("/d/e", "/d"), ("/a/tensors", "/a")]
    {
        assert_eq!(up(path), (tree[above], "..".to_owned()), "{path}");
    }
    let root = grove.spot(Ino::ROOT).unwrap();
    for path in ["/a", "/d", "/.weightfs"] {
        assert_eq!(up(path).0, root, "{path}");
    }
}

#[test]
fn links_count_the_directories_in_a_directory() {
    let (grove, _dir) = grove(&["a", "a/b/c", "a/d", "e/f"]);
    let tree = tree(&grove);
    for (path, spot) in tree.iter().filter(|(_, spot)| spot.kind() == FileKind::Directory) {
        let all = entries(&grove, *spot);
        let count = all.iter().filter(|(spot, _)| spot.kind() == FileKind::Directory).count();
        assert_eq!(grove.attr(*spot).unwrap().nlink as usize, count, "{path}");
    }
}

#[test]
fn two_models_that_meet_leave_the_later_one_out() {
    for (names, met) in [
        (&["a", "a/tensors/x"][..], "the tensors of the model a"),
        (&["a/metadata/x", "a"], "in the place of the models in metadata/"),
        (&["a/b", "a/b"], "that of another model as well: a/b"),
        (&["a", "models.json"], "what the mount itself has there"),
        (&["a", ".weightfs/b"], "what the mount itself has there"),
    ] {
        let (grove, _dir) = grove(names);
        let [left] = grove.left_out() else { panic!("{names:?}: {:?}", grove.left_out()) };
        assert_eq!(left.directory, names[1]);
        assert!(left.error.contains(met), "{}", left.error);
        assert_eq!(grove.models().count(), 1);
        let row = &json(&grove, "/models.json")["models"][1];
        assert_eq!(row["error"], left.error.as_str());
        // Nothing of it is there, not even an empty directory.
        let first = format!("/{}/", names[0]);
        let other = tree(&grove).into_keys().find(|path| {
            !path.starts_with(&first) && !first.starts_with(path.as_str()) && !is_own(path)
        });
        assert_eq!(other, None, "{names:?}");
    }
}

fn is_own(path: &str) -> bool {
    path.starts_with("/.weightfs") || path == "/models.json"
}

#[test]
fn a_model_that_is_broken_meets_nobody() {
    let (grove, _dir) = grove(&["!a", "a/tensors/x", "!a/tensors/x"]);
    assert_eq!(grove.left_out().len(), 2);
    assert_eq!(read(&grove, tree(&grove)["/a/tensors/x/tensors/t.bin"]), b"a/tensors/x");
}

#[test]
fn names_that_no_file_can_have_are_encoded() {
    let long = "x".repeat(300);
    let (grove, _dir) = grove(&["a%b/c\nd", &long]);
    let tree = tree(&grove);
    assert!(tree.contains_key("/a%25b/c%0Ad/model.json"));
    assert!(tree.keys().all(|path| path.split('/').all(|name| name.len() <= 255)));
    let row = &json(&grove, "/models.json")["models"][0];
    assert_eq!(row["directory"], "a%25b/c%0Ad");
    let too_long = grove.lookup(Ino::ROOT, long.as_bytes());
    assert!(matches!(too_long, Err(FsError::NameTooLong(300))), "{too_long:?}");
}

#[test]
fn models_json_lists_all_and_why_some_are_missing() {
    let (grove, dir) = grove(&["a", "!b"]);
    let document = json(&grove, "/models.json");
    assert_eq!(document["warnings"], serde_json::json!(["a note"]));
    let want = serde_json::json!([
        {
            "path": dir.path().join("0.safetensors"), "directory": "a",
            "format": "safetensors", "architecture": null, "tensor_count": 1, "nbytes": 1,
            "sealed": false, "trust": "tofu",
        },
        {"path": dir.path().join("1.safetensors"), "directory": "b", "error": "it is broken"},
    ]);
    assert_eq!(document["models"], want);
    let spot = tree(&grove)["/models.json"];
    assert_eq!(grove.attr(spot).unwrap().size as usize, read(&grove, spot).len());
}

#[test]
fn the_status_of_all_is_the_sum_and_the_worst() {
    let (grove, dir) = grove(&["a", "b", "c"]);
    let tree = tree(&grove);
    read(&grove, tree["/a/tensors/t.bin"]);
    read(&grove, tree["/b/tensors/t.bin"]);
    read(&grove, tree["/b/tensors/t.bin"]);
    std::fs::write(dir.path().join("2.safetensors"), "").unwrap();
    let mut out = [0; 1];
    assert!(grove.read(tree["/c/tensors/t.bin"].ino(), Handle(0), 0, &mut out).is_err());
    let status = json(&grove, "/.weightfs/status.json");
    assert_eq!((&status["reads"], &status["bytes_served"]), (&4.into(), &3.into()));
    assert_eq!((&status["state"], &status["trust"]), (&"stale".into(), &"tofu".into()));
    assert_eq!(status["source_changed"], true);
    let states: Vec<_> = status["models"].as_array().unwrap().iter().map(|m| &m["state"]).collect();
    assert_eq!(states, ["unverified", "unverified", "stale"]);
    assert_eq!(json(&grove, "/a/.weightfs/status.json")["state"], "unverified");
    let metrics = String::from_utf8(read(&grove, tree["/.weightfs/metrics"])).unwrap();
    for line in ["weightfs_models 3", "weightfs_reads_total{model=\"b\"} 2"] {
        assert!(metrics.lines().any(|l| l == line), "{line}: {metrics}");
    }
    let helped = metrics.lines().filter(|line| line.starts_with("# HELP weightfs_reads_total"));
    assert_eq!(helped.count(), 1);
}

#[test]
fn an_open_status_shows_one_state() {
    let (grove, _dir) = grove(&["a", "b"]);
    let tree = tree(&grove);
    let spot = tree["/.weightfs/status.json"];
    let handle = grove.open(spot.ino()).unwrap();
    let mut before = vec![0; 1 << 16];
    let n = grove.read(spot.ino(), handle, 0, &mut before).unwrap();
    read(&grove, tree["/a/tensors/t.bin"]);
    let mut after = vec![0; 1 << 16];
    assert_eq!(grove.read(spot.ino(), handle, 0, &mut after).unwrap(), n);
    assert_eq!(before, after);
    grove.release(spot.ino(), handle);
    assert_ne!(read(&grove, spot), before[..n]);
}

#[test]
fn lanes_of_one_model_are_none_of_anothers() {
    let (grove, _dir) = grove(&["a", "b"]);
    let tree = tree(&grove);
    let mut lanes = Vec::new();
    for name in ["a", "b"] {
        let spot = tree[&format!("/{name}/tensors/t.bin")];
        lanes.push(grove.lane_of_read(spot.ino(), 0).unwrap().0);
        lanes.push(grove.lane_of_open(spot.ino()).unwrap().0);
        lanes.push(grove.lane_of_attr(tree[&format!("/{name}/metadata.json")]).unwrap().0);
    }
    assert!(lanes.iter().all(|&lane| lane < grove.lanes()), "{lanes:?}");
    let (a, b) = lanes.split_at(3);
    assert!(a.iter().all(|lane| !b.contains(lane)), "{lanes:?}");
}

#[test]
fn what_is_nowhere_is_not_found() {
    let (grove, _dir) = grove(&["a", "!b"]);
    let of =
        |number: u64, local: u64| Ino(std::num::NonZeroU64::new(number << 48 | local).unwrap());
    for ino in
        [of(2, 1), of(3, 1), of(0xffff, 1), of(0, 9), of(0, 1 << 47), of(1, 1 << 47), of(1, 0)]
    {
        assert!(matches!(grove.spot(ino), Err(FsError::NotFound)), "{ino:?}");
        assert!(matches!(grove.read(ino, Handle(0), 0, &mut [0]), Err(FsError::NotFound)));
        assert_eq!(grove.foreseeable(ino), None);
        assert!(grove.lane_of_read(ino, 0).is_none());
    }
    assert_eq!(grove.spot(Ino::ROOT).unwrap(), Spot::Own(Place::Dir(0)));
    assert!(matches!(grove.open(Ino::ROOT), Err(FsError::IsDirectory)));
}

#[test]
fn a_single_model_keeps_its_own_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("m.safetensors");
    std::fs::write(&path, bytes(b"alone")).unwrap();
    let (alone, plain) = (Grove::of_one(model(&path)), model(&path));
    let mut all = BTreeMap::new();
    walk(&alone, alone.spot(Ino::ROOT).unwrap(), "", &mut all);
    for (path, spot) in &all {
        let Spot::In(0, node) = *spot else { panic!("{path}: {spot:?}") };
        assert_eq!(spot.ino(), node.ino(), "{path}");
        assert_eq!(plain.node(spot.ino()).unwrap(), node);
    }
    assert_eq!(read(&alone, all["/tensors/t.bin"]), b"alone");
    assert!(alone.left_out().is_empty() && !all.contains_key("/models.json"));
}
