//! OpenSSF model signatures: the digests in them, and nothing more.
//!
//! A Sigstore bundle holds a DSSE envelope, that an in-toto statement, that the digests of
//! files or of parts of files. The signature is not verified here, so these are digests that
//! lie beside the model like any others; nobody may call them signed.

use super::collector::Collector;
use super::find::file_of_list;
use super::line::digest;
use super::{Range, Sum};
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
                None => unsupported(name, &kinds(digest), None, claims),
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
            let name = &subject.name;
            Err(format!(
                "a model signature whose subject {name:?} has the SHA-256 {said}, but the digests it lists come to {found}"
            ))
        }
        None => Err(format!(
            "a model signature whose subject {:?} has no SHA-256, but {}",
            subject.name,
            kinds(&subject.digest)
        )),
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
    let sharded = algorithm.starts_with("sha256-sharded-");
    if algorithm != "sha256" && !sharded {
        unsupported(name, algorithm, subject, claims);
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
        None => claims.file(shard, Sum::Sha256(sha256)),
        Some((from, to)) => claims.range(shard, Range { from, to, sha256 }),
    }
    Ok(())
}

/// BLAKE2 and BLAKE3 are allowed in such signatures and not computed here: what has only those
/// is not compared with anything.
fn unsupported(name: &str, algorithm: &str, subject: Option<&str>, claims: &mut Collector<'_>) {
    let (kind, sharded) = match algorithm.split_once("-sharded-") {
        Some((kind, _)) => (kind, true),
        None => (algorithm, false),
    };
    let file = match sharded {
        true => name.rsplitn(3, ':').nth(2).unwrap_or(name),
        false => name,
    };
    match shard_of(file, subject, claims) {
        Some(shard) => {
            let file = claims.model.shards[shard].file.clone();
            claims.unsupported(&file, kind);
        }
        None => claims.stranger(name.as_bytes()),
    }
}

