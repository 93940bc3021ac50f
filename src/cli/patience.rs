//! Waiting for something that may never come: a daemon that is stopped, a pipe nobody writes to.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// What `work` gives, or `None` when it takes longer than `limit`: its thread is then left
/// behind, to end with the process.
pub(crate) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let work = move || {
        // Nobody listens any more when the time was up.
        let _ = sender.send(work());
    };
    let thread = thread::Builder::new().name("waiting".into()).spawn(work).ok()?;
    let done = receiver.recv_timeout(limit).ok()?;
    // The caller may fork next: then there has to be one thread only.
    let _ = thread.join();
    Some(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_time_is_had_and_what_does_not_is_given_up() {
        assert_eq!(within(Duration::from_secs(60), || 7), Some(7));
        let (sender, receiver) = mpsc::channel::<()>();
        assert_eq!(within(Duration::from_millis(20), move || receiver.recv()), None);
        drop(sender);
    }
}
