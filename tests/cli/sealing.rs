//! `seal` and `verify`: what they say, and how they end.

use super::*;
use serde_json::Value as Json;

const SEAL: &str = "m.gguf.weightfs.json";

/// Changes one byte of the tensor `a.weight`, `at` bytes into it.
fn damage(place: &Place, at: usize) {
    let mut file = fs::read(place.path("m.gguf")).unwrap();
    let start = file.windows(64).position(|w| *w == values(64)[..]).unwrap();
    file[start + at] ^= 4;
    fs::write(place.path("m.gguf"), file).unwrap();
}

fn verified(place: &Place, args: &[&str], code: i32) -> Json {
    let said = place.run(&[&["verify", "--json"], args].concat());
    assert_eq!(said.code, Some(code), "{said:?}");
    serde_json::from_str(&said.out).unwrap()
}

fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().unwrap();
    String::from_utf8(output.stdout[..64].to_vec()).unwrap()
}

#[test]
fn a_seal_is_made_kept_refused_and_replaced() {
    let place = Place::new();
    let said = place.run(&["seal", "m.gguf"]);
    assert!(said.done().out.starts_with("m.gguf: sealed 2 tensors"), "{said:?}");
    assert_eq!(said.err, "");
    let first = fs::read(place.path(SEAL)).unwrap();
    assert!(place.run(&["seal", "m.gguf"]).done().out.contains("sealed already"));
    damage(&place, 66_000);
    place.run(&["seal", "m.gguf"]).failed(5, &[SEAL, "1 of", "--force"]);
    assert_eq!(fs::read(place.path(SEAL)).unwrap(), first);
    place.run(&["seal", "--force", "m.gguf"]).done();
    place.run(&["verify", "m.gguf"]).done();
}

#[test]
fn a_seal_is_named_as_the_model_was() {
    let place = Place::new();
    fs::create_dir(place.path("sub")).unwrap();
    for model in ["m.gguf", "sub/n.gguf", "sub/../o.gguf"] {
        fs::write(place.path(model), gguf(&[("a.weight", 70_000)])).unwrap();
        let said = place.run(&["seal", model]);
        let end = format!("in 4 chunks of 64 KiB -> {model}.weightfs.json\n");
        assert!(said.done().out.ends_with(&end), "{said:?}");
        assert!(place.run(&["seal", model]).out.ends_with(&format!(" {model}.weightfs.json\n")));
    }
    let whole = place.path("m.gguf");
    let said = place.run(&["seal", "--force", "--chunk-size", "16MiB", whole.to_str().unwrap()]);
    let end = format!("of 16 MiB -> {}.weightfs.json\n", whole.display());
    assert!(said.done().out.ends_with(&end), "{said:?}");
}

#[test]
fn a_seal_that_is_kept_may_not_be_the_one_asked_for() {
    let place = Place::new();
    place.run(&["seal", "m.gguf", "--no-sha256"]).done();
    let said = place.run(&["seal", "m.gguf", "--chunk-size", "1MiB"]);
    assert!(said.done().out.contains("sealed already"), "{said:?}");
    for part in ["chunks of 64 KiB, not 1 MiB", "no SHA-256", "--force"] {
        assert!(said.err.contains(part), "{said:?}");
    }
    assert_eq!(place.run(&["seal", "m.gguf", "--no-sha256"]).done().err, "");
    place.run(&["seal", "m.gguf", "--force"]).done();
    assert_eq!(place.run(&["seal", "m.gguf"]).done().err, "");
    assert!(place.run(&["seal", "m.gguf", "--no-sha256"]).done().err.contains("has SHA-256"));
}

