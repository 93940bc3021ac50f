//! Stores over real files, sealed and not, damaged in every way.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::seal::tests::{Case, pattern};
use crate::seal::{Part, crc_hex};
use crate::source::IoMode;
use proptest::prelude::*;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const BOTH: [IoMode; 2] = [IoMode::Mmap, IoMode::Pread];

impl Store {
    /// Without waits between the looks at a bad chunk.
    fn look_at_once(&mut self) {
        Arc::get_mut(&mut self.shared).unwrap().waits = &[Duration::ZERO];
    }
}

impl Case {
    pub(super) fn store(&self, io: IoMode, options: StoreOptions) -> Store {
        let sources = self.sources(io);
        let seal = crate::seal::beside(&self.path(0));
        let seal = seal.exists().then(|| Seal::load(&seal, &self.model, &sources).unwrap());
        Store::new(self.model.clone(), sources, seal, options)
    }

    pub(super) fn sealed(&self, io: IoMode) -> Store {
        self.store(io, StoreOptions::default())
    }

    pub(super) fn extent(&self, tensor: usize) -> Extent {
        self.model.tensors[tensor].extent
    }

    pub(super) fn tensor(&self, tensor: usize) -> &[u8] {
        let extent = self.extent(tensor);
        &self.bytes[extent.shard as usize][extent.offset as usize..extent.end() as usize]
    }

    /// All of a file, as an extent.
    fn whole(&self, shard: usize) -> Extent {
        Extent { shard: shard as u32, offset: 0, len: self.bytes[shard].len() as u64 }
    }
}

/// Reads all of an extent, whether good or not: the bytes and the outcome.
pub(super) fn read(store: &Store, extent: Extent) -> (Vec<u8>, Result<(), ReadFailure>) {
    let mut out = vec![0; extent.len as usize];
    let result = store.read(extent, 0, &mut out);
    (out, result)
}

fn with(verify: Verify) -> StoreOptions {
    StoreOptions { verify, ..StoreOptions::default() }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    /// Any (offset, length) equals that slice of the whole, in every mode, sealed or not.
    #[test]
    fn any_range_equals_the_slice(
        ranges in proptest::collection::vec((0usize..2, 0usize..250_000, 0usize..140_000), 1..12),
        sealed: bool, pread: bool, mode in 0..3usize,
    ) {
        let case = Case::new();
        if sealed {
            case.seal();
        }
        let io = if pread { IoMode::Pread } else { IoMode::Mmap };
        let store = case.store(io, with([Verify::Always, Verify::Once, Verify::Off][mode]));
        for (shard, from, len) in ranges {
            let all = &case.bytes[shard];
            let from = from % all.len();
            let to = (from + len).min(all.len());
            let mut out = vec![0; to - from];
            store.read(case.whole(shard), from as u64, &mut out).unwrap();
            prop_assert_eq!(&out, &all[from..to]);
            prop_assert_eq!(store.status().mismatches, 0);
        }
    }
}

/// Numbers that look random and are the same every time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Flips one bit in each of some chunks of the files, and says where: shard, offset, and
/// the chunk's offset and length. Headers are left alone: they are checked at the mount.
fn flip_some(
    case: &Case,
    grid: &Grid,
    dice: &mut Dice,
    many: usize,
) -> Vec<(usize, u64, u64, u64)> {
    let mut flips = Vec::new();
    let mut chunks = std::collections::HashSet::new();
    while flips.len() < many {
        let shard = usize::from(dice.below(7) == 0);
        let at = dice.below(case.bytes[shard].len() as u64);
        let piece = grid.pieces_from(shard as u32, at).next().unwrap();
        let within = (at - piece.offset) / grid.chunk_bytes();
        if piece.part == Part::Header || !chunks.insert(piece.first_chunk + within) {
            continue;
        }
        case.flip(shard, at, 1 << dice.below(8));
        let (offset, len) = grid.chunk_of(&piece, within);
        flips.push((shard, at, offset, len));
    }
    flips
}

