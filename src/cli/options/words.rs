//! Splitting at commas that no backslash protects.

/// The words between commas. `\,` is a comma and `\\` a backslash inside a word; a backslash
/// before anything else stands for itself. Empty words, as in `a,,b`, are left out.
pub(super) fn split(list: &[u8]) -> Vec<Vec<u8>> {
    let mut words = Vec::new();
    let mut word = Vec::new();
    let mut bytes = list.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b',' => words.push(std::mem::take(&mut word)),
            b'\\' => word.push(bytes.next_if(|next| matches!(next, b',' | b'\\')).unwrap_or(b'\\')),
            other => word.push(other),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_split_unless_protected() {
        let cases: &[(&str, &[&str])] = &[
            ("", &[]),
            (",", &[]),
            ("a", &["a"]),
            ("a,b", &["a", "b"]),
            (",a,,b,", &["a", "b"]),
            (r"a\,b,c", &["a,b", "c"]),
            (r"a\\,b", &[r"a\", "b"]),
            (r"a\\\,b", &[r"a\,b"]),
            (r"a\nb", &[r"a\nb"]),
            (r"a\", &[r"a\"]),
            (r"a\\", &[r"a\"]),
        ];
        for (list, want) in cases {
            let got = split(list.as_bytes());
            let want: Vec<_> = want.iter().map(|w| w.as_bytes().to_vec()).collect();
            assert_eq!(got, want, "{list:?}");
        }
    }
}
