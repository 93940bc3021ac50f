//! Statistics as one JSON document, written tensor by tensor.

use super::super::output::Out;
use super::{Form, Totals, words};
use serde_json::{Value as Json, json};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use weightfs::model::elements;
use weightfs::survey::stats::Surveyed;
use weightfs::survey::{self, Number};
use weightfs::view::json::lossy;

/// The document as far as it is written.
pub(super) struct Document {
    model: String,
    begun: bool,
}

impl Document {
    /// Of the model that was typed.
    pub(super) fn new(model: &OsStr) -> Document {
        Document { model: lossy(model.as_bytes()).into_owned(), begun: false }
    }

    /// What stands in front of the next tensor, or of the end.
    fn separate(&mut self, next: bool, out: &mut impl Write) -> io::Result<()> {
        if !self.begun {
            write!(out, "{{\n  \"model\": {},\n  \"tensors\": [", Json::from(self.model.as_str()))?;
        } else if next {
            write!(out, ",")?;
        }
        if next || self.begun {
            write!(out, "\n{}", if next { "    " } else { "  " })?;
        }
        self.begun = true;
        Ok(())
    }
}

impl Form for Document {
    fn tensor(&mut self, tensor: Surveyed<'_>, out: &mut Out) -> io::Result<()> {
        let mut out = out.exact();
        self.separate(true, &mut out)?;
        let text = serde_json::to_string_pretty(&entry(&tensor))?;
        out.write_all(text.replace('\n', "\n    ").as_bytes())
    }

    fn end(&mut self, totals: &Totals, out: &mut Out) -> io::Result<()> {
        let mut out = out.exact();
        self.separate(false, &mut out)?;
        let tally = &totals.tally;
        let all = json!({
            "tensors": totals.tensors,
            "without_values": totals.without,
            "failed": totals.failed,
            "elements": tally.elements,
            "zeros": tally.zeros,
            "nan": tally.nan,
            "inf": tally.inf,
        });
        let text = serde_json::to_string_pretty(&all)?.replace('\n', "\n  ");
        write!(out, "],\n  \"totals\": {text}\n}}\n")
    }
}

fn entry(tensor: &Surveyed<'_>) -> Json {
    let mut entry = json!({
        "name": lossy(&tensor.name),
        "dtype": tensor.dtype.name(),
        "shape": tensor.shape,
        "elements": elements(&tensor.shape),
    });
    let stats = tensor.stats.as_ref().ok().and_then(Option::as_ref);
    let tally = stats.map(|stats| &stats.tally);
    let number = |x: Option<f64>| x.map(survey::json);
    let (min, max) = stats.and_then(|stats| stats.extremes).unzip();
    let histogram = stats.and_then(|stats| stats.histogram.as_ref()).map(|bins| {
        json!({
            "from": survey::json(bins.from),
            "to": survey::json(bins.to),
            "counts": bins.counts.to_vec(),
        })
    });
    entry["values"] = json!(stats.map(|stats| stats.kind.name()));
    entry["min"] = json!(min.map(Number::json));
    entry["max"] = json!(max.map(Number::json));
    entry["mean"] = json!(number(tally.and_then(|tally| tally.mean())));
    entry["std"] = json!(number(tally.and_then(|tally| tally.std())));
    entry["zeros"] = json!(tally.map(|tally| tally.zeros));
    entry["nan"] = json!(tally.map(|tally| tally.nan));
    entry["inf"] = json!(tally.map(|tally| tally.inf));
    entry["histogram"] = json!(histogram);
    if let Err(error) = &tensor.stats {
        entry["error"] = words(error).into();
    }
    entry
}
