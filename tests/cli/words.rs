//! Arguments, help, and messages for what is not there.

use super::*;

#[test]
fn usage_errors_end_with_2() {
    let place = Place::new();
    for (args, word) in [
        (&[][..], "MODEL"),
        (&["ls"], "MODEL"),
        (&["m.gguf"], "MOUNTPOINT"),
        (&["ls", "m.gguf", "--frob"], "--frob"),
        (&["m.gguf", "mnt", "-o", "frob"], "frob"),
        (&["m.gguf", "mnt", "-o", "verify=perhaps"], "perhaps"),
        (&["m.gguf", "mnt", "--set", "split.count=3"], "split.count"),
        (&["m.gguf", "mnt", "--ready-fd", "0"], "3 or more"),
        (&["m.gguf", "mnt", "--ready-fd", "abc"], "file descriptor"),
        (&["m.gguf", "mnt", "--set", "a.b=18446744073709551616"], "64 bits"),
        (&["m.gguf", "mnt", "--set", "a.b=[1,-9223372036854775809]"], "64 bits"),
        (&["lst"], "did you mean weightfs ls?"),
        (&["frob"], "umount, ls, info"),
        (&["stats"], "MODEL"),
        (&["diff", "m.gguf"], "<B>"),
        (&["seal", "m.gguf", "--chunk-size", "64GB"], "\"GB\""),
        (&["completions", "elvish"], "bash, zsh, fish"),
        (&["cat", "m.gguf", "b", "--as", "q4"], "q4"),
        (&["seal", "m.gguf", "--chunk-size", "3KiB"], "power of two"),
        (&["seal", "m.gguf", "m.gguf", "--output", "x"], "--output"),
        (&["verify", "m.gguf", "--expect-sha256", "00"], "64"),
        (&["completions", "tcsh"], "tcsh"),
    ] {
        place.run(args).failed(2, &[word]);
    }
}

#[test]
fn help_and_version_go_to_stdout() {
    let place = Place::new();
    let version = place.run(&["--version"]);
    assert_eq!(version.done().out, format!("weightfs {}\n", env!("CARGO_PKG_VERSION")));
    assert!(place.run(&["--help"]).done().out.contains("weightfs MODEL MOUNTPOINT"));
    for command in
        ["mount", "umount", "ls", "info", "cat", "seal", "verify", "map", "status", "completions"]
    {
        let help = place.run(&[command, "--help"]);
        assert!(help.done().out.contains("Usage: weightfs"), "{help:?}");
        assert_eq!(help.err, "");
    }
}

#[test]
fn help_is_a_word_and_a_file_all_the_same() {
    let place = Place::new();
    assert_eq!(place.run(&["help"]).done().out, place.run(&["--help"]).out);
    assert_eq!(place.run(&["help", "seal"]).done().out, place.run(&["seal", "--help"]).out);
    place.run(&["help", "nowhere"]).failed(1, &["help"]);
}

#[test]
fn a_name_in_a_store_that_is_not_there_fails_plainly() {
    let place = Place::new();
    for args in [&["ls", "hf:org/name"][..], &["info", "ollama:name"], &["hf:org/name", "mnt"]] {
        place.run(args).failed(1, &["name", "no m"]);
    }
    for args in [&["ls", "hf:../x"][..], &["verify", "ollama:/etc"], &["ollama:a/../b", "mnt"]] {
        place.run(args).failed(1, &["not a name in a store"]);
    }
}

#[test]
fn messages_hold_no_numbers_of_the_system() {
    let place = Place::new();
    let full = || Stdio::from(fs::File::options().write(true).open("/dev/full").unwrap());
    for args in [
        &["ls", "m.gguf"][..],
        &["help"],
        &["completions", "bash"],
        &["info", "m.gguf"],
        &["cat", "m.gguf", "b"],
    ] {
        let said = Said::from(place.command(args).stdout(full()).output().unwrap());
        said.failed(1, &["stdout", "No space left"]);
        assert!(!said.err.contains("os error"), "{said:?}");
    }
    for args in [
        &["ls", "none.gguf"][..],
        &["verify", "m.gguf", "--against", "none"],
        &["map", "m.gguf", "--map", "none.json"],
        &["m.gguf", "mnt", "-o", "seal=none.json"],
        &["m.gguf", "mnt", "--set", "a=@none"],
    ] {
        let said = place.run(args);
        said.failed(1, &["none"]);
        assert!(!said.err.contains("os error"), "{said:?}");
    }
    place.run(&["map", "m.gguf", "--map", "hff"]).failed(1, &["none, hf, gguf", "FILE"]);
    place.run(&["m.gguf", "mnt", "-o", "seal=x.json"]).failed(1, &["x.json", "the seal"]);
}

#[test]
fn completions_are_scripts() {
    let place = Place::new();
    for (shell, part) in
        [("bash", "complete -F"), ("zsh", "#compdef weightfs"), ("fish", "complete -c weightfs")]
    {
        let said = place.run(&["completions", shell]);
        assert!(said.done().out.contains(part), "{shell}");
    }
    let mut bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn().unwrap();
    let script = place.run(&["completions", "bash"]).out;
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(bash.wait().unwrap().success());
}

#[test]
fn what_is_not_there_is_named() {
    let place = Place::new();
    place.run(&["ls", "none.gguf"]).failed(1, &["none.gguf"]);
    place.run(&["none.gguf", "mnt"]).failed(1, &["none.gguf"]);
    place.run(&["m.gguf", "nowhere"]).failed(1, &["nowhere", "mkdir"]);
    place.run(&["m.gguf", "m.gguf"]).failed(1, &["m.gguf", "directory"]);
    place.run(&["umount", "mnt"]).failed(1, &["mnt", "nothing is mounted"]);
    place.run(&["umount", "/proc"]).failed(1, &["/proc", "not a weightfs mount"]);
    place.run(&["status", "mnt"]).failed(1, &["mnt", "no model is mounted"]);
    place.run(&["m.gguf", "mnt", "-o", "log=/proc/none/x"]).failed(1, &["/proc/none/x"]);
    assert!(!place.is_mounted());
}

#[test]
fn a_mount_point_above_the_model_is_refused() {
    let place = Place::new();
    place.run(&["m.gguf", "."]).failed(1, &["m.gguf", "mount would hide"]);
    std::os::unix::fs::symlink(place.path("m.gguf"), place.path("mnt/link.gguf")).unwrap();
    place.run(&["mnt/link.gguf", "mnt"]).failed(1, &["link.gguf", "mount would hide"]);
    assert!(!place.is_mounted());
}
