//! `seal --part` and `seal --merge`: many workers make the seal that one run makes.

use super::*;
use serde_json::Value as Json;

const INDEX: &str = "model.safetensors.index.json";
const SEAL: &str = "model.safetensors.index.json.weightfs.json";

fn shard(number: usize) -> String {
    format!("model-{number:05}-of-00003.safetensors")
}

fn part(number: usize) -> String {
    format!("model-{number:05}-of-00003.safetensors.weightfs-part.json")
}

/// A safetensors file of U8 tensors.
fn safetensors(tensors: &[(&str, u64)]) -> Vec<u8> {
    let mut header = serde_json::Map::new();
    let mut at = 0;
    for (name, len) in tensors {
        let entry =
            serde_json::json!({"dtype": "U8", "shape": [len], "data_offsets": [at, at + len]});
        header.insert((*name).into(), entry);
        at += len;
    }
    let header = Json::Object(header).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.bytes());
    file.extend(values(at));
    file
}

/// A place with a checkpoint of three shards below `s`; the third has a tensor that the index
/// finds in the second.
fn sharded() -> Place {
    let place = Place::new();
    fs::create_dir(place.path("s")).unwrap();
    let tensors: [&[(&str, u64)]; 3] =
        [&[("a", 70_000), ("empty", 0)], &[("b", 5)], &[("b", 5), ("c", 200_001), ("d", 3)]];
    let mut map = serde_json::Map::new();
    for (number, tensors) in (1..).zip(tensors) {
        fs::write(place.path("s").join(shard(number)), safetensors(tensors)).unwrap();
        for (name, _) in tensors {
            map.entry(*name).or_insert_with(|| shard(number).into());
        }
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
    fs::write(place.path("s").join(INDEX), index).unwrap();
    place
}

fn in_s(place: &Place, args: &[&str]) -> Said {
    Said::from(place.command(args).current_dir(place.path("s")).output().unwrap())
}

/// A seal without the time of its making, and that time.
fn body(place: &Place, name: &str) -> (String, String) {
    let text = fs::read_to_string(place.path("s").join(name)).unwrap();
    let (_, body) = text.split_once("\"body\":").unwrap();
    let (_, rest) = body.split_once("\"created\":\"").unwrap();
    let (created, rest) = rest.split_once('"').unwrap();
    (rest.to_owned(), created.to_owned())
}

fn make_parts(place: &Place, more: &[&str]) -> Vec<String> {
    let shards: Vec<String> = (1..=3).map(shard).collect();
    let shards: Vec<&str> = shards.iter().map(String::as_str).collect();
    in_s(place, &[&["seal", "--part"][..], more, &shards].concat()).done();
    (1..=3).map(part).collect()
}

fn merge(place: &Place, args: &[&str]) -> Said {
    in_s(place, &[&["seal", "--merge"][..], args].concat())
}

#[test]
fn parts_merge_into_the_seal_of_one_run() {
    for more in [&[][..], &["--chunk-size", "4KiB"], &["--no-sha256"]] {
        let place = sharded();
        let parts = make_parts(&place, more);
        let mut given: Vec<&str> = parts.iter().map(String::as_str).collect();
        // In any order.
        given.rotate_left(1);
        let said = merge(&place, &given);
        assert!(said.done().out.contains("sealed 5 tensors"), "{said:?}");
        let (merged, created) = body(&place, SEAL);
        let newest = (1..=3).map(|number| body(&place, &part(number)).1).max().unwrap();
        assert_eq!(created, newest);
        let bytes = fs::read(place.path("s").join(SEAL)).unwrap();
        in_s(&place, &[&["seal", "--force", INDEX][..], more].concat()).done();
        assert_eq!(body(&place, SEAL).0, merged);
        // The same parts give the same bytes, also with the model named.
        given.push(INDEX);
        given.push("--force");
        merge(&place, &given).done();
        assert_eq!(fs::read(place.path("s").join(SEAL)).unwrap(), bytes);
        in_s(&place, &["verify", INDEX]).done();
        // A seal that is there and fits is left.
        given.pop();
        assert!(merge(&place, &given).done().out.contains("sealed already"));
    }
}

#[test]
fn parts_of_a_split_gguf_and_of_one_file_merge_as_well() {
    let place = Place::new();
    fs::create_dir(place.path("s")).unwrap();
    fs::copy(place.path("m.gguf"), place.path("s/m.gguf")).unwrap();
    in_s(&place, &["seal", "--part", "m.gguf"]).done();
    merge(&place, &["m.gguf.weightfs-part.json", "--output", "merged"]).done();
    in_s(&place, &["seal", "m.gguf", "--output", "run"]).done();
    assert_eq!(body(&place, "merged").0, body(&place, "run").0);
}

/// The workers have one file each and nothing else; the parts are brought together later.
#[test]
fn a_part_needs_its_own_file_only() {
    let place = sharded();
    let mut parts = Vec::new();
    for number in 1..=3 {
        let alone = place.path(&format!("worker{number}"));
        fs::create_dir(&alone).unwrap();
        for name in [shard(number), INDEX.to_owned()] {
            fs::copy(place.path("s").join(&name), alone.join(&name)).unwrap();
        }
        let output = place.path("s").join(format!("part{number}"));
        let mut command = place.command(&["seal", "--part", &shard(number), "--output"]);
        Said::from(command.arg(&output).current_dir(alone).output().unwrap()).done();
        parts.push(format!("part{number}"));
    }
    let given: Vec<&str> = parts.iter().map(String::as_str).collect();
    merge(&place, &given).done();
    in_s(&place, &["verify", INDEX]).done();
}

#[test]
fn parts_that_do_not_make_the_model_are_refused_by_name() {
    let place = sharded();
    let parts = make_parts(&place, &[]);
    let [one, two, three] = [&*parts[0], &*parts[1], &*parts[2]];
    merge(&place, &[one, three]).failed(1, &["2 of 3 parts", &shard(2), "--part"]);
    merge(&place, &[one, two, three, two]).failed(1, &[two, "and so is"]);
    merge(&place, &[INDEX]).failed(1, &["0 of 3 parts", &shard(1)]);
    merge(&place, &[one, two, "nothing"]).failed(1, &["nothing"]);

    in_s(&place, &["seal", "--part", "--force", "--chunk-size", "1MiB", &shard(2)]).done();
    merge(&place, &parts.iter().map(String::as_str).collect::<Vec<_>>())
        .failed(1, &[two, "chunks of 1048576 bytes", one]);
    in_s(&place, &["seal", "--part", "--force", "--no-sha256", &shard(2)]).done();
    merge(&place, &[one, two, three]).failed(1, &[two, "no SHA-256"]);

    // Of another file, and damaged.
    fs::copy(place.path("m.gguf"), place.path("s/o.gguf")).unwrap();
    in_s(&place, &["seal", "--part", "o.gguf"]).done();
    merge(&place, &[one, "o.gguf.weightfs-part.json", three]).failed(5, &["o.gguf", "no file of"]);
    let path = place.path("s").join(two);
    let mut text = fs::read(&path).unwrap();
    let at = text.len() - 20;
    text[at] ^= 1;
    fs::write(&path, &text).unwrap();
    merge(&place, &[one, two, three]).failed(5, &[two, "--part --force"]);
    assert!(!place.path("s").join(SEAL).exists());

    // A file that was cut otherwise is another file.
    in_s(&place, &["seal", "--part", "--force", &shard(2)]).done();
    fs::write(place.path("s").join(shard(3)), safetensors(&[("c", 200_009), ("d", 0)])).unwrap();
    let said = merge(&place, &[one, two, three]);
    assert_ne!(said.code, Some(0), "{said:?}");

    // Two models, or what is no part: nothing that anybody should be told to remove.
    let place = sharded();
    let parts = make_parts(&place, &[]);
    let said = merge(&place, &[&parts[0], INDEX, "."]);
    said.failed(2, &["one model", INDEX, "."]);

    // A whole seal is no part, a part of several no seal.
    let place = sharded();
    in_s(&place, &["seal", INDEX]).done();
    merge(&place, &[SEAL]).failed(1, &["a seal of 3 files"]);
}

/// The name in a part is a stranger's: the model is looked for beside the part and nowhere else.
#[test]
fn a_part_does_not_lead_to_another_directory() {
    use sha2::{Digest, Sha256};
    let place = sharded();
    let parts = make_parts(&place, &[]);
    let text = fs::read_to_string(place.path("s").join(&parts[0])).unwrap();
    let (_, body) = text.split_once("\"body\":").unwrap();
    let body = body.trim_end().strip_suffix('}').unwrap();
    for name in ["/etc/passwd", "../m.gguf", "x/../../m.gguf", ".."] {
        let body = body.replacen(&shard(1), name, 1);
        let hash = Sha256::digest(&body).iter().map(|b| format!("{b:02x}")).collect::<String>();
        let text =
            format!("{{\"weightfs_manifest\":1,\"body_sha256\":\"{hash}\",\"body\":{body}}}");
        fs::write(place.path("s/evil"), text).unwrap();
        let said = merge(&place, &["evil", &parts[1], &parts[2]]);
        assert_eq!(said.code, Some(1), "{name}: {said:?}");
        assert!(!said.err.contains("plain text"), "{name}: {said:?}");
        assert!(!place.path("m.gguf.weightfs.json").exists());
    }
}

#[test]
fn a_part_is_kept_refused_and_replaced_like_a_seal() {
    let place = sharded();
    let file = shard(1);
    in_s(&place, &["seal", "--part", &file]).done();
    assert!(in_s(&place, &["seal", "--part", &file]).done().out.contains("sealed already"));
    let path = place.path("s").join(&file);
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, bytes).unwrap();
    in_s(&place, &["seal", "--part", &file]).failed(5, &[&part(1)]);
    in_s(&place, &["seal", "--part", "--force", &file]).done();
    // It is no seal of the model.
    assert_eq!(in_s(&place, &["verify", INDEX]).code, Some(4));
    in_s(&place, &["seal", "--part", INDEX]).failed(1, &[INDEX, "name a shard"]);
    in_s(&place, &["seal", "--part", "--merge", &file]).failed(2, &["--merge"]);
}

