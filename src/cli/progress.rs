//! The bar of long work: on a terminal only, as wide as fits, gone when the work is done.

use super::text::{cut, size, width};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use std::cell::Cell;
use std::fmt::Write;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};
use weightfs::bytes::line::Safe;

/// Work that is done sooner shows no bar: it would only flicker.
const PATIENCE: Duration = Duration::from_millis(300);
/// Names longer than this are cut in front of the bar.
const NAME_COLUMNS: usize = 32;
/// Columns between the brackets, at most and at least.
const BAR_COLUMNS: (usize, usize) = (30, 10);
/// Columns of a terminal that does not tell.
const USUAL_COLUMNS: usize = 80;

/// Work over a known number of bytes.
pub(crate) struct Progress {
    bar: ProgressBar,
    begun: Instant,
    shown: Cell<bool>,
}

impl Progress {
    /// A bar for `what` (a model's path), or none where nobody looks.
    pub(crate) fn new(what: &Path, bytes: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::hidden());
        let begun = Instant::now();
        let watched = std::io::stderr().is_terminal();
        let name = what.file_name().unwrap_or(what.as_os_str());
        let name = Safe(name.as_encoded_bytes()).to_string();
        let line = move |state: &ProgressState, out: &mut dyn Write| {
            // Asked for each time: the window may have been resized.
            let columns = terminal_size::terminal_size_of(std::io::stderr())
                .map_or(USUAL_COLUMNS, |(w, _)| w.0.into());
            let text = line(&name, state.pos(), bytes, begun.elapsed(), columns);
            let _ = out.write_str(&text);
        };
        if let Ok(style) = ProgressStyle::with_template("{line}") {
            bar.set_style(style.with_key("line", line));
        }
        Progress { bar, begun, shown: Cell::new(!watched) }
    }

    /// So many bytes are done.
    pub(crate) fn set(&self, bytes: u64) {
        self.bar.set_position(bytes);
        if !self.shown.get() && self.begun.elapsed() >= PATIENCE {
            self.shown.set(true);
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(10));
            self.bar.enable_steady_tick(Duration::from_millis(100));
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The whole line, shorter than `columns`: what matters least goes first, at last the bar.
fn line(name: &str, done: u64, all: u64, elapsed: Duration, columns: usize) -> String {
    let room = columns.saturating_sub(1);
    let share = if all == 0 { 1.0 } else { (done as f64 / all as f64).min(1.0) };
    let rate = done as f64 / elapsed.as_secs_f64().max(0.001);
    let left = match done {
        0 => "--".to_owned(),
        _ => clock(all.saturating_sub(done) as f64 / rate),
    };
    let percent = format!("{:>3} %", (share * 100.0) as u64);
    let rate = format!("{}/s", size(rate as u64));
    let tails = [
        format!("{percent}  {} of {}  {rate}  {left} left", size(done), size(all)),
        format!("{percent}  {rate}  {left} left"),
        format!("{percent}  {left} left"),
        percent,
    ];
    let tail = tails.iter().find(|tail| tail.len() + 3 + BAR_COLUMNS.1 <= room);
    let Some(tail) = tail else {
        let percent = tails[3].trim_start();
        return if percent.len() <= room { percent.to_owned() } else { String::new() };
    };
    // "NAME [BAR] TAIL"
    let spare = room - tail.len() - 3;
    let for_name = NAME_COLUMNS.min((spare - BAR_COLUMNS.1).saturating_sub(1));
    let fits = for_name > 3 || width(name) <= for_name;
    let before = if fits { format!("{} ", cut(name, for_name)) } else { String::new() };
    let columns = (spare - width(&before)).min(BAR_COLUMNS.0);
    let full = (share * columns as f64) as usize;
    let head = if full < columns && done > 0 { ">" } else { "" };
    let bar = format!("{}{head}", "=".repeat(full));
    format!("{before}[{bar:columns$}] {tail}")
}

/// `7 s`, `3:07`, `2:05:00`.
fn clock(seconds: f64) -> String {
    match seconds.round() as u64 {
        s @ 0..60 => format!("{s} s"),
        s @ 60..3600 => format!("{}:{:02}", s / 60, s % 60),
        s => format!("{}:{:02}:{:02}", s / 3600, s % 3600 / 60, s % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_line_never_wraps_and_says_how_long_on_any_usual_terminal() {
        let names =
            ["m.gguf", "a-model-with-a-rather-long-name-Q4_K_M.gguf", "\u{4f60}\u{597d}.gguf"];
        for name in names {
            for columns in 0..200 {
                for done in [0, 1, GIB / 3, GIB, 2 * GIB] {
                    let line = line(name, done, GIB, Duration::from_secs(100), columns);
                    assert!(width(&line) < columns.max(1), "{columns}: {line:?}");
                    assert!(columns < 40 || line.contains(" left"), "{columns}: {line:?}");
                    assert!(columns < 60 || line.contains("/s"), "{columns}: {line:?}");
                    assert!(columns < 80 || line.contains("1.0 GiB"), "{columns}: {line:?}");
                }
            }
        }
    }

    #[test]
    fn a_line_at_80_columns() {
        let half = line("m.gguf", GIB / 2, GIB, Duration::from_secs(2), 80);
        assert!(
            half.starts_with("m.gguf [==") && half.ends_with("256.0 MiB/s  2 s left"),
            "{half}"
        );
    }

    #[test]
    fn the_first_frame_knows_no_time_left_and_the_last_is_full() {
        assert!(line("m", 0, GIB, Duration::ZERO, 80).contains("[      "));
        assert!(line("m", 0, GIB, Duration::ZERO, 80).contains("  0 %"));
        assert!(line("m", 0, GIB, Duration::ZERO, 80).ends_with("-- left"));
        let last = line("m", GIB, GIB, Duration::from_secs(1), 80);
        assert!(last.contains("=] 100 %") && last.ends_with("0 s left"), "{last}");
        assert!(line("m", 0, 0, Duration::ZERO, 80).contains("100 %"));
    }

    #[test]
    fn clocks() {
        for (s, want) in [(0.2, "0 s"), (59.4, "59 s"), (187.0, "3:07"), (7500.0, "2:05:00")] {
            assert_eq!(clock(s), want);
        }
    }
}
