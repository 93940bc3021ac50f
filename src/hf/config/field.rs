//! A field of config.json and where its value comes from: the language of [`super::families`].

use super::error::ConfigError;
use super::facts::{Facts, shortest};
use super::layers::{self, Window};
use super::rope::Rope;
use serde_json::{Map, Value as Json};

/// A JSON object, in the order of insertion.
pub(super) type Object = Map<String, Json>;

/// A field and its source.
pub(super) type Field = (&'static str, Source);

/// Adds or corrects fields that no single source gives.
pub(super) type Finish = fn(&Facts<'_>, &mut Object) -> Result<(), ConfigError>;

/// Models that transformers has one class for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Family {
    /// `model_type`.
    pub(super) model_type: &'static str,
    /// The entry of `architectures`.
    pub(super) class: &'static str,
    pub(super) fields: &'static [&'static [Field]],
    /// How it is said what positions do.
    pub(super) rope: Rope,
    /// Whether the head is the embedding, whatever else is stored.
    pub(super) always_tied: bool,
    /// What a user should know of every model of the family.
    pub(super) notes: &'static [&'static str],
    pub(super) finish: Option<Finish>,
}

/// Where a value comes from. Keys lack the architecture in front.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// Always the same: a constant of the family that a GGUF does not carry.
    Word(&'static str),
    /// As [`Source::Word`].
    Flag(bool),
    /// As [`Source::Word`].
    Number(u64),
    /// As [`Source::Word`].
    Real(f64),
    /// Always null.
    Null,
    /// Always an empty list.
    Empty,
    /// Elements of a token's vector.
    Hidden,
    /// Rows of the projection up.
    FeedForward,
    /// Number of layers.
    Layers,
    /// Heads of queries.
    Heads,
    /// Heads of keys and values.
    KvHeads,
    /// Longest text, in tokens.
    Context,
    /// Elements of a head.
    HeadDim,
    /// The same in a family whose rope turns whole heads: its dimension count may say it.
    RopeHeadDim,
    /// A count that must be there.
    Count(&'static str),
    /// A count, and what its absence means.
    CountOr(&'static str, u64),
    /// A count that every file has; where one lacks it, this is written, with a warning.
    CountElse(&'static str, u64),
    /// A count; null when it is absent or 0.
    CountOrNull(&'static str),
    /// A number, and what its absence (or 0) means.
    RealOr(&'static str, f64),
    /// A number that every file has; where one lacks it, this is written, with a warning.
    RealElse(&'static str, f64),
    /// A number; null when it is absent or 0.
    RealOrNull(&'static str),
    /// A bool, and what its absence means.
    FlagOr(&'static str, bool),
    /// A bool that every file has; where one lacks it, this is written, with a warning.
    FlagElse(&'static str, bool),
    /// Whether there is a tensor of this name.
    Has(&'static str),
    /// Whether there is none.
    HasNot(&'static str),
    /// `layer_types`.
    LayerTypes(Window),
    /// Computed.
    Made(fn(&Facts<'_>) -> Result<Json, ConfigError>),
}

impl Source {
    /// The value for this model.
    pub(super) fn value(self, facts: &Facts<'_>) -> Result<Json, ConfigError> {
        Ok(match self {
            Source::Word(word) => word.into(),
            Source::Flag(flag) => flag.into(),
            Source::Number(number) => number.into(),
            Source::Real(real) => real.into(),
            Source::Null => Json::Null,
            Source::Empty => Json::Array(Vec::new()),
            Source::Hidden => facts.hidden()?.into(),
            Source::FeedForward => facts.feed_forward()?.into(),
            Source::Layers => facts.layers()?.into(),
            Source::Heads => facts.heads()?.into(),
            Source::KvHeads => facts.kv_heads()?.into(),
            Source::Context => facts.context()?.into(),
            Source::HeadDim => facts.head_dim(false)?.into(),
            Source::RopeHeadDim => facts.head_dim(true)?.into(),
            Source::Count(key) => facts.required(key)?.into(),
            Source::CountOr(key, other) => facts.count(key)?.unwrap_or(other).into(),
            Source::CountElse(key, other) => match facts.positive(key)? {
                Some(count) => count.into(),
                None => assumed(facts, key, other),
            },
            Source::CountOrNull(key) => facts.count(key)?.filter(|&n| n > 0).into(),
            Source::RealOr(key, other) => facts.positive_real(key)?.unwrap_or(other).into(),
            Source::RealElse(key, other) => match facts.positive_real(key)? {
                Some(real) => real.into(),
                None => assumed(facts, key, other),
            },
            Source::RealOrNull(key) => facts.positive_real(key)?.into(),
            Source::FlagOr(key, other) => facts.flag(key)?.unwrap_or(other).into(),
            Source::FlagElse(key, other) => match facts.flag(key)? {
                Some(flag) => flag.into(),
                None => assumed(facts, key, other),
            },
            Source::Has(tensor) => facts.has(tensor).into(),
            Source::HasNot(tensor) => (!facts.has(tensor)).into(),
            Source::LayerTypes(window) => layers::types(facts, window)?.into(),
            Source::Made(make) => make(facts)?,
        })
    }
}

/// `value`, which the file does not give although every file should.
fn assumed(facts: &Facts<'_>, key: &str, value: impl Into<Json>) -> Json {
    let value = value.into();
    facts.warn(format!("config.json: {} is missing: taken as {value}", facts.key(key)));
    value
}

/// `part / whole` as the shortest decimal of at most four digits, or in full, with which
/// `floor(whole * result)`, which is what classes compute, is `part` again.
pub(super) fn ratio(part: u64, whole: u64) -> f64 {
    let (part, whole) = (part as f64, whole as f64);
    let exact = part / whole;
    let fits = |x: &f64| (x * whole).floor() == part;
    let rounded = (exact * 1e4).round() / 1e4;
    [rounded, exact, exact.next_up()].into_iter().find(fits).unwrap_or(exact)
}

/// A list of factors, each as the shortest decimal.
pub(super) fn decimals(values: &[f32]) -> Json {
    values.iter().map(|&x| shortest(x)).collect::<Vec<f64>>().into()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_short_and_gives_the_part_back() {
        assert_eq!(ratio(32, 80), 0.4);
        assert_eq!(ratio(20, 80), 0.25);
        assert_eq!(ratio(96, 128), 0.75);
        for whole in 1..=256u64 {
            for part in 1..=whole {
                let got = (whole as f64 * ratio(part, whole)).floor();
                assert_eq!(got, part as f64, "{part} of {whole}");
            }
        }
    }

    #[test]
    fn floats_are_the_shortest_that_give_the_same_f32() {
        let text = |x| serde_json::to_string(&Json::from(shortest(x))).unwrap();
        assert_eq!(text(1e-5), "0.00001");
        assert_eq!(text(0.1), "0.1");
        assert_eq!(text(500_000.0), "500000.0");
        assert_eq!(text(1e-6), "1e-6");
        for x in [f32::MAX, f32::MIN_POSITIVE, 1e-45, 16_777_216.0, 0.33333334] {
            assert_eq!(shortest(x) as f32, x);
            assert_eq!(text(x).parse::<f32>().unwrap(), x);
        }
    }
}
