//! One `name=value`, and what can be made of its value.

use super::{OptionError, Override, SetValue, TABLE};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use weightfs::bytes::line::InLine;

/// One option as written.
pub(super) struct Word<'a> {
    pub(super) name: &'a str,
    pub(super) value: Option<&'a [u8]>,
}

impl<'a> Word<'a> {
    pub(super) fn shown(&self) -> String {
        match self.value {
            Some(value) => format!("{}={}", self.name, value.in_line()),
            None => self.name.to_owned(),
        }
    }

    pub(super) fn bad(&self, expected: impl Into<String>) -> OptionError {
        let value = self.value.unwrap_or_default().in_line().to_string();
        OptionError::Bad { name: self.name.into(), value, expected: expected.into() }
    }

    pub(super) fn flag(&self) -> Result<bool, OptionError> {
        match self.value {
            None => Ok(true),
            Some(value) => Err(OptionError::Value {
                name: self.name.into(),
                value: String::from_utf8_lossy(value).into_owned(),
            }),
        }
    }

    pub(super) fn bytes(&self) -> Result<&'a [u8], OptionError> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => {
                let form = TABLE.iter().flat_map(|line| line.form.split(", ")).find(|form| {
                    form.strip_prefix(self.name).is_some_and(|rest| rest.starts_with('='))
                });
                Err(OptionError::NoValue {
                    name: self.name.into(),
                    form: form.unwrap_or("NAME=VALUE"),
                })
            }
        }
    }

    pub(super) fn os(&self) -> Result<OsString, OptionError> {
        Ok(OsString::from_vec(self.bytes()?.to_vec()))
    }

    pub(super) fn path(&self) -> Result<PathBuf, OptionError> {
        self.os().map(PathBuf::from)
    }

    pub(super) fn text(&self) -> Result<&'a str, OptionError> {
        std::str::from_utf8(self.bytes()?).map_err(|_| self.bad("must be UTF-8"))
    }

    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Result<T, OptionError> {
        let text = self.text()?;
        choices.iter().find(|(name, _)| *name == text).map(|(_, value)| *value).ok_or_else(|| {
            let names: Vec<_> = choices.iter().map(|(name, _)| *name).collect();
            self.bad(format!("one of {}", names.join(", ")))
        })
    }

    pub(super) fn number(&self, min: u64, max: u64) -> Result<u64, OptionError> {
        let text = self.text()?;
        let digits = text.bytes().all(|b| b.is_ascii_digit());
        match text.parse() {
            Ok(n) if digits && (min..=max).contains(&n) => Ok(n),
            _ => Err(self.bad(format!("a whole number from {min} to {max}"))),
        }
    }

    pub(super) fn octal(&self) -> Result<u32, OptionError> {
        let text = self.text()?;
        match u32::from_str_radix(text, 8) {
            Ok(n) if n <= 0o777 && !text.starts_with('+') => Ok(n),
            _ => Err(self.bad("an octal number from 0 to 777")),
        }
    }

    pub(super) fn set(&self) -> Result<Override, OptionError> {
        let bytes = self.bytes()?;
        let equals = bytes.iter().position(|&b| b == b'=');
        let Some((key, value)) = equals.map(|at| (&bytes[..at], &bytes[at + 1..])) else {
            return Err(self.bad("set=KEY=JSON or set=KEY=@FILE"));
        };
        let Ok(key) = std::str::from_utf8(key) else {
            return Err(self.bad("the key must be UTF-8"));
        };
        if key.is_empty() {
            return Err(self.bad("the key is empty"));
        }
        if key.starts_with("split.") || key == "general.alignment" {
            return Err(self.bad(format!("{key} describes the file itself and cannot be set")));
        }
        let value = match value {
            [b'@', file @ ..] if !file.is_empty() => {
                SetValue::File(OsString::from_vec(file.to_vec()).into())
            }
            json => SetValue::Json(weightfs::overrides::json(json).map_err(|error| {
                if serde_json::from_slice::<serde_json::Value>(json).is_ok() {
                    return self.bad(error);
                }
                self.bad(format!("{error}; a string needs quotes: set={key}='\"text\"'"))
            })?),
        };
        Ok(Override { key: key.to_owned(), value })
    }
}
