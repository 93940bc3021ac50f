//! The bar of long work: on a terminal only, gone when the work is done.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;

/// Names longer than this are cut in front of the bar.
const NAME_COLUMNS: usize = 32;

/// Work over a known number of bytes.
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// A bar for `what` (a model's path), or none where nobody looks.
    pub(crate) fn new(what: &Path, bytes: u64) -> Progress {
        if !std::io::stderr().is_terminal() {
            return Progress(ProgressBar::hidden());
        }
        let bar =
            ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr_with_hz(10));
        let name = what.file_name().unwrap_or(what.as_os_str());
        let name = super::text::Safe(name.as_encoded_bytes()).to_string();
        bar.set_prefix(super::text::cut(&name, NAME_COLUMNS));
        let template = "{prefix} [{bar:30}] {percent:>3} %  {bytes}/{total_bytes}  {bytes_per_sec}  {eta} left";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress(bar)
    }

    /// So many bytes are done.
    pub(crate) fn set(&self, bytes: u64) {
        self.0.set_position(bytes);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