#[test]
fn info_says_which_seal_there_is() {
    let place = Place::new();
    let line = |words: &str| {
        let said = place.run(&["info", "m.gguf"]);
        let line = said.done().out.lines().find(|line| line.starts_with("  seal ")).unwrap();
        assert!(line.contains(words), "{words:?}: {line}");
    };
    line("none");
    place.run(&["seal", "m.gguf"]).done();
    line("CRC32 and SHA-256, beside the model");
    let seal = fs::read_to_string(place.path(SEAL)).unwrap();
    fs::write(place.path(SEAL), seal.replace("a.weight", "a.weighs")).unwrap();
    line("INVALID");
    fs::write(place.path("n.gguf"), gguf(&[("other", 3)])).unwrap();
    place.run(&["seal", "n.gguf"]).done();
    fs::rename(place.path("n.gguf.weightfs.json"), place.path(SEAL)).unwrap();
    line("OF ANOTHER MODEL");
    // Only a mount has the option to go without.
    for args in [&["cat", "m.gguf", "b"][..], &["verify", "m.gguf"], &["seal", "m.gguf"]] {
        let said = place.run(args);
        said.failed(5, &[SEAL, "weightfs seal --force"]);
        assert!(!said.err.contains("seal=none"), "{said:?}");
    }
}

#[test]
fn damage_is_named_and_ends_with_3() {
    let place = Place::new();
    place.run(&["seal", "m.gguf"]).done();
    let good = place.run(&["verify", "m.gguf"]);
    assert!(good.done().out.starts_with("m.gguf: good ("), "{good:?}");
    assert_eq!(good.err, "");
    damage(&place, 66_000);
    let said = place.run(&["verify", "m.gguf"]);
    said.failed(3, &["m.gguf", "damaged: 1 of 6 chunks is bad"]);
    let cat = place.run(&["cat", "m.gguf", "a.weight"]);
    assert_eq!((cat.code, cat.err.matches("a.weight").count()), (Some(1), 1), "{}", cat.err);
    let row = said.out.lines().find(|line| line.trim_start().starts_with("a.weight")).unwrap();
    let row = row.split_whitespace().collect::<Vec<_>>();
    assert_eq!(row[..3], ["a.weight", "1", "m.gguf"], "{said:?}");
    let document = verified(&place, &["m.gguf"], 3);
    let model = &document["models"][0];
    assert_eq!(
        (&model["result"], &model["bad"][0]["tensor"]),
        (&"damaged".into(), &"a.weight".into())
    );
    assert_eq!(model["bad"][0]["chunk"], 1);
    assert_eq!(model["bad"][0]["source"]["length"], 70_000 - 65_536);
}

#[test]
fn without_a_seal_there_is_nothing_to_verify_against() {
    let place = Place::new();
    place.run(&["verify", "m.gguf"]).failed(4, &["m.gguf", "weightfs seal"]);
    assert_eq!(verified(&place, &["m.gguf"], 4)["models"][0]["result"], "unsealed");
    place.run(&["m.gguf", "mnt", "-o", "seal=require"]).failed(4, &["m.gguf", "seal=require"]);
    assert!(!place.is_mounted());
}

#[test]
fn a_seal_that_cannot_be_relied_on_ends_with_5_but_a_look_is_free() {
    let place = Place::new();
    place.run(&["seal", "m.gguf"]).done();
    let seal = fs::read_to_string(place.path(SEAL)).unwrap();
    fs::write(place.path(SEAL), seal.replace("a.weight", "a.weighs")).unwrap();
    place.run(&["verify", "m.gguf"]).failed(5, &[SEAL]);
    place.run(&["cat", "m.gguf", "b"]).failed(5, &[SEAL]);
    place.run(&["m.gguf", "mnt"]).failed(5, &[SEAL, "seal=none"]);
    assert!(!place.is_mounted());
    let said = place.run(&["ls", "m.gguf"]);
    assert!(said.done().out.contains("a.weight") && said.err.contains(SEAL), "{said:?}");
}