/// 10,000 random single-bit flips: each is detected by whoever reads its chunk and by nobody
/// else, after exactly the good bytes before it.
#[test]
fn ten_thousand_flips_are_all_found_where_they_are() {
    let case = Case::new();
    case.seal();
    let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
    let mut found = 0;
    for round in 0..400 {
        for shard in 0..2 {
            std::fs::write(case.path(shard), &case.bytes[shard]).unwrap();
        }
        let flips = flip_some(&case, &Grid::new(&case.model, 4096), &mut dice, 25);
        let mut store = case.sealed(BOTH[round % 2]);
        // 10,000 ladders would wait for a quarter of an hour.
        store.look_at_once();
        for &(shard, at, offset, len) in &flips {
            let (bytes, whole) = (&case.bytes[shard], case.whole(shard));
            // Exactly the bytes in front of it that lie in good chunks.
            let before = flips.iter().filter(|f| f.0 == shard && f.2 < offset);
            let from =
                before.map(|f| f.2 + f.3).max().unwrap_or(0).max(offset.saturating_sub(9000));
            let mut out = vec![0; (at + 1 - from) as usize];
            let failure = store.read(whole, from, &mut out).unwrap_err();
            assert_eq!(failure.good as u64, offset - from, "{failure}");
            assert_eq!(out[..failure.good], bytes[from as usize..offset as usize]);
            let StoreError::Corrupt(corrupt) = failure.error else { panic!("{failure}") };
            assert_eq!((corrupt.offset, corrupt.len), (offset, len));
            found += 1;
        }
        // Every other chunk is served as it was sealed.
        if round % 20 == 0 {
            for piece in store.grid().pieces() {
                for within in 0..store.grid().chunks_of(&piece) {
                    let (offset, len) = store.grid().chunk_of(&piece, within);
                    let shard = piece.shard as usize;
                    let mut out = vec![0; len as usize];
                    let result = store.read(case.whole(shard), offset, &mut out);
                    let hit = flips.iter().any(|f| (f.0, f.2) == (shard, offset));
                    assert_eq!(result.is_err(), hit);
                    if !hit {
                        assert_eq!(
                            out,
                            case.bytes[shard][offset as usize..(offset + len) as usize]
                        );
                    }
                }
            }
        }
        assert_eq!(store.status().bad_chunks, 25);
    }
    assert_eq!(found, 10_000);
}

/// Every bit of a header is checked before anything of it is believed.
#[test]
fn a_flip_in_a_header_refuses_the_seal() {
    let case = Case::new();
    let seal = case.seal();
    for (shard, len) in [(0, 100), (1, 5000)] {
        for at in (0..len).step_by(len as usize / 50) {
            case.flip(shard, at, 1 << (at % 8));
            let error = Seal::load(&seal, &case.model, &case.sources(IoMode::Auto)).unwrap_err();
            assert!(error.is_mistrust(), "{error}");
            case.flip(shard, at, 1 << (at % 8));
        }
    }
    Seal::load(&seal, &case.model, &case.sources(IoMode::Auto)).unwrap();
}

/// Patterns and bursts of 2 to 64 bits.
#[test]
fn random_patterns_of_many_bits_are_detected() {
    let mut dice = Dice(88_172_645_463_325_252);
    let chunk = pattern(4096, 3);
    let sum = crc32fast::hash(&chunk);
    for round in 0..100_000u64 {
        let mut bad = chunk.clone();
        let bits = 2 + dice.below(63);
        if round % 2 == 0 {
            for _ in 0..bits {
                bad[dice.below(4096) as usize] ^= 1 << dice.below(8);
            }
        } else {
            let at = dice.below(4096 * 8 - 64);
            let burst = dice.below(u64::MAX) | 1;
            for bit in (0..bits).filter(|bit| burst >> bit & 1 == 1) {
                bad[((at + bit) / 8) as usize] ^= 1 << ((at + bit) % 8);
            }
        }
        assert!(bad == chunk || crc32fast::hash(&bad) != sum, "round {round}");
    }
}

