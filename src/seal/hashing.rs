//! The SHA-256 of bytes that pass in buffers, as the bytes are read.

use sha2::{Digest, Sha256};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A SHA-256 on its way.
pub(super) enum Hashing {
    /// Of what one buffer holds: done before a thread would have begun.
    Here(Sha256),
    /// By a thread of its own, since it takes as long as the reading.
    Beside {
        /// A buffer, and where in it the bytes to be hashed begin.
        send: SyncSender<(Vec<u8>, usize)>,
        /// Buffers that it has done with, to be filled again.
        back: Receiver<Vec<u8>>,
        /// Gives the hash once nothing more is sent.
        done: JoinHandle<[u8; 32]>,
    },
}

impl Hashing {
    /// A hash of one buffer.
    pub(super) fn here() -> Hashing {
        Hashing::Here(Sha256::new())
    }

    /// A hash of many buffers.
    pub(super) fn beside() -> io::Result<Hashing> {
        let (send, receive) = sync_channel::<(Vec<u8>, usize)>(2);
        let (give, back) = sync_channel(4);
        let done = std::thread::Builder::new().name("seal-hash".to_owned()).spawn(move || {
            let mut hash = Sha256::new();
            for (bytes, from) in receive {
                hash.update(&bytes[from..]);
                // Where nobody has room for it, it is freed.
                let _ = give.try_send(bytes);
            }
            hash.finalize().into()
        })?;
        Ok(Hashing::Beside { send, back, done })
    }

    /// Takes in what stands in `buffer` from `from` on, and leaves one to be filled again.
    pub(super) fn pass(&mut self, buffer: &mut Vec<u8>, from: usize) -> io::Result<()> {
        match self {
            Hashing::Here(hash) => hash.update(&buffer[from..]),
            Hashing::Beside { send, back, .. } => {
                send.send((std::mem::take(buffer), from)).map_err(|_| lost())?;
                *buffer = back.try_recv().unwrap_or_default();
            }
        }
        Ok(())
    }

    /// The hash of all that passed, and of `rest`.
    pub(super) fn finish(self, rest: &[u8]) -> io::Result<[u8; 32]> {
        match self {
            Hashing::Here(mut hash) => {
                hash.update(rest);
                Ok(hash.finalize().into())
            }
            Hashing::Beside { send, done, .. } => {
                send.send((rest.to_vec(), 0)).map_err(|_| lost())?;
                drop(send);
                done.join().map_err(|_| lost())
            }
        }
    }
}

fn lost() -> io::Error {
    io::Error::other("the hashing thread is gone")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_give_the_hash_of_what_passed() {
        let bytes: Vec<u8> = (0..10_000).map(|i| (i * 7 + i / 251) as u8).collect();
        let wanted: [u8; 32] = Sha256::digest(&bytes[100..9_000]).into();
        for mut hashing in [Hashing::here(), Hashing::beside().unwrap()] {
            let mut buffer = bytes[..4_000].to_vec();
            hashing.pass(&mut buffer, 100).unwrap();
            for piece in bytes[4_000..8_000].chunks(500) {
                buffer.clear();
                buffer.extend_from_slice(piece);
                hashing.pass(&mut buffer, 0).unwrap();
            }
            assert_eq!(hashing.finish(&bytes[8_000..9_000]).unwrap(), wanted);
        }
    }
}
