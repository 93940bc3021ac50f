//! The directories that the stores' own programs use, as the environment says.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Where the stores are.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Places {
    /// The cache of the Hugging Face hub; none without a home directory.
    pub(super) hub: Option<PathBuf>,
    /// Ollama's stores, in the order they are looked through.
    pub(super) ollama: Vec<PathBuf>,
}

/// Stores of an Ollama that runs as a service.
const OLLAMA_SERVICE: [&str; 2] = ["/usr/share/ollama/.ollama/models", "/var/lib/ollama/models"];

type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Places {
    pub(super) fn of_this_process() -> Places {
        Places::new(&|name| std::env::var_os(name), std::env::home_dir().as_deref())
    }

    /// `home` is where `~` is.
    pub(super) fn new(variables: Variables<'_>, home: Option<&Path>) -> Places {
        let home = home.filter(|home| home.is_absolute());
        let said = |name: &str| variables(name).filter(|value| !value.is_empty());
        let path = |value: OsString| expanded(&value, variables, home);
        let below = |base: Option<PathBuf>, end: &str| base.map(|base| base.join(end));
        let hub = said("HF_HUB_CACHE")
            .or_else(|| said("HUGGINGFACE_HUB_CACHE"))
            .map(path)
            .or_else(|| below(said("HF_HOME").map(path), "hub"))
            .or_else(|| below(said("XDG_CACHE_HOME").map(path), "huggingface/hub"))
            .or_else(|| below(home.map(Path::to_path_buf), ".cache/huggingface/hub"));
        let ollama = match said("OLLAMA_MODELS").map(unquoted).filter(|value| !value.is_empty()) {
            Some(value) => vec![value.into()],
            None => below(home.map(Path::to_path_buf), ".ollama/models")
                .into_iter()
                .chain(OLLAMA_SERVICE.map(PathBuf::from))
                .collect(),
        };
        Places { hub: hub.map(absolute), ollama: ollama.into_iter().map(absolute).collect() }
    }
}

/// The daemon leaves the working directory.
fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

/// Ollama takes a value without the blanks and quotes around it.
fn unquoted(value: OsString) -> OsString {
    let is_around = |byte: &u8| matches!(byte, b' ' | b'\t' | b'"' | b'\'');
    let bytes = value.as_bytes();
    let from = bytes.iter().position(|b| !is_around(b)).unwrap_or(bytes.len());
    let to = bytes.iter().rposition(|b| !is_around(b)).map_or(from, |last| last + 1);
    OsString::from_vec(bytes[from..to].to_vec())
}

/// A path in which the hub's library puts `~` and variables in: those that are not set stay.
fn expanded(value: &OsStr, variables: Variables<'_>, home: Option<&Path>) -> PathBuf {
    let bytes = value.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    if let (Some(home), true) = (home, bytes == b"~" || bytes.starts_with(b"~/")) {
        out.extend(home.as_os_str().as_bytes());
        rest = &bytes[1..];
    }
    while let Some((&byte, after)) = rest.split_first() {
        let variable = (byte == b'$').then(|| variable(after)).flatten();
        let set = variable.and_then(|(name, length)| Some((variables(name)?, length)));
        match set {
            Some((value, length)) => {
                out.extend(value.as_bytes());
                rest = &after[length..];
            }
            None => {
                out.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(out).into()
}

/// The variable's name at the beginning, as `NAME` or `{NAME}`, and how long that is.
fn variable(text: &[u8]) -> Option<(&str, usize)> {
    let (name, around) = match text.strip_prefix(b"{") {
        Some(inner) => (&inner[..inner.iter().position(|&b| b == b'}')?], 2),
        None => {
            let is_word = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_';
            (&text[..text.iter().take_while(is_word).count()], 0)
        }
    };
    let name = std::str::from_utf8(name).ok().filter(|name| !name.is_empty())?;
    Some((name, name.len() + around))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn places(variables: &[(&str, &str)]) -> Places {
        let variable = |name: &str| {
            let found = variables.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        Places::new(&variable, Some(Path::new("/home/u")))
    }

    #[test]
    fn the_hubs_variables_in_their_order() {
        let mut variables = vec![];
        for (variable, want) in [
            (("HOME", "/elsewhere"), "/home/u/.cache/huggingface/hub"),
            (("XDG_CACHE_HOME", "/x"), "/x/huggingface/hub"),
            (("HF_HOME", "/h"), "/h/hub"),
            (("HUGGINGFACE_HUB_CACHE", "/old"), "/old"),
            (("HF_HUB_CACHE", "/new"), "/new"),
        ] {
            variables.push(variable);
            assert_eq!(places(&variables).hub.unwrap(), Path::new(want), "{variable:?}");
        }
        let empty = [("HF_HUB_CACHE", ""), ("HF_HOME", "")];
        assert_eq!(places(&empty).hub, places(&[]).hub);
    }

    #[test]
    fn home_and_variables_in_a_value() {
        let with = |value| {
            let hub = places(&[("HF_HUB_CACHE", value), ("A", "/a"), ("B_1", "b")]).hub.unwrap();
            hub.to_str().unwrap().to_owned()
        };
        assert_eq!(with("~"), "/home/u");
        assert_eq!(with("~/x"), "/home/u/x");
        assert_eq!(with("$A/${B_1}c/$B_1"), "/a/bc/b");
        assert_eq!(with("/$NONE/${NONE}/$/${/x~"), "/$NONE/${NONE}/$/${/x~");
        let here = std::env::current_dir().unwrap();
        assert_eq!(with("rel"), here.join("rel").to_str().unwrap());
    }

    #[test]
    fn ollamas_store_is_the_one_it_is_told_or_the_usual_ones() {
        assert_eq!(places(&[("OLLAMA_MODELS", " \"/o\" ")]).ollama, [Path::new("/o")]);
        let usual = ["/home/u/.ollama/models", OLLAMA_SERVICE[0], OLLAMA_SERVICE[1]];
        assert_eq!(places(&[]).ollama, usual.map(Path::new));
        assert_eq!(places(&[("OLLAMA_MODELS", "''")]).ollama, usual.map(Path::new));
    }

    #[test]
    fn without_a_home_only_what_needs_none() {
        let none = Places::new(&|_| None, None);
        assert_eq!(none.hub, None);
        assert_eq!(none.ollama, OLLAMA_SERVICE.map(Path::new));
        assert_eq!(Places::new(&|_| None, Some(Path::new("relative"))), none);
    }
}
