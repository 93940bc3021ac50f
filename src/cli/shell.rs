//! Words of a command that a message gives for the user to copy: whatever is in them, a shell
//! takes each as one word and does nothing else with it.

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use weightfs::bytes::line::is_unsafe;

/// A path as a word of a command. What is plain stays as it is; what a shell reads otherwise stands
/// in single quotes; what a terminal must not be given is written as escapes in `$'...'`, which
/// shells read back to the same bytes. A path that begins like an option has `./` in front.
pub(crate) fn word(path: &Path) -> String {
    let path = path.as_os_str().as_bytes();
    let front = if path.starts_with(b"-") { "./" } else { "" };
    match std::str::from_utf8(path) {
        Ok(text) if !text.is_empty() && text.chars().all(is_plain) => format!("{front}{text}"),
        Ok(text) if !text.chars().any(is_unsafe) => {
            format!("'{front}{}'", text.replace('\'', "'\\''"))
        }
        _ => format!("$'{front}{}'", escaped(path)),
    }
}

/// Whether no shell does anything with it, wherever in a word it stands.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | '+' | ',' | ':' | '@' | '%')
}

/// Three octal digits for each byte of what is not printed: a digit that follows is not taken for
/// a fourth.
fn escaped(path: &[u8]) -> String {
    let mut out = String::new();
    let octal = |out: &mut String, bytes: &[u8]| {
        for byte in bytes {
            let _ = write!(out, "\\{byte:03o}");
        }
    };
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\'' | '\\' => out.extend(['\\', c]),
                c if is_unsafe(c) => octal(&mut out, c.encode_utf8(&mut [0; 4]).as_bytes()),
                c => out.push(c),
            }
        }
        octal(&mut out, chunk.invalid());
    }
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::process::Command;

    fn word_of(bytes: &[u8]) -> String {
        word(Path::new(OsStr::from_bytes(bytes)))
    }

    #[test]
    fn what_is_plain_stays_and_the_rest_is_quoted() {
        for (bytes, want) in [
            (&b"/tmp/m.gguf"[..], "/tmp/m.gguf"),
            (b"hf:org/name@main", "hf:org/name@main"),
            ("caf\u{e9}".as_bytes(), "caf\u{e9}"),
            (b"", "''"),
            (b"s p.gguf", "'s p.gguf'"),
            (b"it's", "'it'\\''s'"),
            (b"$(rm)", "'$(rm)'"),
            (b"~/x", "'~/x'"),
            (b"-x", "./-x"),
            (b"-x y", "'./-x y'"),
            (b"a\nb'c", "$'a\\nb\\'c'"),
            (b"\x1b[2J7\xff7", "$'\\033[2J7\\3777'"),
        ] {
            assert_eq!(word_of(bytes), want);
        }
    }

    #[test]
    fn a_shell_reads_the_same_bytes() {
        let all: Vec<u8> = (1..=255).collect();
        let rtl = "\u{202e}gpj'\\".as_bytes();
        for bytes in [&all[..], rtl, b"a b", b"it's", b"`x` $y !z", b"\\", b"#*?[a]{b,c}"] {
            let script = format!("printf %s {}", word_of(bytes));
            let said = Command::new("bash").args(["-c", &script]).env("LC_ALL", "C").output();
            assert_eq!(said.unwrap().stdout, bytes, "{script}");
        }
    }
}