#[test]
fn digests_from_elsewhere() {
    let place = Place::new();
    let digest = sha256(&place.path("m.gguf"));
    let zeros = "0".repeat(64);
    place.run(&["verify", "m.gguf", "--expect-sha256", &digest]).done();
    place.run(&["verify", "m.gguf", "--expect-sha256", &zeros]).failed(3, &["m.gguf"]);
    fs::write(place.path("good"), format!("{digest}  elsewhere/m.gguf\n")).unwrap();
    fs::write(place.path("bad"), format!("{zeros} *m.gguf\n")).unwrap();
    fs::write(place.path("other"), format!("{digest}  other.gguf\n")).unwrap();
    place.run(&["verify", "m.gguf", "--against", "good"]).done();
    place.run(&["verify", "m.gguf", "--against", "other"]).failed(4, &["other", "m.gguf"]);
    place.run(&["verify", "m.gguf", "--against", "none"]).failed(1, &["none"]);
    let bad = verified(&place, &["m.gguf", "--against", "bad"], 3);
    assert_eq!(bad["models"][0]["bad"][0]["found"], digest.as_str());
    // The seal says one thing about the file and the command line another.
    place.run(&["seal", "m.gguf"]).done();
    place.run(&["verify", "m.gguf", "--expect-sha256", &zeros]).failed(5, &[&digest, &zeros]);
}

#[test]
fn of_several_models_the_first_of_1_5_3_4_is_the_end() {
    let place = Place::new();
    fs::copy(place.path("m.gguf"), place.path("u.gguf")).unwrap();
    place.run(&["seal", "m.gguf"]).done();
    damage(&place, 0);
    for (args, code) in [
        (&["m.gguf", "u.gguf"][..], 3),
        (&["u.gguf", "none.gguf", "m.gguf"], 1),
        (&["u.gguf", "u.gguf"], 4),
    ] {
        let document = verified(&place, args, code);
        assert_eq!(document["models"].as_array().unwrap().len(), args.len());
    }
}

#[test]
fn nothing_but_a_seal_is_replaced_by_one() {
    let place = Place::new();
    let model = fs::read(place.path("m.gguf")).unwrap();
    fs::hard_link(place.path("m.gguf"), place.path("hard")).unwrap();
    std::os::unix::fs::symlink("m.gguf", place.path("soft")).unwrap();
    fs::write(place.path("notes"), "mine").unwrap();
    for output in ["m.gguf", "hard", "soft", "notes", "mnt", "/dev/null"] {
        for force in [&["--force"][..], &[]] {
            let args = [&["seal", "m.gguf", "--output", output], force].concat();
            place.run(&args).failed(1, &[output, "remove it yourself"]);
        }
    }
    assert_eq!(fs::read(place.path("m.gguf")).unwrap(), model);
    assert_eq!(fs::read(place.path("notes")).unwrap(), b"mine");
    // At the seal's own name it is a seal that does not fit; force replaces that, but no model.
    fs::write(place.path(SEAL), &model).unwrap();
    place.run(&["seal", "m.gguf", "--force"]).failed(1, &[SEAL, "remove it yourself"]);
    assert_eq!(fs::read(place.path(SEAL)).unwrap(), model);
    fs::write(place.path(SEAL), "mine").unwrap();
    place.run(&["seal", "m.gguf"]).failed(5, &[SEAL, "not a weightfs seal"]);
    assert_eq!(fs::read(place.path(SEAL)).unwrap(), b"mine");
    place.run(&["seal", "m.gguf", "--force"]).done();
    place.run(&["verify", "m.gguf"]).done();
}

#[test]
fn what_only_has_the_name_of_a_seal_ends_with_5() {
    let put: [&dyn Fn(&Path); 4] = [
        &|path| std::os::unix::fs::symlink("nowhere", path).unwrap(),
        &|path| std::os::unix::fs::symlink(SEAL, path).unwrap(),
        &|path| fs::create_dir(path).unwrap(),
        &|path| assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
    ];
    for put in put {
        let place = Place::new();
        put(&place.path(SEAL));
        for args in [&["m.gguf", "mnt"][..], &["verify", "m.gguf"], &["cat", "m.gguf", "b"]] {
            place.run(args).failed(5, &[SEAL, "-o seal=none"]);
        }
        assert!(!place.is_mounted());
    }
}
