//! Sums that were observed, kept from one mount to the next.
//!
//! A small binary file per state of the model: magic, SHA-256 of the headers, chunk
//! size, number of chunks, runs of sums, CRC32 of it all. Whatever does not fit makes
//! the whole file worthless: it is ignored, and written anew at the next unmount.

use super::{Store, StoreError};
use crate::bytes::line::InLine;
use crate::seal::{Draft, Part, from_hex, hex};
use crate::source::Source;
use crc32fast::Hasher;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const MAGIC: &[u8; 16] = b"weightfs tofu 1\n";
/// Sums in a run.
const RUN: usize = 1024;
/// What the file of a state of a model is called, behind 64 hexadecimal digits.
const SUFFIX: &str = ".tofu";
/// A mount writes its file anew: one of this age has not been used for so long. Most are of
/// states that no model has any more.
const OLD: Duration = Duration::from_secs(90 * 24 * 3600);

impl Store {
    /// Takes over the sums that an earlier mount of the same files left in `dir`; how many.
    /// What cannot be used counts as nothing.
    pub fn load_tofu(&self, dir: &Path) -> u64 {
        if self.observed.is_none() {
            return 0;
        }
        let path = self.tofu_path(dir);
        match File::open(&path).and_then(|file| self.take_over(&file)) {
            Ok(taken) => taken,
            Err(e) if e.kind() == io::ErrorKind::NotFound => 0,
            Err(e) => {
                log::warn!("{}: not used: {e}", path.in_line());
                0
            }
        }
    }

    /// Writes the sums that were observed to `dir`, which is made if need be; how many.
    /// Nothing is written for a sealed model, without checks, or when a file has changed.
    pub fn save_tofu(&self, dir: &Path) -> io::Result<u64> {
        let Some(observed) = &self.observed else {
            return Ok(0);
        };
        for source in self.sources() {
            // Also brings the identity up to date: a renamed file has another change time.
            if source.check_unchanged().is_err() {
                return Ok(0);
            }
        }
        let chunks = self.grid().chunks();
        if (0..chunks).all(|chunk| observed.get(chunk).is_none()) {
            return Ok(0);
        }
        let headers = self.headers_sha256().map_err(io::Error::other)?;
        crate::seal::make_dir(dir)?;
        let draft = Draft::new(&self.tofu_path(dir))?;
        let mut out = Summed { out: BufWriter::new(draft.file()), crc: Hasher::new() };
        out.write_all(MAGIC)?;
        out.write_all(&headers)?;
        out.write_all(&self.grid().chunk_bytes().to_le_bytes())?;
        out.write_all(&chunks.to_le_bytes())?;
        let mut written = 0;
        let mut run: Vec<u8> = Vec::with_capacity(4 * RUN);
        let mut first = 0;
        for chunk in 0..=chunks {
            let sum = observed.get(chunk).filter(|_| chunk < chunks);
            if run.len() == 4 * RUN || (sum.is_none() && !run.is_empty()) {
                out.write_all(&u64::to_le_bytes(first))?;
                out.write_all(&u32::to_le_bytes(run.len() as u32 / 4))?;
                out.write_all(&run)?;
                written += run.len() as u64 / 4;
                run.clear();
            }
            if let Some(sum) = sum {
                if run.is_empty() {
                    first = chunk;
                }
                run.extend_from_slice(&sum.to_le_bytes());
            }
        }
        let crc = out.crc.clone().finalize();
        out.write_all(&crc.to_le_bytes())?;
        out.flush()?;
        drop(out);
        draft.commit()?;
        Ok(written)
    }

    /// The file for the files as they are now.
    fn tofu_path(&self, dir: &Path) -> PathBuf {
        let mut key = Sha256::new();
        for source in self.sources() {
            let id = source.identity();
            key.update(format!(
                "{} {} {} {:?} {:?}\n",
                id.dev, id.ino, id.size, id.mtime, id.ctime
            ));
        }
        dir.join(hex(&key.finalize()) + SUFFIX)
    }