#[test]
fn a_bad_chunk_is_listed_named_and_does_not_spread() {
    for io in BOTH {
        let case = Case::new();
        case.seal();
        case.flip(0, 70_112 + 5 * 4096 + 1, 4);
        let store = case.sealed(io);
        assert_eq!(
            (store.trust(), store.status().state),
            (Trust::Sidecar, TensorState::Unverified)
        );
        read(&store, case.extent(0)).1.unwrap();
        assert_eq!(store.tensor_state(0), TensorState::Verified);
        assert_eq!(store.tensor_state(2), TensorState::Unverified);
        let (out, result) = read(&store, case.extent(2));
        let failure = result.unwrap_err();
        assert_eq!(failure.good, 5 * 4096);
        assert_eq!(out[..failure.good], case.tensor(2)[..failure.good]);
        let text = failure.to_string();
        assert!(
            text.contains("tensor \"caf\u{fffd}/\\\"x\\\"\" chunk 5: 4096 bytes at 90592"),
            "{text}"
        );
        for _ in 0..3 {
            assert_eq!(read(&store, case.extent(2)).1.unwrap_err().good, 5 * 4096);
        }
        let status = store.status();
        let expected = crc_hex(crc32fast::hash(&case.tensor(2)[5 * 4096..6 * 4096]));
        assert_eq!(status.bad.len(), 1);
        assert_eq!(status.bad[0].expected, expected);
        assert_eq!((status.bad[0].tensor, status.bad[0].chunk), (Some(2), 5));
        assert_eq!(status.bad[0].source_offset, 70_112 + 5 * 4096);
        assert_eq!((status.mismatches, status.healed, status.retries), (1, 0, 4), "{status:?}");
        assert_eq!(status.state, TensorState::Degraded);
        assert_eq!(store.tensor_state(2), TensorState::Degraded);
        assert_eq!(store.tensor_state(0), TensorState::Verified);
        // What lies around it is served, also in one read with part of the next chunk.
        let mut out = vec![0; 10_000];
        store.read(case.extent(2), 6 * 4096, &mut out).unwrap();
        assert_eq!(out, case.tensor(2)[6 * 4096..][..10_000]);
        read(&store, case.extent(3)).1.unwrap();
    }
}

#[test]
fn damaged_bytes_are_served_when_asked_for_loudly() {
    let case = Case::new();
    case.seal();
    case.flip(1, 6000, 0x10);
    let options = StoreOptions { on_corruption: OnCorruption::Log, ..StoreOptions::default() };
    let store = case.store(IoMode::Mmap, options);
    let (out, result) = read(&store, case.extent(3));
    result.unwrap();
    let mut damaged = case.tensor(3).to_vec();
    damaged[1000] ^= 0x10;
    assert_eq!(out, damaged);
    assert_eq!(store.tensor_state(3), TensorState::Degraded);
    assert_eq!(store.status().bad.len(), 1);
}

#[test]
fn without_checks_damage_is_not_seen_but_changes_are() {
    let case = Case::new();
    case.seal();
    case.flip(1, 6000, 0x10);
    let store = case.store(IoMode::Mmap, with(Verify::Off));
    read(&store, case.extent(3)).1.unwrap();
    assert_eq!(store.status().chunks_checked, 0);
    assert_eq!(store.tensor_state(3), TensorState::Unverified);
    OpenOptions::new().write(true).open(case.path(1)).unwrap().set_len(100).unwrap();
    let failure = read(&store, case.extent(3)).1.unwrap_err();
    assert!(matches!(failure.error, StoreError::Stale(_)) && failure.good == 0, "{failure}");
}

#[test]
fn once_checks_each_chunk_once() {
    for sealed in [true, false] {
        let case = Case::new();
        if sealed {
            case.seal();
        }
        for io in BOTH {
            let store = case.store(io, with(Verify::Once));
            read(&store, case.extent(0)).1.unwrap();
            let checked = store.status().chunks_checked;
            assert!(checked > 0);
            let (out, result) = read(&store, case.extent(0));
            result.unwrap();
            assert_eq!(out, case.tensor(0));
            assert_eq!(store.status().chunks_checked, checked);
        }
    }
}