// --- verify --part ---------------------------------------------------------------------

fn flip(place: &Place, name: &str, at: usize) {
    let path = place.path("s").join(name);
    let mut bytes = fs::read(&path).unwrap();
    bytes[at] ^= 32;
    fs::write(path, bytes).unwrap();
}

#[test]
fn verify_of_one_file_leaves_out_the_others() {
    let place = sharded();
    in_s(&place, &["seal", INDEX]).done();
    flip(&place, &shard(3), 100_000);
    for number in [1, 2] {
        let said = in_s(&place, &["verify", "--part", &shard(number)]);
        said.done();
        assert!(said.out.starts_with(&format!("{}: good (", shard(number))), "{}", said.out);
    }
    let said = in_s(&place, &["verify", "--part", &shard(3), "--json"]);
    said.failed(3, &["1 of 7 chunks"]);
    let told: Json = serde_json::from_str(&said.out).unwrap();
    let bad = &told["models"][0]["bad"];
    assert_eq!(bad.as_array().unwrap().len(), 1);
    assert_eq!((&bad[0]["tensor"], &bad[0]["source"]["file"]), (&"c".into(), &shard(3).into()));
    in_s(&place, &["verify", INDEX]).failed(3, &["1 of "]);
    // All of them, one by one: the worst counts.
    in_s(&place, &["verify", "--part", &shard(1), &shard(2), &shard(3)]).failed(3, &[&shard(3)]);
}