    /// SHA-256 of all headers together.
    fn headers_sha256(&self) -> Result<[u8; 32], StoreError> {
        let mut hash = Sha256::new();
        let mut room = vec![0; 64 << 10];
        for piece in self.grid().pieces().filter(|p| p.part == Part::Header) {
            let source: &Source = &self.sources()[piece.shard as usize];
            let mut at = piece.offset;
            while at < piece.end() {
                let take = room.len().min((piece.end() - at) as usize);
                source.read_at(at, &mut room[..take]).map_err(StoreError::from_source)?;
                hash.update(&room[..take]);
                at += take as u64;
            }
        }
        Ok(hash.finalize().into())
    }

    fn take_over(&self, mut file: &File) -> io::Result<u64> {
        let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let Some(observed) = &self.observed else {
            return Ok(0);
        };
        let len = file.metadata()?.len();
        // All chunks in runs of one, at worst.
        if len > 100 + 16 * self.grid().chunks() {
            return Err(broken("longer than any that fits"));
        }
        // First the sum of it all, then the content, both a little at a time.
        let mut rest = BufReader::new(file).take(len.saturating_sub(4));
        let mut crc = Hasher::new();
        let mut room = [0; 4096];
        loop {
            let got = rest.read(&mut room)?;
            if got == 0 {
                break;
            }
            crc.update(&room[..got]);
        }
        let mut promised = [0; 4];
        rest.into_inner().read_exact(&mut promised)?;
        if crc.finalize() != u32::from_le_bytes(promised) {
            return Err(broken("its own checksum does not fit"));
        }
        file.rewind()?;
        let mut rest = BufReader::new(file).take(len - 4);
        let mut magic = [0; 16];
        rest.read_exact(&mut magic)?;
        let mut headers = [0; 32];
        rest.read_exact(&mut headers)?;
        let (chunk_bytes, chunks) = (read_u64(&mut rest)?, read_u64(&mut rest)?);
        if magic != *MAGIC {
            return Err(broken("of another version"));
        }
        if chunk_bytes != self.grid().chunk_bytes() || chunks != self.grid().chunks() {
            return Err(broken("of another grid"));
        }
        if headers != self.headers_sha256().map_err(io::Error::other)? {
            return Err(broken("of another header"));
        }
        let mut taken = 0;
        while rest.limit() > 0 {
            let first = read_u64(&mut rest)?;
            let mut number = [0; 4];
            rest.read_exact(&mut number)?;
            for chunk in first..first.saturating_add(u32::from_le_bytes(number).into()) {
                let mut sum = [0; 4];
                rest.read_exact(&mut sum)?;
                observed.first(chunk, u32::from_le_bytes(sum));
                taken += 1;
            }
        }
        Ok(taken)
    }
}

/// Removes what has not been used for long from the directory of [`Store::save_tofu`]: files of
/// ours, and drafts of them that killed processes left. Whatever else is there is left alone.
pub fn clear_old_tofu(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let age = || entry.metadata().ok()?.modified().ok()?.elapsed().ok();
        if is_ours(entry.file_name().as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_file())
            && age().is_some_and(|age| age > OLD)
            && let Err(e) = std::fs::remove_file(entry.path())
            && e.kind() != io::ErrorKind::NotFound
        {
            log::warn!("{}: not removed: {e}", entry.path().in_line());
        }
    }
}

/// Whether a file of this name is one of ours, or a draft of one.
fn is_ours(name: &[u8]) -> bool {
    let (name, draft) = match name.strip_prefix(b".") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let Some((key, rest)) = name.split_at_checked(64) else {
        return false;
    };
    let rest = rest.strip_prefix(SUFFIX.as_bytes());
    from_hex::<32>(key).is_some()
        && rest.is_some_and(|rest| match draft {
            true => rest.starts_with(b".tmp."),
            false => rest.is_empty(),
        })
}

fn read_u64(from: &mut impl Read) -> io::Result<u64> {
    let mut bytes = [0; 8];
    from.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// A writer that sums what passes.
struct Summed<W> {
    out: W,
    crc: Hasher,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.crc.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