#[test]
fn truncation_and_modification_are_stale_whatever_the_mode() {
    let truncate = |case: &Case| {
        OpenOptions::new().write(true).open(case.path(0)).unwrap().set_len(90_000).unwrap();
    };
    let rewrite = |case: &Case| std::fs::write(case.path(0), pattern(250_000, 77)).unwrap();
    let rewrite_keeping_mtime = |case: &Case| {
        let file = OpenOptions::new().write(true).open(case.path(0)).unwrap();
        let mtime = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(&pattern(250_000, 77), 0).unwrap();
        file.set_modified(mtime).unwrap();
    };
    let changes: [&dyn Fn(&Case); 3] = [&truncate, &rewrite, &rewrite_keeping_mtime];
    for change in changes {
        for io in BOTH {
            for (sealed, verify) in [
                (true, Verify::Always),
                (false, Verify::Always),
                (true, Verify::Once),
                (false, Verify::Off),
            ] {
                let case = Case::new();
                if sealed {
                    case.seal();
                }
                let store = case.store(io, with(verify));
                read(&store, case.extent(0)).1.unwrap();
                std::thread::sleep(Duration::from_millis(10));
                change(&case);
                for tensor in [2, 0] {
                    let failure = read(&store, case.extent(tensor)).1.unwrap_err();
                    assert!(matches!(failure.error, StoreError::Stale(_)), "{failure}");
                    assert_eq!(failure.good, 0);
                    assert_eq!(store.tensor_state(tensor), TensorState::Stale);
                }
                // The other file goes on.
                let (out, result) = read(&store, case.extent(3));
                result.unwrap();
                assert_eq!(out, case.tensor(3));
                let status = store.status();
                assert_eq!((status.state, status.source_changed), (TensorState::Stale, 1));
                assert_eq!(status.bad_chunks, 0, "a changed file is no damage");
                assert!(status.notes.iter().any(|n| n.contains("changed: ")), "{status:?}");
            }
        }
    }
}

#[test]
fn a_file_replaced_by_rename_goes_on() {
    for io in BOTH {
        let case = Case::new();
        case.seal();
        let store = case.sealed(io);
        let other = case.dir.path().join("other");
        std::fs::write(&other, pattern(250_000, 9)).unwrap();
        std::thread::sleep(Duration::from_millis(10));
        std::fs::rename(&other, case.path(0)).unwrap();
        let (out, result) = read(&store, case.extent(2));
        result.unwrap();
        assert_eq!(out, case.tensor(2));
        assert!(store.status().notes[0].contains("unlinked"), "{:?}", store.status().notes);
    }
}

#[test]
fn first_use_is_remembered_and_holds() {
    let case = Case::new();
    let store = case.sealed(IoMode::Mmap);
    assert_eq!(store.trust(), Trust::Tofu);
    read(&store, case.extent(0)).1.unwrap();
    assert_eq!(store.tensor_state(0), TensorState::Unverified, "nothing to compare with yet");
    assert_eq!(store.tensor_checksum(0), None);
    // Pretend that other bytes were seen in the second chunk.
    let piece = store.grid().pieces_from(0, 100).next().unwrap();
    let other = case.sealed(IoMode::Mmap);
    other.observe_for_test(piece.first_chunk + 1, 0x1234_5678);
    let failure = read(&other, case.extent(0)).1.unwrap_err();
    assert_eq!(failure.good, 65_536);
    assert!(failure.to_string().contains("expected CRC32 12345678"), "{failure}");
    assert_eq!(other.status().bad.len(), 1);
}

impl Store {
    fn observe_for_test(&self, chunk: u64, sum: u32) {
        self.observed.as_ref().unwrap().first(chunk, sum);
    }
}

