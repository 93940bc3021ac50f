//! Commands that read a model without mounting it.

use super::*;

#[test]
fn ls_lines_up_and_adds_up() {
    let place = Place::new();
    let said = place.run(&["ls", "m.gguf"]);
    let lines: Vec<_> = said.done().out.lines().collect();
    assert_eq!(
        lines,
        [
            "NAME      DTYPE  SHAPE        SIZE",
            "a.weight  I8     [70000]  68.4 KiB",
            "b         I8     [3]           3 B",
            "2 tensors, 70.0 k parameters, 68.4 KiB",
        ]
    );
}

#[test]
fn info_shows_a_portrait() {
    let place = Place::new();
    let said = place.run(&["info", "m.gguf"]);
    for part in [
        "m.gguf",
        "GGUF version 3, little-endian",
        "llama",
        "70003",
        "I8",
        "100.0 %",
        "general.architecture",
    ] {
        assert!(said.done().out.contains(part), "no {part:?} in {}", said.out);
    }
    assert!(!said.out.contains('\x1b'));
}

#[test]
fn json_is_one_document_and_ends_its_line() {
    let place = Place::new();
    for args in [
        &["ls", "m.gguf", "--json"][..],
        &["info", "m.gguf", "--json"],
        &["map", "m.gguf", "--json"],
    ] {
        let said = place.run(args);
        assert!(said.done().out.ends_with("}\n"), "{said:?}");
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap();
    }
}

#[test]
fn cat_writes_the_bytes_by_either_name() {
    let place = Place::new();
    for name in ["a.weight", "a.weight.bin", "tensors/a.weight.bin"] {
        let output = place.command(&["cat", "m.gguf", name]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(output.stdout, values(70_000));
    }
    let npy = place.command(&["cat", "m.gguf", "b", "--as", "npy"]).output().unwrap();
    assert!(npy.stdout.starts_with(b"\x93NUMPY") && npy.stdout.ends_with(&values(3)));
    place.run(&["cat", "m.gguf", "a.wieght"]).failed(1, &["a.wieght", "did you mean a.weight?"]);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let place = Place::new();
    fs::write(place.path("big.gguf"), gguf(&[("x", 8 << 20)])).unwrap();
    for args in [&["cat", "big.gguf", "x"][..], &["completions", "bash"], &["mount", "--help"]] {
        let mut child =
            place.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(
            (output.status.code(), output.stderr.as_slice()),
            (Some(0), &b""[..]),
            "{args:?}"
        );
    }
}

#[test]
fn what_is_one_is_called_one_and_an_empty_name_is_seen() {
    let place = Place::new();
    let mut file = gguf(&[("", 1)]);
    file.push(7);
    fs::write(place.path("one.gguf"), file).unwrap();
    let ls = place.run(&["ls", "one.gguf"]);
    assert!(
        ls.done().out.ends_with("\"\"    I8     [1]     1 B\n1 tensor, 1 parameter, 1 B\n"),
        "{ls:?}"
    );
    let info = place.run(&["info", "one.gguf"]);
    for part in ["parameters    1\n", "metadata, 1 key\n", "1 byte after the last tensor"] {
        assert!(info.done().out.contains(part), "no {part:?} in {}", info.out);
    }
    assert!(place.run(&["map", "one.gguf"]).done().out.contains("\"\"      =  \"\"\n"));
}

#[test]
fn names_from_a_file_never_reach_the_terminal_raw() {
    let place = Place::new();
    fs::write(place.path("evil.gguf"), gguf(&[("\x1b[2Jx\u{202e}", 1)])).unwrap();
    let said = place.run(&["ls", "evil.gguf"]);
    assert!(said.done().out.contains("\\x1b[2Jx\\u{202e}"), "{said:?}");
    let said = place.run(&["cat", "evil.gguf", "\x1b[2Jy"]);
    said.failed(1, &["\\x1b[2Jy"]);
    assert!(!said.err.contains('\x1b'));
}
