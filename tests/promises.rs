//! What help, man page and README promise is what the program does.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

const WEIGHTFS: &str = env!("CARGO_BIN_EXE_weightfs");

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn said(args: &[&str]) -> String {
    let output = Command::new(WEIGHTFS).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap()
}

/// The commands that `--help` lists.
fn commands() -> Vec<String> {
    let help = said(&["--help"]);
    let list = help.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned()).collect()
}

/// The forms of `-o` that `mount --help` lists.
fn option_forms() -> Vec<String> {
    let help = said(&["mount", "--help"]);
    let list = help.split("Options for -o:\n").nth(1).unwrap();
    list.lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .map(|line| line.trim().to_owned())
        .collect()
}

#[test]
fn the_man_page_is_the_one_in_the_repository() {
    let committed = fs::read_to_string(root().join("man/weightfs.1")).unwrap();
    assert!(
        committed == said(&["--man-page"]),
        "man/weightfs.1 is old: cargo run -- --man-page >man/weightfs.1"
    );
}

#[test]
fn the_man_page_has_every_command_and_option() {
    let page = fs::read_to_string(root().join("man/weightfs.1")).unwrap().replace("\\-", "-");
    for command in commands() {
        assert!(page.contains(&format!(".SS \"weightfs {command}\"")), "{command}");
    }
    for form in option_forms() {
        assert!(page.contains(&form), "{form}");
    }
    for section in [
        "SYNOPSIS",
        "MOUNT OPTIONS",
        "TREE",
        "FILES",
        "EXIT STATUS",
        "ERRORS",
        "ENVIRONMENT",
        "EXAMPLES",
    ] {
        assert!(page.contains(&format!(".SH {section}\n")), "{section}");
    }
}

#[test]
fn the_readme_has_every_command_and_option() {
    let readme = readme();
    for command in commands() {
        assert!(readme.contains(&command), "{command}");
    }
    let forms = option_forms();
    assert!(forms.len() > 10, "{forms:?}");
    for form in forms {
        let row = format!("| `{}` |", form.replace('|', "\\|"));
        assert!(readme.contains(&row), "{row}");
    }
}

#[test]
fn options_in_the_readme_are_options() {
    let forms = option_forms().join(" ");
    for row in readme().lines().filter_map(|line| line.strip_prefix("| `")) {
        let Some((form, _)) = row.split_once("` |") else {
            continue;
        };
        let form = form.replace("\\|", "|");
        let is_option =
            form.contains('=') && !form.contains(' ') || form.contains(", ") && form.contains('=');
        assert!(!is_option || forms.contains(&form), "{form} is no option any more");
    }
}

#[test]
fn programs_that_the_readme_names_are_there() {
    for script in ["scripts/demo", "scripts/test"] {
        assert!(readme().contains(script));
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(root().join(script)).unwrap().permissions(),
        );
        assert!(mode & 0o111 != 0, "{script} cannot be run");
    }
}
