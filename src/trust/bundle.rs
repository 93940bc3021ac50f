//! OpenSSF model signatures: the digests in them, and nothing more.
//!
//! A Sigstore bundle holds a DSSE envelope, that an in-toto statement, that the digests of
//! files or of parts of files. The signature is not verified here, so these are digests that
//! lie beside the model like any others; nobody may call them signed.

use super::Range;
use super::find::file_of_list;
use super::line::digest;
use super::list::Collector;
use crate::bytes::hex::{bytes_from_hex, hex};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::HashMap;

/// The predicate of the first layout of such signatures, in which each file is a subject.
const ONE_SUBJECT_PER_FILE: &str = "/Digests/v0.1";

#[derive(Deserialize)]
struct Bundle {
    #[serde(rename = "dsseEnvelope")]
    envelope: Option<Envelope>,
}

#[derive(Deserialize)]
struct Envelope {
    payload: String,
}

#[derive(Deserialize)]
struct Statement {
    #[serde(default)]
    subject: Vec<Subject>,
    #[serde(rename = "predicateType", default)]
    predicate_type: String,
    #[serde(default)]
    predicate: Option<Predicate>,
}

#[derive(Deserialize)]
struct Subject {
    #[serde(default)]
    name: String,
    #[serde(default)]
    digest: HashMap<String, String>,
}

#[derive(Deserialize)]
struct Predicate {
    #[serde(default)]
    resources: Vec<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    name: String,
    algorithm: String,
    digest: String,
}

/// Takes the digests of a bundle; false when the document is something else.
pub(super) fn read(text: &[u8], claims: &mut Collector<'_>) -> Result<bool, String> {
    let bundle: Bundle =
        serde_json::from_slice(text).map_err(|e| format!("not a JSON document: {e}"))?;
    let Some(Envelope { payload }) = bundle.envelope else {
        return Ok(false);
    };
    let payload = STANDARD
        .decode(payload.trim_end())
        .map_err(|e| format!("a model signature whose payload is not base64: {e}"))?;
    let statement: Statement = serde_json::from_slice(&payload)
        .map_err(|e| format!("a model signature whose payload is no statement: {e}"))?;
    let resources = statement.predicate.map(|p| p.resources).unwrap_or_default();
    if resources.is_empty() {
        if !statement.predicate_type.ends_with(ONE_SUBJECT_PER_FILE) {
            let what = &statement.predicate_type;
            return Err(format!("a signature with the predicate {what:?}, which lists no files"));
        }
        for Subject { name, digest } in &statement.subject {
            match digest.get("sha256") {
                Some(digits) => resource(name, "sha256", digits, None, claims)?,
                None => claims.stranger(name.as_bytes()),
            }
        }
        return Ok(true);
    }
    let [subject] = &statement.subject[..] else {
        let n = statement.subject.len();
        return Err(format!("a model signature with {n} subjects instead of one"));
    };
    check_subject(subject, &resources)?;
    for Resource { name, algorithm, digest } in &resources {
        resource(name, algorithm, digest, Some(&subject.name), claims)?;
    }
    Ok(true)
}

/// The subject's digest is that of all digests, in the order in which they are listed.
fn check_subject(subject: &Subject, resources: &[Resource]) -> Result<(), String> {
    let mut sha = Sha256::new();
    for Resource { name, digest, .. } in resources {
        let bytes = bytes_from_hex(digest.to_ascii_lowercase().as_bytes());
        sha.update(bytes.ok_or_else(|| format!("the digest of {name:?} is not hexadecimal"))?);
    }
    let found = hex(&sha.finalize());
    match subject.digest.get("sha256") {
        Some(said) if said.eq_ignore_ascii_case(&found) => Ok(()),
        Some(said) => {
            Err(format!("a model signature over {said}, but the digests it lists come to {found}"))
        }
        None => Err("a model signature without the SHA-256 of what it lists".to_owned()),
    }
}

/// One file, or with `sha256-sharded-SIZE` the part `NAME:FROM:TO` of one.
fn resource(
    name: &str,
    algorithm: &str,
    digits: &str,
    subject: Option<&str>,
    claims: &mut Collector<'_>,
) -> Result<(), String> {
    let sharded = algorithm.strip_prefix("sha256-sharded-").is_some();
    if algorithm != "sha256" && !sharded {
        // BLAKE2 and BLAKE3 are allowed there and not computed here.
        claims.stranger(name.as_bytes());
        return Ok(());
    }
    let sha256 = digest(digits.as_bytes())
        .ok_or_else(|| format!("the digest of {name:?} is not a SHA-256"))?;
    let (file, part) = if sharded {
        let mut parts = name.rsplitn(3, ':');
        let (to, from, file) = (parts.next(), parts.next(), parts.next());
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok());
        match (file, number(from), number(to)) {
            (Some(file), Some(from), Some(to)) if from < to => (file, Some((from, to))),
            _ => return Err(format!("{name:?} is not FILE:FROM:TO")),
        }
    } else {
        (name, None)
    };
    let Some(shard) = shard_of(file, subject, claims) else {
        claims.stranger(name.as_bytes());
        return Ok(());
    };
    match part {
        None => claims.file(shard, sha256),
        Some((from, to)) => claims.range(shard, Range { from, to, sha256 }),
    }
    Ok(())
}

/// The file with this name. A model of one file is called `.`, and then the subject's name,
/// or that of the signature, says which file it is.
fn shard_of(file: &str, subject: Option<&str>, claims: &Collector<'_>) -> Option<usize> {
    if file != "." {
        return claims.shard_beside(file.as_bytes());
    }
    let by_subject = subject.and_then(|name| claims.shard(name.as_bytes()));
    let by_name = || claims.shard(file_of_list(claims.path)?);
    let only = claims.is_given() && claims.model.shards.len() == 1;
    by_subject.or_else(by_name).or_else(|| only.then_some(0))
}
