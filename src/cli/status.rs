//! `weightfs status`: what the daemon of a mount does and has met.

use super::args::StatusArgs;
use super::exit::Exit;
use super::mountinfo::Mount;
use super::mountpoint::Answer;
use super::output::{Ink, Out, Piece};
use super::table::{Align, Table};
use super::text::{self, count, counted, size};
use super::{clock, mountinfo, mountpoint, patience, shell};
use anyhow::{Context, Result, anyhow, bail};
use serde_json::Value as Json;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;
use weightfs::bytes::line::{InLine, Safe};

/// How long the daemon may take: it answers from memory, at most a busy machine delays it.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn run(args: &StatusArgs) -> Result<Exit> {
    let point = mountpoint::resolve(&args.mountpoint)?;
    let shown = point.in_line();
    let Some(mount) = mountinfo::ours_over(&point)? else {
        bail!("{shown}: no model is mounted here");
    };
    let root = shell::word(&mount.point);
    let silent = || {
        anyhow!(
            "{shown}: the daemon of this mount does not answer\nto clear it: weightfs umount --lazy {root}"
        )
    };
    match mountpoint::answer(&point) {
        Answer::Alive => {}
        Answer::Dead => {
            bail!("{shown}: the daemon of this mount is gone\nto clear it: weightfs umount {root}")
        }
        Answer::Silent => return Err(silent()),
    }
    let file = point.join(".weightfs/status.json");
    let wanted = file.clone();
    let text = patience::within(PATIENCE, move || std::fs::read(wanted)).ok_or_else(silent)?;
    let is_elsewhere = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
    };
    if text.as_ref().is_err_and(is_elsewhere) {
        bail!(
            "{shown}: is in the mount {}, but neither that nor the directory of a model in it",
            mount.point.in_line()
        );
    }
    let text = text.with_context(|| file.in_line().to_string())?;
    let mut out = Out::new();
    if args.json {
        out.exact().write_all(&text)?;
    } else {
        let status = serde_json::from_slice(&text).with_context(|| file.in_line().to_string())?;
        write(&point, &source_of(&mount, &point), &status, &mut out)?;
    }
    out.flush()?;
    Ok(Exit::Done)
}

/// What is mounted there: of a mount of several models, the one whose directory was asked about.
fn source_of(mount: &Mount, point: &Path) -> Vec<u8> {
    let whole = || mount.source.as_encoded_bytes().to_vec();
    let below = point.strip_prefix(&mount.point).ok().filter(|path| !path.as_os_str().is_empty());
    let Some(directory) = below else {
        return whole();
    };
    let list = mount.point.join("models.json");
    let text = patience::within(PATIENCE, move || std::fs::read(list));
    let models = text.and_then(Result::ok).and_then(|text| serde_json::from_slice(&text).ok());
    model_in(&models.unwrap_or_default(), &directory.to_string_lossy()).unwrap_or_else(whole)
}

/// The path of the model that `models.json` says is shown in a directory.
fn model_in(models: &Json, directory: &str) -> Option<Vec<u8>> {
    let mut rows = models["models"].as_array()?.iter();
    let row = rows.find(|row| row["directory"] == directory && row.get("error").is_none())?;
    Some(row["path"].as_str()?.into())
}

fn write(point: &Path, source: &[u8], status: &Json, out: &mut Out) -> io::Result<()> {
    let number = |key: &str| status[key].as_u64().unwrap_or(0);
    let word = |key: &str| Safe(status[key].as_str().unwrap_or("unknown").as_bytes()).to_string();
    let title = format!("{} on {}", Safe(source), point.in_line());
    out.pieces([Piece::inked(Ink::Bold, title)])?;
    let state = word("state");
    let ink = match state.as_str() {
        "verified" => Ink::Good,
        "degraded" | "open" | "stale" => Ink::Bad,
        _ => Ink::Warn,
    };
    let mut table = Table::new([("", Align::Left), ("", Align::Left)]);
    table.row(["state".into(), Piece::inked(ink, state)]);
    if let Some(models) = status["models"].as_array() {
        let left_out = match number("left_out") {
            0 => String::new(),
            n => format!(", {} left out (see models.json)", count(n)),
        };
        table.row(["models".into(), format!("{}{left_out}", count(models.len() as u64))]);
    }
    table.row(["checks".into(), format!("verify={}, trust {}", word("verify"), word("trust"))]);
    if status["on_corruption"] == "log" {
        let text = "DAMAGED BYTES ARE SERVED (on_corruption=log)";
        table.row(["damage".into(), Piece::inked(Ink::Bad, text)]);
    }
    let up = duration(status["uptime_seconds"].as_f64().unwrap_or(0.0));
    let since = status["mounted_at"].as_i64().and_then(clock::local);
    table.row(["up for".into(), since.map_or(up.clone(), |since| format!("{up}, since {since}"))]);
    table.row([
        "served".into(),
        format!("{} in {}", size(number("bytes_served")), counted(number("reads"), "read")),
    ]);
    if number("stalled") > 0 {
        let waiting = counted(number("stalled"), "request");
        let text = format!(
            "{waiting}: a disk or server does not answer (kill -TERM {} ends the mount, and this)",
            number("pid")
        );
        table.row(["waiting".into(), Piece::inked(Ink::Bad, text)]);
    }
    table.row(["checked".into(), counted(number("chunks_checked"), "chunk")]);
    table.row([
        "met".into(),
        format!(
            "{}, {}, {} healed",
            counted(number("mismatches"), "mismatch"),
            counted(number("retries"), "retry"),
            count(number("healed"))
        ),
    ]);
    let changed = &status["source_changed"];
    if changed.as_bool() == Some(true) || changed.as_u64().is_some_and(|n| n > 0) {
        table.row([
            "source".into(),
            Piece::inked(Ink::Bad, "changed since it was mounted: reads fail with ESTALE"),
        ]);
    }
    let memory = match status["rss_anon_bytes"].as_u64() {
        Some(own) => format!("{} of its own", size(own)),
        None => format!("{}, mapped files included", size(number("rss_bytes"))),
    };
    table.row(["memory".into(), memory]);
    table.row(["log".into(), word("log")]);
    table.write(out, 2)?;
    write_notes(status, out)?;
    write_bad(status, out)?;
    write_breakers(status, out)
}

