//! Which models are found in and below a directory, and under which names.

use super::*;
use crate::load::walk::{MOST_MODELS, counted};

impl Dir {
    fn walk(&self) -> Walk {
        self.walk_of("")
    }

    #[track_caller]
    fn walk_of(&self, name: &str) -> Walk {
        walk(&self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    fn model(&self, name: &str) -> &Dir {
        self.put(name, gguf(&[], &[("a", 8)]))
    }
}

/// Where each model is shown and, behind `=`, what is opened; `!` for what is known to be none.
fn shown(walk: &Walk) -> Vec<String> {
    let line = |found: &Found| {
        let names: Vec<_> = found.shown.iter().map(|n| String::from_utf8_lossy(n)).collect();
        let path = found.path.strip_prefix(&walk.directory).unwrap().display();
        let mark = if found.problem.is_some() { "!" } else { "" };
        format!("{}={path}{mark}", names.join("/"))
    };
    walk.models.iter().map(line).collect()
}

#[test]
fn one_model_is_its_directory_and_several_are_files() {
    let dir = Dir::new();
    dir.model("top.gguf").model("pub/one/m.gguf").model("pub/two/a.gguf").model("pub/two/b");
    let want = ["top.gguf=top.gguf", "pub/one=pub/one", "pub/two/a.gguf=pub/two/a.gguf"];
    assert_eq!(shown(&dir.walk())[..3], want);
    assert_eq!(shown(&dir.walk())[3..], ["pub/two/b=pub/two/b"], "by content, not by name");
    assert_eq!(shown(&dir.walk_of("pub/one")), ["m.gguf=m.gguf"], "the top has no name to give");
    assert!(dir.walk().notes.is_empty());
}

#[test]
fn an_index_or_the_usual_file_is_the_one_model_of_its_directory() {
    let dir = Dir::new();
    dir.put("big/model.safetensors.index.json", index(&[("x", "shard.safetensors")]));
    dir.put("big/shard.safetensors", safetensors(&[], &[("x", 8)]));
    dir.put("big/consolidated.safetensors", safetensors(&[], &[("x", 8)]));
    dir.put("st/model.safetensors", safetensors(&[], &[("x", 8)]));
    dir.put("st/adapter.safetensors", safetensors(&[], &[("x", 8)])).put("st/b.gguf", "no");
    dir.model("st/onnx/q.gguf");
    assert_eq!(shown(&dir.walk()), ["big=big", "st=st", "st/onnx=st/onnx"]);
}

#[test]
fn a_split_set_is_one_model_without_the_number_of_its_part() {
    let dir = Dir::new();
    split_in(&dir);
    dir.model("z.gguf");
    let all = shown(&dir.walk());
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(all[0].starts_with("m.gguf=m-00001-of-0000"), "{all:?}");
}

#[test]
fn what_is_hidden_or_a_seal_is_passed_over() {
    let dir = Dir::new();
    dir.model("a/m.gguf").model("a/.m.gguf").model(".cache/m.gguf");
    dir.put("a/m.gguf.weightfs.json", "{}").put("a/m.gguf.etag", "x").put("a/m.gguf.json", "{}");
    assert_eq!(shown(&dir.walk()), ["a=a"]);
}

#[test]
fn what_is_called_like_a_model_and_is_none_is_told() {
    let dir = Dir::new();
    dir.model("a/m.gguf").put("a/n.gguf", "").put("b/x.safetensors", "no");
    symlink("nothing", dir.path("b/y.gguf")).unwrap();
    fs::create_dir(dir.path("b/z.gguf")).unwrap();
    let walk = dir.walk();
    assert_eq!(
        shown(&walk),
        ["a=a", "a/n.gguf=a/n.gguf!", "b/x.safetensors=b/x.safetensors!", "b/y.gguf=b/y.gguf!"]
    );
    let text = walk.models[1].problem.as_ref().unwrap().to_string();
    assert!(text.contains("a/n.gguf") && text.contains("never filled"), "{text}");
}

#[test]
fn links_within_are_followed_and_links_out_are_told() {
    let (dir, other) = (Dir::new(), Dir::new());
    other.model("x/m.gguf");
    dir.model("v1/m.gguf");
    symlink("v1", dir.path("latest")).unwrap();
    symlink("../v1/m.gguf", dir.path("v1/n.gguf")).unwrap();
    symlink(other.path("x"), dir.path("far")).unwrap();
    symlink(other.path("x/m.gguf"), dir.path("v1/far.gguf")).unwrap();
    let walk = dir.walk();
    let want = ["v1/m.gguf", "v1/n.gguf"];
    assert_eq!(shown(&walk), want.map(|name| format!("{name}={name}")));
    let [out, again] = &*walk.notes else { panic!("{:?}", walk.notes) };
    assert!(out.ends_with("links that lead out of it are not followed: v1/far.gguf, far"), "{out}");
    assert!(again.ends_with("under their other names: latest"), "{again}");
    fs::remove_file(dir.path("v1/n.gguf")).unwrap();
    assert_eq!(shown(&dir.walk()), ["v1=v1/m.gguf"], "the directory would lead out as well");
}

#[test]
fn a_directory_that_links_alone_lead_to_has_the_name_of_the_first() {
    let dir = Dir::new();
    dir.model(".store/x/m.gguf").model(".store/x/deep/m.gguf").model("z/m.gguf");
    symlink("../.store/x", dir.path("z/link")).unwrap();
    symlink(".store/x", dir.path("b")).unwrap();
    symlink(".store/x", dir.path("c")).unwrap();
    let walk = dir.walk();
    assert_eq!(shown(&walk), ["z=z", "b=b", "b/deep=b/deep"]);
    assert!(walk.notes[0].ends_with("other names: c, z/link"), "{:?}", walk.notes);
}

#[test]
fn loops_of_links_end() {
    let dir = Dir::new();
    dir.model("a/m.gguf").model("b/m.gguf");
    symlink("../b", dir.path("a/b")).unwrap();
    symlink("../a", dir.path("b/a")).unwrap();
    symlink(".", dir.path("self")).unwrap();
    symlink("loop", dir.path("loop")).unwrap();
    let walk = dir.walk();
    assert_eq!(shown(&walk), ["a=a", "b=b"]);
    assert!(walk.notes[0].ends_with("other names: a/b, b/a"), "{:?}", walk.notes);
}

#[test]
fn a_maze_costs_one_look_at_each_directory() {
    let dir = Dir::new();
    dir.model("d0/m.gguf");
    for i in 0..100 {
        fs::create_dir_all(dir.path(&format!("d{i}"))).unwrap();
        for j in 0..100 {
            symlink(format!("../d{j}"), dir.path(&format!("d{i}/l{j}"))).unwrap();
        }
    }
    // The longest chain that the kernel follows.
    for i in 0..39 {
        symlink(format!("chain{}", i + 1), dir.path(&format!("chain{i}"))).unwrap();
    }
    symlink("d99", dir.path("chain39")).unwrap();
    let (walk, looked_at) = counted(dir.0.path()).unwrap();
    assert_eq!(shown(&walk), ["d0=d0"]);
    assert_eq!(looked_at, 100 * 101 + 1 + 40, "each entry once");
    assert!(walk.notes[0].ends_with(" more"), "{:?}", walk.notes);
}

#[test]
fn a_store_of_ollama_shows_models_by_their_names_and_no_blobs() {
    let dir = Dir::new();
    let blob = |digit: char| digit.to_string().repeat(64);
    for digit in ['a', 'b'] {
        dir.model(&format!("o/models/blobs/sha256-{}", blob(digit)));
    }
    symlink("/etc/passwd", dir.path(&format!("o/models/blobs/sha256-{}", blob('d')))).unwrap();
    for (name, digit) in [
        ("registry.ollama.ai/library/tiny/latest", 'a'),
        ("registry.ollama.ai/acme/mine/v1", 'b'),
        ("hf.co/acme/far/Q4_K_M", 'd'),
        ("hf.co/acme/lost/Q4_K_M", 'c'),
    ] {
        let media = "application/vnd.ollama.image.model";
        let layer = format!(r#"{{"mediaType":"{media}","digest":"sha256:{}"}}"#, blob(digit));
        dir.put(&format!("o/models/manifests/{name}"), format!(r#"{{"layers":[{layer}]}}"#));
    }
    let (a, b) = (blob('a'), blob('b'));
    let walk = dir.walk_of("o/models");
    let want = [
        "hf.co/acme/lost:Q4_K_M=!".to_owned(),
        format!("acme/mine:v1=blobs/sha256-{b}"),
        format!("tiny:latest=blobs/sha256-{a}"),
    ];
    assert_eq!(shown(&walk), want);
    assert!(walk.notes[0].contains(&blob('d')), "{:?}", walk.notes);
    // Below what lies above it, too.
    assert!(
        shown(&dir.walk()).contains(&format!("o/models/tiny:latest=o/models/blobs/sha256-{a}"))
    );
    fs::remove_dir_all(dir.path("o/models/manifests")).unwrap();
    assert_eq!(dir.walk().models.len(), 2, "by content, where nothing names them");
}

#[test]
fn what_models_there_seem_to_be_below_a_directory() {
    let dir = Dir::new();
    dir.put("a/b/c.txt", "").put(".hidden/m.gguf", "");
    assert!(!seems_to_hold_some(dir.0.path()));
    dir.put("a/b/m.gguf", "");
    assert!(seems_to_hold_some(dir.0.path()));
    assert!(!seems_to_hold_some(&dir.path("none")));
}

#[test]
fn what_lies_too_deep_is_told() {
    let dir = Dir::new();
    dir.model("1/2/3/4/5/6/7/8/m.gguf").model("1/2/3/4/5/6/7/8/9/m.gguf");
    let walk = dir.walk();
    assert_eq!(shown(&walk), ["1/2/3/4/5/6/7/8=1/2/3/4/5/6/7/8"]);
    assert!(walk.notes[0].contains("1/2/3/4/5/6/7/8/9"), "{:?}", walk.notes);
}

#[test]
fn too_many_models_are_refused() {
    let dir = Dir::new();
    let bytes = gguf(&[], &[("a", 8)]);
    for i in 0..=MOST_MODELS {
        dir.put(&format!("{i}.gguf"), &bytes);
    }
    let text = walk(dir.0.path()).unwrap_err().to_string();
    assert!(text.contains("over 4096 models"), "{text}");
    fs::remove_file(dir.path("0.gguf")).unwrap();
    assert_eq!(dir.walk().models.len(), MOST_MODELS);
}

#[test]
fn a_cache_of_the_hub_shows_repositories_by_name_and_no_blobs() {
    const ONE: &str = "bbc77c8132af1cc5cf678da3f1ddf2de43606d48";
    let dir = Dir::new();
    for (repo, file) in [("models--acme--tiny", "m.gguf"), ("models--gpt2", "onnx/m.gguf")] {
        dir.model(&format!("hub/{repo}/blobs/0123"));
        let snapshot = dir.path(&format!("hub/{repo}/snapshots/{ONE}"));
        let up = "../".repeat(2 + file.matches('/').count());
        fs::create_dir_all(snapshot.join(file).parent().unwrap()).unwrap();
        symlink(format!("{up}blobs/0123"), snapshot.join(file)).unwrap();
        symlink("/etc/passwd", snapshot.join("out.gguf")).unwrap();
        dir.put(&format!("hub/{repo}/refs/main"), ONE);
    }
    dir.model("hub/datasets--acme--words/snapshots/1/x.gguf");
    dir.model("hub/models--broken/blobs/x").model("hub/models--broken/snapshots/1/x.gguf");
    dir.model("hub/models--broken/snapshots/2/x.gguf");
    let tiny = format!("models--acme--tiny/snapshots/{ONE}");
    let gpt2 = format!("models--gpt2/snapshots/{ONE}/onnx");
    let want = [
        format!("acme/tiny={tiny}/m.gguf"),
        "broken=models--broken!".into(),
        format!("gpt2/onnx={gpt2}"),
    ];
    let walk = dir.walk_of("hub");
    assert_eq!(shown(&walk), want);
    assert!(walk.notes[0].contains("out.gguf"), "{:?}", walk.notes);
    // A repository, or a snapshot, by itself.
    let alone = format!("snapshots/{ONE}/m.gguf");
    assert_eq!(shown(&dir.walk_of("hub/models--acme--tiny")), [format!("m.gguf={alone}")]);
    assert_eq!(shown(&dir.walk_of(&format!("hub/{tiny}"))), ["m.gguf=m.gguf"]);
}

#[test]
fn only_a_directory_holds_models() {
    let dir = Dir::new();
    dir.model("m.gguf");
    for name in ["m.gguf", "none"] {
        let text = walk(&dir.path(name)).unwrap_err().to_string();
        assert!(text.contains(name), "{text}");
    }
    fs::create_dir(dir.path("empty")).unwrap();
    assert!(dir.walk_of("empty").models.is_empty());
}

#[test]
fn a_directory_is_no_mount_of_ours_for_its_name() {
    let dir = Dir::new();
    dir.model("st/model.gguf").put("st/.weightfs/status.json", "").model("a/m.gguf");
    let walk = dir.walk();
    assert_eq!(shown(&walk), ["a=a", "st=st"]);
    assert!(walk.notes.is_empty(), "{:?}", walk.notes);
}
