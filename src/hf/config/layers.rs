//! Which layers see everything and which a window.

use super::error::ConfigError;
use super::facts::Facts;

/// What a family does where the file does not say it layer by layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    /// The last of each so many layers is full.
    pub(super) period: u64,
}

/// The key of the pattern, when the file has one.
const PATTERN: &str = "attention.sliding_window_pattern";

/// The key of the window.
pub(super) const WINDOW: &str = "attention.sliding_window";

/// Whether each layer is sliding.
pub(super) fn sliding(facts: &Facts<'_>, window: Window) -> Result<Vec<bool>, ConfigError> {
    let layers = facts.layers()?;
    if let Some(mut flags) = facts.flags(PATTERN)? {
        if (flags.len() as u64) < layers {
            return Err(facts.unfit(PATTERN, format!("{layers} layers")));
        }
        flags.truncate(layers as usize);
        return Ok(flags);
    }
    let period = period(facts, window)?;
    // Period 0 stands for "all slide", as in llama.cpp.
    Ok((1..=layers).map(|layer| period == 0 || !layer.is_multiple_of(period)).collect())
}

/// How often a full layer comes where the file has no list.
pub(super) fn period(facts: &Facts<'_>, window: Window) -> Result<u64, ConfigError> {
    Ok(facts.count(PATTERN)?.unwrap_or(window.period))
}

/// `layer_types`.
pub(super) fn types(facts: &Facts<'_>, window: Window) -> Result<Vec<&'static str>, ConfigError> {
    let word = |slides| if slides { "sliding_attention" } else { "full_attention" };
    Ok(sliding(facts, window)?.into_iter().map(word).collect())
}