#[test]
fn what_was_observed_outlives_the_mount() {
    let case = Case::new();
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("tofu");
    let first = case.sealed(IoMode::Auto);
    assert_eq!(first.load_tofu(&dir), 0);
    assert_eq!(first.save_tofu(&dir).unwrap(), 0, "nothing was seen");
    read(&first, case.extent(0)).1.unwrap();
    read(&first, case.extent(3)).1.unwrap();
    std::thread::sleep(Duration::from_millis(10));
    std::fs::set_permissions(case.path(1), std::os::unix::fs::PermissionsExt::from_mode(0o600))
        .unwrap();
    assert_eq!(first.save_tofu(&dir).unwrap(), 3);

    let second = case.sealed(IoMode::Auto);
    assert_eq!(second.load_tofu(&dir), 3);
    read(&second, case.extent(0)).1.unwrap();
    assert_eq!(second.tensor_state(0), TensorState::Verified);

    // Any byte of the file wrong: all of it is discarded.
    let path = std::fs::read_dir(&dir).unwrap().next().unwrap().unwrap().path();
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        std::fs::write(&path, bad).unwrap();
        assert_eq!(case.sealed(IoMode::Auto).load_tofu(&dir), 0, "byte {at}");
        std::fs::write(&path, &good[..at]).unwrap();
        assert_eq!(case.sealed(IoMode::Auto).load_tofu(&dir), 0, "cut at {at}");
    }
    std::fs::write(&path, &good).unwrap();
    assert_eq!(case.sealed(IoMode::Auto).load_tofu(&dir), 3);

    // Another state of the model has another file.
    std::thread::sleep(Duration::from_millis(10));
    case.flip(0, 50_000, 1);
    assert_eq!(case.sealed(IoMode::Auto).load_tofu(&dir), 0);
    assert_eq!(first.save_tofu(&dir).unwrap(), 0, "a changed source is not remembered");
    case.seal();
    assert_eq!(case.sealed(IoMode::Auto).save_tofu(&dir).unwrap(), 0, "nor a sealed one");
}