/// The digests of whole files are left out as well, and those of the one are not.
#[test]
fn verify_of_one_file_with_lists_and_digests() {
    let place = sharded();
    let said = in_s(&place, &["provenance", INDEX, "--format", "sha256sum"]);
    let list = &said.done().out;
    fs::write(place.path("s").join("list"), list).unwrap();
    let digest = list.lines().next().unwrap().split(' ').next().unwrap().to_owned();
    flip(&place, &shard(3), 100_000);
    in_s(&place, &["verify", "--part", &shard(1), "--against", "list"]).done();
    in_s(&place, &["verify", "--part", &shard(3), "--against", "list"]).failed(3, &[&shard(3)]);
    in_s(&place, &["verify", "--part", &shard(1), "--expect-sha256", &digest]).done();
    in_s(&place, &["verify", "--part", &shard(2), "--expect-sha256", &digest]).failed(3, &[]);
    in_s(&place, &["verify", "--part", &shard(1)]).failed(4, &["not sealed"]);
    // As an anchor beside the model.
    fs::rename(place.path("s").join("list"), place.path("s").join("SHA256SUMS")).unwrap();
    in_s(&place, &["verify", "--part", &shard(1)]).done();
    in_s(&place, &["verify", "--part", &shard(3)]).failed(3, &[&shard(3)]);
}

#[test]
fn verify_of_one_file_takes_a_file_of_the_set() {
    let place = sharded();
    in_s(&place, &["seal", INDEX]).done();
    for other in [INDEX, "."] {
        in_s(&place, &["verify", "--part", other])
            .failed(1, &["--part takes the files", "3 files"]);
    }
    fs::copy(place.path("m.gguf"), place.path("s/m.gguf")).unwrap();
    in_s(&place, &["seal", "m.gguf"]).done();
    in_s(&place, &["verify", "--part", "m.gguf"]).done();
}

/// A header that says something else now is damage of its own file, and no reason to call the
/// seal of the others foreign.
#[test]
fn verify_of_one_file_beside_a_damaged_header() {
    let place = sharded();
    in_s(&place, &["seal", INDEX]).done();
    let text = fs::read(place.path("s").join(shard(3))).unwrap();
    let at = |name: &[u8]| text.windows(3).position(|word| word == name).unwrap() + 1;
    // The index knows this tensor in another file.
    flip(&place, &shard(3), at(b"\"b\""));
    for number in 1..=3 {
        let said = in_s(&place, &["verify", "--part", &shard(number)]);
        said.failed(3, &["1 of "]);
        assert!(said.out.contains(&format!("(header)      0  {}", shard(3))), "{}", said.out);
    }
    // And this one nowhere else: the model cannot be opened, and which file is why is said.
    flip(&place, &shard(3), at(b"\"d\""));
    in_s(&place, &["verify", "--part", &shard(1)]).failed(1, &["incomplete", &shard(3)]);
}
