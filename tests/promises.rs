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
    for script in ["scripts/demo", "scripts/test", "scripts/packaging/deb"] {
        assert!(readme().contains(script));
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &fs::metadata(root().join(script)).unwrap().permissions(),
        );
        assert!(mode & 0o111 != 0, "{script} cannot be run");
    }
}

/// Commands of the README's session, each with what it prints.
fn session() -> Vec<(String, Vec<String>)> {
    let readme = readme();
    let text = readme.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
    let mut commands: Vec<(String, Vec<String>)> = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => commands.push((command.to_owned(), Vec::new())),
            None => commands.last_mut().unwrap().1.push(line.to_owned()),
        }
    }
    commands
}

/// A line with its numbers and units made alike, and its columns as close as may be.
fn form(line: &str) -> String {
    let word = |word: &str| match word {
        "B" | "KiB" | "MiB" | "GiB" => "UNIT".to_owned(),
        word => {
            let digits = |c: char| c.is_ascii_digit() || c == '.';
            let bare = word.trim_matches(['[', ']', ',']);
            let is_number = !bare.is_empty() && bare.chars().all(digits);
            if is_number { word.replace(bare, "1") } else { word.to_owned() }
        }
    };
    line.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
}

/// The first tensors of the session's model; its embedding is cut to a few rows.
fn small_gemma() -> Vec<u8> {
    fn string(file: &mut Vec<u8>, text: &str) {
        file.extend((text.len() as u64).to_le_bytes());
        file.extend(text.as_bytes());
    }
    let mut file = b"GGUF\x03\0\0\0".to_vec();
    file.extend(3u64.to_le_bytes());
    file.extend(2u64.to_le_bytes());
    for (key, value) in [("general.architecture", "gemma3"), ("general.name", "Gemma 3 270m")] {
        string(&mut file, key);
        file.extend(8u32.to_le_bytes());
        string(&mut file, value);
    }
    let mut offset = 0u64;
    let blocks = |elements: u64, bytes: u64| elements / 32 * bytes;
    for (name, kind, dims, len) in [
        ("output_norm.weight", 0u32, &[640u64][..], 640 * 4),
        ("token_embd.weight", 8, &[640, 64], blocks(640 * 64, 34)),
        ("blk.0.attn_k.weight", 6, &[640, 256], blocks(640 * 256, 22)),
    ] {
        string(&mut file, name);
        file.extend((dims.len() as u32).to_le_bytes());
        dims.iter().for_each(|dim| file.extend(dim.to_le_bytes()));
        file.extend(kind.to_le_bytes());
        file.extend(offset.to_le_bytes());
        offset += len;
    }
    file.resize(file.len().next_multiple_of(32) + offset as usize, 0);
    file
}

/// Unmounts, also when a test fails.
struct Point<'a>(&'a Path);

impl Drop for Point<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("-l")
            .arg(self.0)
            .stderr(std::process::Stdio::null())
            .status();
    }
}

#[test]
fn the_session_in_the_readme_is_what_one_sees() {
    if std::env::var_os("WEIGHTFS_SKIP_MOUNT_TESTS").is_some_and(|v| v == "1") {
        eprintln!("SKIPPED: WEIGHTFS_SKIP_MOUNT_TESTS=1");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let mnt = dir.path().join("mnt");
    fs::create_dir(&mnt).unwrap();
    fs::write(dir.path().join("gemma.gguf"), small_gemma()).unwrap();
    let _point = Point(&mnt);
    let bin = Path::new(WEIGHTFS).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let mut replayed = 0;
    for (command, printed) in session() {
        // What other programs print of the real values is theirs.
        if command.starts_with("python3") || command.starts_with("sha256sum") {
            continue;
        }
        let output = Command::new("sh")
            .args(["-c", &command.replace("/mnt/g", mnt.to_str().unwrap())])
            .current_dir(dir.path())
            .env("PATH", &path)
            .env("HOME", dir.path())
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CACHE_HOME")
            .output()
            .unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{command}: {output:?}");
        let said = String::from_utf8(output.stdout).unwrap();
        if command.starts_with("ls ") {
            let names: Vec<_> = said.lines().collect();
            let told: Vec<_> = printed.iter().flat_map(|line| line.split_whitespace()).collect();
            assert_eq!(names, told, "{command}");
        } else {
            let forms =
                |lines: Vec<String>| lines.iter().map(|line| form(line)).collect::<Vec<_>>();
            let said = said.lines().map(str::to_owned).collect();
            assert_eq!(forms(said), forms(printed), "{command}");
        }
        replayed += 1;
    }
    assert!(replayed >= 6, "{replayed}");
}
