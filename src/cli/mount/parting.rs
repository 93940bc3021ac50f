//! What is kept when a mount ends: sums that were seen of unsealed models.

use crate::cli::text::plural;
use std::cmp::Reverse;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use weightfs::fs::WeightFs;
use weightfs::grove::Grove;
use weightfs::seal;
use weightfs::source::IoMode;
use weightfs::store;

/// How long the end of the mount waits for the next model to be done: sources may hang.
const PARTING: Duration = Duration::from_secs(2);
/// How long it waits for all.
const LONGEST: Duration = Duration::from_secs(30);
/// Models of this machine that are done at once: most of the time goes into waiting for the disk.
const NEAR: usize = 8;
/// Models on other machines that are asked at once: each may hang.
const FAR: usize = 32;

/// Keeps what was learnt about unsealed models for their next mount. Losing it loses no data.
pub(super) fn keep_observed(grove: &Grove) {
    let Some(cache) = seal::cache_home() else { return };
    let dir: Arc<Path> = cache.join("tofu").into();
    let is_near = |fs: &WeightFs| fs.store().sources().iter().all(|s| s.io() == IoMode::Mmap);
    let (mut near, far): (Vec<_>, Vec<_>) = grove.models().cloned().partition(|fs| is_near(fs));
    // Should the system go down meanwhile, little was seen of those that are lost.
    near.sort_by_cached_key(|fs| Reverse(fs.store().status().chunks_checked));
    let left = near.len() + far.len();
    let (told, heard) = mpsc::channel();
    for (models, threads) in [(near, NEAR), (far, FAR)] {
        let threads = threads.min(models.len());
        let models = Arc::new(Mutex::new(models.into_iter()));
        for _ in 0..threads {
            let (models, dir, told) = (Arc::clone(&models), Arc::clone(&dir), told.clone());
            let work = move || {
                let next = || models.lock().unwrap_or_else(PoisonError::into_inner).next();
                while let Some(fs) = next() {
                    if let Err(error) = fs.store().save_tofu(&dir) {
                        log::warn!("what was seen of a model's bytes is not kept: {error}");
                    }
                    let _ = told.send(());
                }
            };
            // What no thread does is not heard of below.
            let _ = thread::Builder::new().name("tofu".into()).spawn(work);
        }
    }
    drop(told);
    let end = Instant::now() + LONGEST;
    for done in 0..left {
        let patience = end.saturating_duration_since(Instant::now()).min(PARTING);
        if let Err(error) = heard.recv_timeout(patience) {
            let lost = left - done;
            log::warn!(
                "what was seen of the bytes of {} is not kept: {error}",
                plural(lost, "model")
            );
            break;
        }
    }
    store::clear_old_tofu(&dir);
}
