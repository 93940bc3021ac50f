//! What is kept when a mount ends: sums that were seen of unsealed models.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use weightfs::fs::WeightFs;
use weightfs::grove::Grove;
use weightfs::seal;
use weightfs::source::IoMode;
use weightfs::store;

/// How long the end of the mount may wait for sources that hang.
const PARTING: Duration = Duration::from_secs(2);
/// Models on other machines that are asked at once: each may hang.
const AT_ONCE: usize = 32;

/// Keeps what was learnt about unsealed models for their next mount. Losing it loses no data.
pub(super) fn keep_observed(grove: &Grove) {
    let Some(cache) = seal::cache_home() else { return };
    let dir: Arc<Path> = cache.join("tofu").into();
    let is_near = |fs: &WeightFs| fs.store().sources().iter().all(|s| s.io() == IoMode::Mmap);
    let (near, far): (Vec<_>, Vec<_>) = grove.models().cloned().partition(|fs| is_near(fs));
    let (told, heard) = mpsc::channel();
    let mut workers = 0;
    for (models, threads) in [(near, 1), (far, AT_ONCE)] {
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
                }
                let _ = told.send(());
            };
            match thread::Builder::new().name("tofu".into()).spawn(work) {
                Ok(_) => workers += 1,
                Err(error) => log::warn!("what was seen of the models' bytes is not kept: {error}"),
            }
        }
    }
    let limit = Instant::now() + PARTING;
    for _ in 0..workers {
        let left = limit.saturating_duration_since(Instant::now());
        if let Err(error) = heard.recv_timeout(left) {
            log::warn!("what was seen of the models' bytes is not kept: {error}");
            return;
        }
    }
    store::clear_old_tofu(&dir);
}