fn heading(out: &mut Out, ink: Ink, text: &str) -> io::Result<()> {
    out.line("")?;
    out.pieces([Piece::inked(ink, text)])
}

/// What happened to the sources and the seal: why one is stale, and what was harmless.
fn write_notes(status: &Json, out: &mut Out) -> io::Result<()> {
    let notes = status["notes"].as_array().map_or(&[][..], Vec::as_slice);
    if notes.is_empty() {
        return Ok(());
    }
    heading(out, Ink::Warn, "the files since the mount")?;
    for note in notes.iter().filter_map(Json::as_str) {
        out.line(format_args!("  {note}"))?;
    }
    Ok(())
}

fn write_bad(status: &Json, out: &mut Out) -> io::Result<()> {
    let bad = status["bad"].as_array().map_or(&[][..], Vec::as_slice);
    if bad.is_empty() {
        return Ok(());
    }
    heading(out, Ink::Bad, "bad chunks")?;
    let mut table = Table::new([
        ("TENSOR", Align::Left),
        ("CHUNK", Align::Right),
        ("OFFSET", Align::Right),
        ("EXPECTED", Align::Left),
        ("FOUND", Align::Left),
    ]);
    for chunk in bad {
        let tensor = tensor_or_part(chunk);
        let [number, offset, expected, found] = ["chunk", "source_offset", "expected", "found"]
            .map(|key| match &chunk[key] {
                Json::String(text) => Safe(text.as_bytes()).to_string(),
                other => other.to_string(),
            });
        table.row([tensor, number, offset, expected, found]);
    }
    table.write(out, 2)
}

/// The tensors of which chunks that failed are not looked at, and until when.
fn write_breakers(status: &Json, out: &mut Out) -> io::Result<()> {
    let breakers = status["breakers"].as_array().map_or(&[][..], Vec::as_slice);
    if breakers.is_empty() {
        return Ok(());
    }
    heading(out, Ink::Bad, "breakers")?;
    let mut table =
        Table::new([("TENSOR", Align::Left), ("STATE", Align::Left), ("UNTIL", Align::Left)]);
    for breaker in breakers {
        let state = Safe(breaker["state"].as_str().unwrap_or("unknown").as_bytes()).to_string();
        let until = breaker["until"].as_i64().and_then(clock::local);
        table.row([tensor_or_part(breaker), state, until.unwrap_or_default()]);
    }
    table.write(out, 2)
}

/// The tensor that a bad chunk lies in, or what else it is of.
fn tensor_or_part(chunk: &Json) -> String {
    let part = match (&chunk["tensor"], &chunk["part"]) {
        (Json::String(name), _) => text::name(name.as_bytes()),
        (_, Json::String(part)) => format!("({})", Safe(part.as_bytes())),
        _ => "(no tensor)".into(),
    };
    match &chunk["model"] {
        Json::String(model) => format!("{}: {part}", Safe(model.as_bytes())),
        _ => part,
    }
}

/// `42 s`, `3 min 7 s`, `2 h 5 min`, `9 d 4 h`.
fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86400 => format!("{} h {} min", s / 3600, s % 3600 / 60),
        _ => format!("{} d {} h", s / 86400, s % 86400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_chunks_outside_of_tensors_say_what_they_are_of() {
        for (chunk, want) in [
            (serde_json::json!({"tensor": "a", "part": "tensor"}), "a"),
            (serde_json::json!({"tensor": "", "part": "tensor"}), "\"\""),
            (serde_json::json!({"tensor": null, "part": "padding"}), "(padding)"),
            (serde_json::json!({"tensor": null, "part": "header"}), "(header)"),
            (serde_json::json!({"tensor": null}), "(no tensor)"),
            (serde_json::json!({"model": "a/b.gguf", "tensor": "t"}), "a/b.gguf: t"),
        ] {
            assert_eq!(tensor_or_part(&chunk), want);
        }
    }

    #[test]
    fn a_model_that_is_left_out_is_not_the_one_in_a_directory() {
        let models = serde_json::json!({"models": [
            {"path": "/m/p/old", "directory": "p/a", "error": "cut"},
            {"path": "/m/p/a/m.gguf", "directory": "p/a"},
            {"path": "/m/p/b", "directory": "p/b"},
        ]});
        assert_eq!(model_in(&models, "p/a"), Some(b"/m/p/a/m.gguf".into()));
        assert_eq!(model_in(&models, "p"), None);
        assert_eq!(model_in(&Json::Null, "p"), None);
    }

    #[test]
    fn durations_have_two_units() {
        for (s, want) in [
            (0.9, "0 s"),
            (59.0, "59 s"),
            (187.0, "3 min 7 s"),
            (7500.0, "2 h 5 min"),
            (792_000.0, "9 d 4 h"),
        ] {
            assert_eq!(duration(s), want);
        }
    }
}
