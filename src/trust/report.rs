//! This program's own provenance reports, read back.
//!
//! The YAML is of the one shape that is written: a JSON object behind each `  - `.

use super::Sum;
use super::collector::Collector;
use super::line::digest;
use super::small;
use crate::bytes::hex::{bytes_from_hex, from_hex};
use serde::Deserialize;
use std::io::{self, Read};

/// What every such report begins with.
pub(super) const FIRST_KEY: &[u8] = b"weightfs_report:";
/// The version that is written and read.
const VERSION: u64 = 1;

#[derive(Deserialize)]
struct Report {
    weightfs_report: Option<u64>,
    #[serde(default)]
    files: Vec<Entry>,
    #[serde(default)]
    tensors: Vec<Entry>,
}

/// A file or a tensor.
#[derive(Deserialize)]
struct Entry {
    /// Of a tensor; of a file in reports of other versions.
    name: Option<String>,
    name_hex: Option<String>,
    /// Of a file; that of a tensor of a set is its file's.
    file: Option<String>,
    file_hex: Option<String>,
    sha256: Option<String>,
    crc32: Option<String>,
}

/// Takes a report in JSON; false when the document is something else.
pub(super) fn read_json(text: &[u8], claims: &mut Collector<'_>) -> Result<bool, String> {
    let report: Report =
        serde_json::from_slice(text).map_err(|e| format!("not a JSON document: {e}"))?;
    match report.weightfs_report {
        None => return Ok(false),
        Some(VERSION) => {}
        Some(other) => return Err(format!("a provenance report of version {other}")),
    }
    for entry in &report.files {
        entry.file(claims)?;
    }
    for entry in &report.tensors {
        entry.tensor(claims)?;
    }
    Ok(true)
}

/// Takes a report in YAML.
pub(super) fn read_yaml(
    text: impl Read,
    limit: u64,
    claims: &mut Collector<'_>,
) -> io::Result<Result<(), String>> {
    let mut section = Vec::new();
    let mut result = Ok(());
    small::lines(text, limit, |_, line| {
        let Some(line) = line else { return };
        if result.is_err() {
            return;
        }
        if let Some(version) = line.strip_prefix(FIRST_KEY) {
            if version.trim_ascii() != VERSION.to_string().as_bytes() {
                let version = String::from_utf8_lossy(version.trim_ascii()).into_owned();
                result = Err(format!("a provenance report of version {version}"));
            }
        } else if let Some(item) = line.strip_prefix(b"  - ") {
            let wanted = matches!(&*section, b"files:" | b"tensors:");
            let entry = wanted.then(|| serde_json::from_slice::<Entry>(item));
            result = match entry {
                None => Ok(()),
                Some(Err(e)) => Err(format!("a provenance report with an entry that is none: {e}")),
                Some(Ok(entry)) if section == b"files:" => entry.file(claims),
                Some(Ok(entry)) => entry.tensor(claims),
            };
        } else if line.first().is_some_and(u8::is_ascii_alphabetic) {
            section = line.to_vec();
        }
    })?;
    Ok(result)
}

impl Entry {
    /// What it is called, in JSON.
    fn shown(&self) -> &str {
        self.name.as_ref().or(self.file.as_ref()).map_or("", String::as_str)
    }

    fn name(&self) -> Result<Vec<u8>, String> {
        let (name, digits) = match &self.name {
            Some(name) => (Some(name), &self.name_hex),
            None => (self.file.as_ref(), &self.file_hex),
        };
        match (name, digits) {
            (None, _) => Err("an entry without a name".to_owned()),
            (Some(name), None) => Ok(name.clone().into_bytes()),
            (Some(name), Some(digits)) => bytes_from_hex(digits.as_bytes())
                .ok_or_else(|| format!("{name:?} has a hexadecimal name that is none")),
        }
    }

    fn sha256(&self) -> Result<Option<[u8; 32]>, String> {
        match &self.sha256 {
            None => Ok(None),
            Some(digits) => match digest(digits.as_bytes()) {
                Some(sha256) => Ok(Some(sha256)),
                None => Err(format!("{:?} has a SHA-256 that is none: {digits:?}", self.shown())),
            },
        }
    }

    /// All that it says.
    fn sums(&self) -> Result<[Option<Sum>; 2], String> {
        let crc32 = match &self.crc32 {
            None => None,
            Some(digits) => match from_hex::<4>(digits.as_bytes()) {
                Some(crc32) => Some(Sum::Crc32(u32::from_be_bytes(crc32))),
                None => {
                    return Err(format!("{:?} has a CRC32 that is none: {digits:?}", self.shown()));
                }
            },
        };
        Ok([self.sha256()?.map(Sum::Sha256), crc32])
    }

    fn file(&self, claims: &mut Collector<'_>) -> Result<(), String> {
        let name = self.name()?;
        let sums = self.sums()?.into_iter().flatten();
        match claims.shard(&name) {
            Some(shard) => sums.for_each(|sum| claims.file(shard, sum)),
            None => claims.stranger(&name),
        }
        Ok(())
    }

    fn tensor(&self, claims: &mut Collector<'_>) -> Result<(), String> {
        let name = self.name()?;
        let Some(index) = claims.tensor_of_name(&name) else {
            claims.no_tensor(&name);
            return Ok(());
        };
        self.sums()?.into_iter().flatten().for_each(|sum| claims.tensor(index, sum));
        Ok(())
    }
}