/// The algorithms of some digests, with commas.
fn kinds(digests: &HashMap<String, String>) -> String {
    let mut kinds: Vec<_> = digests.keys().map(String::as_str).collect();
    kinds.sort_unstable();
    match &*kinds {
        [] => "none".to_owned(),
        kinds => kinds.join(", "),
    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::testing::{Case, sha};
    use super::super::{Kind, List, ListError, compare, contradiction, find, work};
    use super::*;
    use serde_json::{Value as Json, json};

    fn bundle(statement: &Json) -> String {
        let payload = STANDARD.encode(statement.to_string());
        json!({
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {"publicKey": {"hint": "x"}, "tlogEntries": []},
            "dsseEnvelope": {
                "payload": payload,
                "payloadType": "application/vnd.in-toto+json",
                "signatures": [{"sig": "AAAA", "keyid": ""}],
            },
        })
        .to_string()
    }

    /// A statement over resources (name, algorithm, digest), with the digest it should have.
    fn statement(subject: &str, resources: &[(&str, &str, String)]) -> Json {
        let all: Vec<u8> = resources
            .iter()
            .flat_map(|(_, _, digest)| bytes_from_hex(digest.as_bytes()).unwrap())
            .collect();
        let list: Vec<Json> = resources
            .iter()
            .map(|(name, algorithm, digest)| {
                json!({"name": name, "algorithm": algorithm, "digest": digest})
            })
            .collect();
        json!({
            "_type": "https://in-toto.io/Statement/v1",
            "subject": [{"name": subject, "digest": {"sha256": sha(&all)}}],
            "predicateType": "https://model_signing/signature/v1.0",
            "predicate": {
                "serialization": {"method": "files", "hash_type": "sha256"},
                "resources": list,
            },
        })
    }

    fn read(case: &Case, statement: &Json) -> Result<List, ListError> {
        List::read(&case.put("some.sig", bundle(statement)), &case.model)
    }

    #[test]
    fn digests_of_files_are_taken_and_called_what_they_are() {
        let case = Case::new(&[&["a"], &["b"]]);
        let (zero, one) = (case.sha_of_file(0), case.sha_of_file(1));
        let says = statement(
            "dir",
            &[
                ("m0", "sha256", zero.clone()),
                ("sub/m1", "sha256", one),
                ("README.md", "sha256", "00".repeat(32)),
                ("m1", "blake3", "11".repeat(32)),
            ],
        );
        case.put("model.sig", bundle(&says));
        let found = find(&case.model, &case.sources());
        let warning =
            "digest algorithm \"blake3\" is not supported: that of \"m1\" is not compared";
        assert!(found.warnings.len() == 1 && found.warnings[0].ends_with(warning), "{found:?}");
        let [only] = &found.anchors[..] else { panic!("{found:?}") };
        assert_eq!((only.kind, only.shard), (Kind::ModelSigning, 0));
        assert_eq!(only.claim.sha256.map(|d| hex(&d)), Some(zero));
        assert!(!only.source().contains("signed"));
        let given = read(&case, &says).unwrap();
        assert!(given.claims[1].sha256.is_some(), "the user says that it is of this model");
        assert_eq!((given.strangers.0, given.warnings.len()), (1, 1));
    }

    #[test]
    fn the_subject_is_the_digest_of_all_digests_in_order() {
        let case = Case::new(&[&["a"], &["b"]]);
        let mut says = statement(
            "dir",
            &[("m0", "sha256", case.sha_of_file(0)), ("m1", "sha256", case.sha_of_file(1))],
        );
        assert!(read(&case, &says).is_ok());
        says["predicate"]["resources"].as_array_mut().unwrap().reverse();
        let error = read(&case, &says).unwrap_err().to_string();
        assert!(error.contains("the digests it lists come to"), "{error}");
    }

    /// What only has digests that are not computed is not verified, and says so.
    #[test]
    fn blake_is_never_taken_for_what_it_is_not() {
        let case = Case::new(&[&["a"]]);
        let sum = case.sha_of_file(0);
        let twice = sum.repeat(2);
        for (name, algorithm, digits) in [
            ("m0", "blake3", &sum),
            ("m0", "blake2b", &twice),
            ("m0", "SHA256", &sum),
            ("m0:0:60", "blake3-sharded-1000000000", &sum),
            (".", "blake3", &sum),
        ] {
            let subject = if name == "." { "m0" } else { "d" };
            let says = statement(subject, &[(name, algorithm, digits.clone())]);
            case.put("model.sig", bundle(&says));
            let found = find(&case.model, &case.sources());
            assert_eq!(found.anchors, [], "{algorithm}");
            let kind = algorithm.split("-sharded").next().unwrap();
            let want = format!("algorithm {kind:?} is not supported: that of \"m0\"");
            assert!(found.warnings[0].contains(&want), "{found:?}");
        }
        // The first layout, and a subject of which only such a digest is told.
        let digest = json!({"blake2b": twice.clone(), "blake3": sum.clone()});
        let says = json!({
            "predicateType": "https://model_signing/Digests/v0.1",
            "subject": [{"name": "m0", "digest": digest.clone()}],
        });
        let list = read(&case, &says).unwrap();
        assert!(list.claims[0].is_empty() && list.warnings[0].contains("\"blake2b, blake3\""));
        let mut says = statement("d", &[("m0", "sha256", sum)]);
        says["subject"][0]["digest"] = digest;
        let error = read(&case, &says).unwrap_err().to_string();
        assert!(error.contains("\"d\" has no SHA-256, but blake2b, blake3"), "{error}");
    }

    #[test]
    fn parts_of_files() {
        let case = Case::new(&[&["a"]]);
        let bytes = &case.bytes[0];
        let says = statement(
            "dir",
            &[
                ("m0:0:40", "sha256-sharded-40", sha(&bytes[..40])),
                ("m0:40:60", "sha256-sharded-40", sha(&bytes[40..])),
            ],
        );
        let list = read(&case, &says).unwrap();
        let ranges: Vec<_> = list.claims[0].ranges.iter().map(|r| (r.from, r.to)).collect();
        assert_eq!(ranges, [(0, 40), (40, 60)]);
        // One part that is all of it is the file.
        let says =
            statement("dir", &[("m0:0:60", "sha256-sharded-1000000000", case.sha_of_file(0))]);
        let claim = &read(&case, &says).unwrap().claims[0];
        assert!(claim.sha256.is_some() && claim.ranges.is_empty());
        for name in ["m0", "m0:5:5", "m0:9:5", "m0:x:5", "m0:0:99999999999999999999"] {
            let says = statement("dir", &[(name, "sha256-sharded-40", "00".repeat(32))]);
            assert!(matches!(read(&case, &says), Err(ListError::Unfit { .. })), "{name}");
        }
    }

    /// A part may be said to end anywhere, and to be there as often as one likes.
    #[test]
    fn parts_behind_the_end_or_over_each_other() {
        let case = Case::new(&[&["a"]]);
        let part = |name: &'static str, sha: &str| (name, "sha256-sharded-1", sha.to_owned());
        let (x, y) = ("00".repeat(32), "11".repeat(32));
        let last = "m0:0:18446744073709551615";
        let list = read(&case, &statement("d", &[part(last, &x), part(last, &x)])).unwrap();
        assert_eq!(list.claims[0].ranges.len(), 1);
        assert_eq!(work(&list.claims, &case.model), 0);
        let report = compare(&list.claims, &case.model, &case.sources(), &|_| {}).unwrap();
        assert!(report.bad[0].found.contains("the file ends at 60"), "{report:?}");

        let over = statement("d", &[part("m0:0:40", &x), part("m0:39:60", &x)]);
        let error = read(&case, &over).unwrap_err().to_string();
        assert!(error.contains("0:40 and 39:60") && error.contains("overlap"), "{error}");

        let twice = statement("d", &[part("m0:0:40", &x), part("m0:0:40", &y)]);
        assert!(matches!(read(&case, &twice), Err(ListError::Twice { .. })));
        case.put("model.sig", bundle(&twice));
        let found = find(&case.model, &case.sources());
        let said = contradiction(&found.anchors, &case.model).unwrap().to_string();
        assert!(
            said.contains("m0: ") && said.contains("its bytes 0 to 40") && said.contains(&y),
            "{said}"
        );
    }

    #[test]
    fn a_model_of_one_file_is_called_by_a_dot() {
        let case = Case::new(&[&["a"]]);
        let says = |subject: &str| statement(subject, &[(".", "sha256", case.sha_of_file(0))]);
        let beside = |name: &str, statement: &Json| {
            let path = case.put(name, bundle(statement));
            let n = find(&case.model, &case.sources()).anchors.len();
            std::fs::remove_file(path).unwrap();
            n
        };
        assert_eq!(beside("model.sig", &says("m0")), 1);
        assert_eq!(beside("m0.sig", &says("whatever")), 1);
        assert_eq!(beside("model.sig", &says("other.gguf")), 0, "of which file nobody says");
        assert!(read(&case, &says("other.gguf")).unwrap().claims[0].sha256.is_some());
    }

    #[test]
    fn the_first_layout_has_a_subject_per_file() {
        let case = Case::new(&[&["a"]]);
        let says = json!({
            "predicateType": "https://model_signing/Digests/v0.1",
            "subject": [
                {"name": "m0", "digest": {"sha256": case.sha_of_file(0)}},
                {"name": "x", "digest": {"blake2b": "00"}},
            ],
        });
        let list = read(&case, &says).unwrap();
        assert!(list.claims[0].sha256.is_some());
        assert_eq!(list.strangers.0, 1);
    }

    #[test]
    fn what_is_no_bundle() {
        let case = Case::new(&[&["a"]]);
        let unfit = |text: &str| {
            let read = List::read(&case.put("x.sig", text), &case.model);
            assert!(matches!(read, Err(ListError::Unfit { .. })), "{text}");
        };
        unfit("{\"dsseEnvelope\": {}}");
        unfit("{\"dsseEnvelope\": {\"payload\": \"***\"}}");
        unfit("{\"dsseEnvelope\": {\"payload\": \"AAAA\"}}");
        unfit(&bundle(&json!({"predicateType": "https://slsa.dev/provenance/v1"})));
        let mut says = statement(
            "d",
            &[("m0", "sha256", "zz".to_owned())].map(|(a, b, _)| (a, b, "00".to_owned())),
        );
        unfit(&bundle(&says));
        says["subject"] = json!([]);
        unfit(&bundle(&says));
        case.put("pgp.sig", b"\x89\x02\x33");
        assert_eq!(find(&case.model, &case.sources()).warnings.len(), 1, "x.sig is left there");
    }
}