#[test]
fn what_nobody_used_for_long_is_removed_and_what_is_not_ours_is_not() {
    let case = Case::new();
    let dir = tempfile::tempdir().unwrap();
    let day = Duration::from_secs(24 * 3600);
    let put = |name: &str, age: Duration| {
        let file = std::fs::File::create(dir.path().join(name)).unwrap();
        file.set_modified(std::time::SystemTime::now() - age).unwrap();
    };
    let key = |digit: &str| digit.repeat(64);
    let old = [format!("{}.tofu", key("a")), format!(".{}.tofu.tmp.1.00ff", key("b"))];
    let stays = [
        format!("{}.tofu", key("g")),
        format!("{}.tofu", key("A")),
        format!("{}.tofu", "a".repeat(63)),
        format!("{}.tofu.bak", key("c")),
        format!("{}.json", key("c")),
        ".tofu".to_owned(),
        "notes".to_owned(),
    ];
    old.iter().chain(&stays).for_each(|name| put(name, 91 * day));
    let young = format!("{}.tofu", key("d"));
    put(&young, 89 * day);
    std::fs::create_dir(dir.path().join(key("e") + ".tofu")).unwrap();
    std::os::unix::fs::symlink("notes", dir.path().join(key("f") + ".tofu")).unwrap();

    let store = case.sealed(IoMode::Auto);
    assert_eq!(store.save_tofu(dir.path()).unwrap(), 0);
    assert!(dir.path().join(&old[0]).exists(), "nothing was written, nothing removed");
    read(&store, case.extent(0)).1.unwrap();
    assert_eq!(store.save_tofu(dir.path()).unwrap(), 2);
    clear_old_tofu(dir.path());
    for name in &old {
        assert!(!dir.path().join(name).exists(), "{name}");
    }
    for name in stays.iter().chain([&young]) {
        assert!(dir.path().join(name).exists(), "{name}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), stays.len() + 4);
}

#[test]
fn checksums_come_from_the_seal() {
    let case = Case::new();
    case.seal();
    let options = StoreOptions { seal_given_on_command_line: true, ..StoreOptions::default() };
    let store = case.store(IoMode::Auto, options);
    assert_eq!(store.trust(), Trust::Pinned);
    assert_eq!(store.tensor_checksum(3).unwrap().crc32, crc32fast::hash(case.tensor(3)));
    assert!(store.source_sha256(1).is_some() && store.source_sha256(2).is_none());
    assert_eq!(store.tensor_checksum(4), None);
}

#[test]
fn reads_outside_are_refused() {
    let case = Case::new();
    let store = case.sealed(IoMode::Auto);
    let mut out = [0; 10];
    for (shard, offset, len, from) in [
        (0, 0, 5, 0),
        (0, 249_995, 10, 0),
        (9, 0, 10, 0),
        (0, 0, 10, 1),
        (0, u64::MAX, 10, 0),
        (0, 0, u64::MAX, u64::MAX),
    ] {
        let failure = store.read(Extent { shard, offset, len }, from, &mut out).unwrap_err();
        assert!(matches!(failure.error, StoreError::Outside { .. }), "{failure}");
    }
    store.read(Extent { shard: 0, offset: 250_000, len: 0 }, 0, &mut []).unwrap();
}

#[test]
fn a_shard_is_read_through_the_checks() {
    let case = Case::new();
    case.seal();
    case.flip(1, 20_000, 1);
    let store = case.sealed(IoMode::Auto);
    let shard = store.shard(1);
    assert_eq!(ReadAt::len(&shard), 40_000);
    let mut out = [0; 100];
    shard.read_at(4950, &mut out).unwrap();
    assert_eq!(out, case.bytes[1][4950..5050]);
    assert!(shard.read_at(19_990, &mut out).is_err());
    assert!(shard.read_at(39_950, &mut out).is_err());
    assert_eq!(ReadAt::len(&store.shard(2)), 0);
}

#[test]
fn eight_threads_under_truncation_get_good_bytes_or_stale() {
    for io in BOTH {
        for round in 0..10u64 {
            let case = Case::new();
            case.seal();
            let store = case.sealed(io);
            std::thread::scope(|scope| {
                for thread in 0..8 {
                    let (store, case) = (&store, &case);
                    scope.spawn(move || {
                        let mut dice = Dice(thread + 1);
                        let mut out = vec![0; 30_000];
                        for _ in 0..150 {
                            let at = dice.below(220_000);
                            match store.read(case.whole(0), at, &mut out) {
                                Ok(()) => assert_eq!(out, case.bytes[0][at as usize..][..30_000]),
                                Err(f) => assert!(matches!(f.error, StoreError::Stale(_)), "{f}"),
                            }
                        }
                    });
                }
                std::thread::sleep(Duration::from_micros(300 * round));
                let file = OpenOptions::new().write(true).open(case.path(0)).unwrap();
                file.set_len(round * 20_001).unwrap();
            });
            assert_eq!(store.status().bad_chunks, 0);
        }
    }
}

#[test]
fn tables_of_huge_unsealed_models_stay_small() {
    let huge = |bytes: u64, tensors: u64| {
        let each = bytes / tensors.max(1);
        let tensors: Vec<_> = (0..tensors).map(|i| (0, i * each, each)).collect();
        unsealed_chunk(&crate::seal::grid_tests::model(&[(0, bytes)], &tensors))
    };
    assert_eq!(huge(1 << 30, 100), 64 << 10);
    assert_eq!(huge(200 << 30, 10), 64 << 10);
    assert_eq!(huge(1 << 40, 10), 512 << 10);
    assert_eq!(huge(1 << 40, 1000), 512 << 10);
    assert_eq!(huge(1 << 60, 10), 16 << 20);
}

/// Whoever copies a new seal over the old one should not be told that the model is damaged.
#[test]
fn a_seal_that_is_written_over_is_no_damage_of_the_model() {
    let case = Case::new();
    let path = case.seal();
    let store = case.sealed(IoMode::Mmap);
    let text = std::fs::read_to_string(&path).unwrap();
    let (head, table) = text.rsplit_once("\"crcs\":\"").unwrap();
    std::fs::write(&path, format!("{head}\"crcs\":\"AAAA{}", &table[4..])).unwrap();
    let failure = read(&store, case.extent(3)).1.unwrap_err();
    assert!(matches!(failure.error, StoreError::Seal(_)), "{failure}");
    let status = store.status();
    assert_eq!((status.bad_chunks, status.source_changed), (0, 0));
    let note = status.notes.concat();
    assert!(note.contains("file0.weightfs.json: changed"), "{note}");
}
