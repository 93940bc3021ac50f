//! How byte-level BPE models cut a text into words first: by `tokenizer.ggml.pre`.
//!
//! The expressions are those of the models' own `tokenizer.json`, as far as they are known, in
//! the dialect of the library (Oniguruma).

use serde_json::{Value, json};
use std::fmt::Write;

/// One step of cutting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// What the expression matches stands alone.
    Split(&'static str),
    /// Digits stand alone: each, or in runs.
    Digits(bool),
    /// Punctuation, by the library's word.
    Punctuation(&'static str),
    /// GPT-2's own expression, with the spelling of bytes.
    Gpt2,
}

/// How the models of one family cut.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rule {
    names: &'static [&'static str],
    steps: &'static [Step],
    /// Whether texts are put into normalisation form C before.
    pub(super) composes: bool,
    /// Whether a word that is a token is taken as it is.
    pub(super) takes_whole_words: bool,
    /// Whether a text begins with the BOS token when no key says so.
    pub(super) adds_bos: bool,
    /// Whether the expressions are only known at second hand.
    uncertain: bool,
}

macro_rules! contractions {
    () => {
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
    };
}
macro_rules! word {
    () => {
        r"[^\r\n\p{L}\p{N}]?\p{L}+"
    };
}
macro_rules! blanks {
    () => {
        r"\s*[\r\n]+|\s+(?!\S)|\s+"
    };
}
macro_rules! signs {
    () => {
        r" ?[^\s\p{L}\p{N}]+[\r\n]*"
    };
}
macro_rules! cased {
    ($suffix:expr, $digits:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
            $suffix,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
            $suffix,
            "|",
            $digits,
            r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|",
            blanks!()
        )
    };
}
macro_rules! deepseek3 {
    ($end:expr) => {
        concat!(
            r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
            r"| ?[\p{P}\p{S}]+",
            $end
        )
    };
}

const LLAMA3: &str =
    concat!(contractions!(), "|", word!(), r"|\p{N}{1,3}|", signs!(), "|", blanks!());
const QWEN2: &str = concat!(contractions!(), "|", word!(), r"|\p{N}|", signs!(), "|", blanks!());
const QWEN35: &str = concat!(
    contractions!(),
    r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|",
    blanks!()
);
const QWEN2_NO_CONTRACTIONS: &str = concat!(word!(), r"|\p{N}|", signs!(), "|", blanks!());
const QWEN2_NUMBERS: &str =
    concat!(contractions!(), "|", word!(), r"|\p{N}+|", signs!(), "|", blanks!());
const GPT4O: &str = cased!(concat!(contractions!(), "?"), r"\p{N}{1,3}");
const GPT4O_DIGITS: &str = cased!(concat!(contractions!(), "?"), r"\p{N}");
const TEKKEN: &str = cased!("", r"\p{N}");
const JAIS2: &str = concat!(
    contractions!(),
    "|",
    word!(),
    r"|\p{N}{1,3}|",
    signs!(),
    r"|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)",
    r"|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
);
const SEED: &str =
    concat!(contractions!(), "|", word!(), r"|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|", blanks!());
const BAILING: &str = concat!(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*",
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
);
const EXAONE_MOE: &str = concat!(
    contractions!(),
    r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?",
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
);
const BLOOM: &str = " ?[^(\\s|[.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c}])]+";
/// Han, what lies between Samaritan and Han, and Hangul, as these models list them.
const DEEPSEEK_HAN: &str = "[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+";
const DEEPSEEK3_HAN: &str = "[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+";
const DEEPSEEK3: &str = deepseek3!(concat!(r"[\r\n]*|", blanks!()));
const SPARK: &str = deepseek3!(r"|[\r\n]|\s+(?!\S)|\s+");
/// Letters with case, as deepseek-llm lists them.
const DEEPSEEK_LETTERS: &str = concat!(
    "\\s?[A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}",
    "\u{295}-\u{2af}\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}",
    "\u{38c}\u{38e}-\u{3a1}\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}",
    "\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}",
    "\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}",
    "\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}",
    "\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}",
    "\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}",
    "\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}\u{2126}\u{2128}\u{212a}-\u{212d}",
    "\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}\u{2183}\u{2184}",
    "\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}",
    "\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}",
    "\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}",
    "\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}",
    "\u{118a0}-\u{118df}\u{1e900}-\u{1e943}]+"
);
const DEEPSEEK_SIGNS: &str =
    "\\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+";
const AFMOE_ASIAN: &str = concat!(
    "[\u{4e00}-\u{9fff}\u{3400}-\u{4dbf}\u{f900}-\u{faff}\u{3040}-\u{309f}\u{30a0}-\u{30ff}",
    "\u{ff65}-\u{ff9f}\u{2f00}-\u{2fdf}\u{e40}-\u{e7f}\u{e80}-\u{eff}\u{1780}-\u{17ff}",
    "\u{1000}-\u{109f}\u{aa60}-\u{aa7f}\u{a9e0}-\u{a9ff}\u{ac00}-\u{d7af}\u{1100}-\u{11ff}]+"
);
const YOUTU: &str = concat!(
    "[\u{ac00}-\u{d7a3}\u{3131}-\u{318e}]+|[\u{ff01}\u{2026}\u{201c}\u{201d}\u{2018}\u{2019}",
    "\u{2014}\u{ff1a}\u{ff1b}\u{ff0c}\u{3001}-\u{303f}\u{fe30}-\u{fe4f}]+|[\u{3105}-\u{312f}]+",
    "|[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+"
);

const PLAIN: Rule = Rule {
    names: &[],
    steps: &[Step::Gpt2],
    composes: false,
    takes_whole_words: false,
    adds_bos: false,
    uncertain: false,
};

/// GPT-2's rule.
const GPT2: &Rule = &RULES[0];

const RULES: &[Rule] = &[
    Rule {
        names: &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "gigachat",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "exaone4",
        ],
        ..PLAIN
    },
    Rule {
        names: &["starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        steps: &[Step::Digits(true), Step::Gpt2],
        ..PLAIN
    },
    Rule {
        names: &["command-r"],
        steps: &[Step::Digits(true), Step::Gpt2],
        composes: true,
        ..PLAIN
    },
    Rule {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
        ],
        steps: &[Step::Split(LLAMA3)],
        takes_whole_words: true,
        adds_bos: true,
        ..PLAIN
    },
    Rule {
        names: &["glm4", "glm5"],
        steps: &[Step::Split(LLAMA3)],
        takes_whole_words: true,
        ..PLAIN
    },
    Rule { names: &["dbrx", "smaug-bpe", "chatglm-bpe"], steps: &[Step::Split(LLAMA3)], ..PLAIN },
    Rule {
        names: &["qwen2", "deepseek-r1-qwen", "megrez", "kormo", "f2llmv2"],
        steps: &[Step::Split(QWEN2)],
        composes: true,
        ..PLAIN
    },
    Rule {
        names: &["stablelm2", "hunyuan", "solar-open", "grok-2"],
        steps: &[Step::Split(QWEN2)],
        ..PLAIN
    },
    Rule { names: &["qwen35"], steps: &[Step::Split(QWEN35)], composes: true, ..PLAIN },
    Rule { names: &["ufakzeka"], steps: &[Step::Split(QWEN2_NO_CONTRACTIONS)], ..PLAIN },
    Rule {
        names: &["laguna"],
        steps: &[Step::Split(r"[^\n]+|[\n]+"), Step::Split(QWEN2)],
        ..PLAIN
    },
    Rule {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        steps: &[Step::Split(GPT4O)],
        ..PLAIN
    },
    Rule {
        names: &["granite-embed-multi-97m"],
        steps: &[Step::Split(GPT4O)],
        takes_whole_words: true,
        ..PLAIN
    },
    Rule {
        names: &["tiny_aya", "cohere2moe"],
        steps: &[Step::Split(r"\d{1,3}(?=(?:\d{3})*\b)"), Step::Split(GPT4O)],
        ..PLAIN
    },
    Rule {
        names: &["tekken"],
        steps: &[Step::Split(TEKKEN)],
        takes_whole_words: true,
        adds_bos: true,
        ..PLAIN
    },
    Rule { names: &["jais-2"], steps: &[Step::Split(JAIS2)], ..PLAIN },
    Rule {
        names: &["minicpm5"],
        steps: &[Step::Split(r"\p{N}{1,3}"), Step::Split(QWEN2_NUMBERS)],
        takes_whole_words: true,
        ..PLAIN
    },
    Rule { names: &["seed-coder"], steps: &[Step::Split(SEED)], ..PLAIN },
    Rule {
        names: &["bailingmoe", "bailingmoe2", "llada-moe"],
        steps: &[Step::Split(BAILING)],
        ..PLAIN
    },
    Rule { names: &["exaone-moe"], steps: &[Step::Split(EXAONE_MOE)], ..PLAIN },
    Rule { names: &["bloom", "poro-chat", "gpt3-finnish"], steps: &[Step::Split(BLOOM)], ..PLAIN },
    Rule { names: &["viking"], steps: &[Step::Split(BLOOM), Step::Digits(true)], ..PLAIN },
    Rule {
        names: &["falcon"],
        steps: &[
            Step::Punctuation("Contiguous"),
            Step::Gpt2,
            Step::Digits(false),
            Step::Split("[0-9][0-9][0-9]"),
        ],
        ..PLAIN
    },
    Rule {
        names: &["deepseek-llm"],
        steps: &[
            Step::Split(r"[\r\n]"),
            Step::Split(DEEPSEEK_LETTERS),
            Step::Split(DEEPSEEK_SIGNS),
            Step::Split(r"\s+$"),
            Step::Split(DEEPSEEK_HAN),
            Step::Digits(true),
        ],
        ..PLAIN
    },
    Rule {
        names: &["deepseek-coder"],
        steps: &[
            Step::Split(r"[\r\n]"),
            Step::Split(r"\s?\p{L}+"),
            Step::Split(r"\s?\p{P}+"),
            Step::Split(DEEPSEEK_HAN),
            Step::Digits(true),
        ],
        ..PLAIN
    },
    Rule {
        names: &["deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"],
        steps: &[Step::Split(r"\p{N}{1,3}"), Step::Split(DEEPSEEK3_HAN), Step::Split(DEEPSEEK3)],
        ..PLAIN
    },
    Rule {
        names: &["spark2_5"],
        steps: &[Step::Split(DEEPSEEK3_HAN), Step::Split(SPARK), Step::Split(r"\p{N}")],
        uncertain: true,
        ..PLAIN
    },
    Rule {
        names: &["afmoe"],
        steps: &[
            Step::Split(r"\d{1,3}(?=(?:\d{3})*(?!\d))"),
            Step::Split(AFMOE_ASIAN),
            Step::Split(DEEPSEEK3),
        ],
        uncertain: true,
        ..PLAIN
    },
    Rule {
        names: &["youtu"],
        steps: &[Step::Split(YOUTU), Step::Split(GPT4O_DIGITS)],
        takes_whole_words: true,
        uncertain: true,
        ..PLAIN
    },
    Rule {
        names: &["chameleon"],
        steps: &[
            Step::Split("<sentinel:[0-9]+>"),
            Step::Split("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
            Step::Split("([\\t\\n]|    |  )"),
            Step::Digits(true),
            Step::Punctuation("Isolated"),
            Step::Gpt2,
        ],
        adds_bos: true,
        ..PLAIN
    },
    Rule {
        names: &["superbpe"],
        steps: &[Step::Split(r"\p{N}+"), Step::Split(r"(?=(\d{3})+(?!\d))")],
        ..PLAIN
    },
];

/// What a name stands for.
#[derive(Debug)]
pub(super) enum Found {
    /// Byte-level BPE by this rule, and what is not certain about it.
    ByteLevel(&'static Rule, Option<String>),
    /// BPE on characters with SentencePiece's sign for a space.
    SentencePiece,
}

/// Architectures whose models, when they were converted before there was a name to write, all
/// cut as GPT-2 does.
const OF_GPT2: &[&str] = &["gpt2", "mpt", "gptneox", "gptj", "starcoder", "phi2", "olmo", "jais"];

/// The rule called `name`; without a name, that of the architecture.
pub(super) fn rule(name: Option<&str>, architecture: Option<&str>) -> Result<Found, String> {
    let by_name = |name: &str| RULES.iter().find(|rule| rule.names.contains(&name));
    match name {
        Some("gemma4" | "granite-embed-multi-311m" | "sarvam-moe") => {
            return Ok(Found::SentencePiece);
        }
        Some(name @ ("kimi-k2" | "whitespace")) => {
            return Err(format!("tokenizer.ggml.pre {name:?} is unsupported"));
        }
        _ => {}
    }
    if let Some((name, rule)) = name.and_then(|name| Some((name, by_name(name)?))) {
        let warning = rule.uncertain.then(|| {
            format!(
                "hf/tokenizer.json: how models with tokenizer.ggml.pre {name:?} cut words is not \
                 certain, token ids may differ from the model's"
            )
        });
        return Ok(Found::ByteLevel(rule, warning));
    }
    let architecture = architecture.unwrap_or_default();
    if matches!(name, None | Some("" | "default")) {
        if OF_GPT2.contains(&architecture) {
            return Ok(Found::ByteLevel(GPT2, None));
        }
        if let (Some(rule), "falcon" | "bloom") = (by_name(architecture), architecture) {
            return Ok(Found::ByteLevel(rule, None));
        }
    }
    let mut warning = String::from("hf/tokenizer.json cuts words as GPT-2 does, since ");
    match name {
        None => warning.push_str("there is no tokenizer.ggml.pre"),
        Some(name) => {
            write!(warning, "tokenizer.ggml.pre is {name:?}").expect("memory takes all");
        }
    }
    warning.push_str(": token ids may differ from the model's");
    Ok(Found::ByteLevel(GPT2, Some(warning)))
}

/// `pre_tokenizer` for byte-level BPE.
pub(super) fn pre_tokenizer(rule: &Rule) -> Value {
    let mut steps: Vec<Value> = rule.steps.iter().map(|step| step.json()).collect();
    if !rule.steps.contains(&Step::Gpt2) {
        steps.push(byte_level(false));
    }
    if steps.len() == 1 {
        steps.remove(0)
    } else {
        json!({"type": "Sequence", "pretokenizers": steps})
    }
}

impl Step {
    fn json(self) -> Value {
        match self {
            Step::Split(regex) => json!({
                "type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": false,
            }),
            Step::Digits(individual) => json!({"type": "Digits", "individual_digits": individual}),
            Step::Punctuation(behavior) => json!({"type": "Punctuation", "behavior": behavior}),
            Step::Gpt2 => byte_level(true),
        }
    }
}

fn byte_level(use_regex: bool) -> Value {
    json!({
        "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn found(name: Option<&str>, architecture: &str) -> (&'static Rule, bool) {
        match rule(name, Some(architecture)).unwrap() {
            Found::ByteLevel(rule, warning) => (rule, warning.is_some()),
            Found::SentencePiece => panic!("not byte-level"),
        }
    }

    #[test]
    fn no_name_is_listed_twice() {
        let mut names: Vec<&str> = RULES.iter().flat_map(|rule| rule.names).copied().collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_name_that_is_missing_is_made_up_for_by_the_architecture() {
        assert_eq!(found(None, "gpt2"), (GPT2, false));
        assert_eq!(found(Some("default"), "mpt"), (GPT2, false));
        assert_eq!(found(Some(""), "falcon"), (found(Some("falcon"), "x").0, false));
        assert_eq!(found(None, "llama"), (GPT2, true));
        assert_eq!(found(Some("brand-new"), "gpt2"), (GPT2, true));
        assert!(matches!(rule(Some("gemma4"), None), Ok(Found::SentencePiece)));
        assert!(rule(Some("kimi-k2"), None).is_err());
    }

    #[test]
    fn digits_are_cut_as_each_family_cuts_them() {
        let text = |name: &str| pre_tokenizer(found(Some(name), "x").0).to_string();
        assert!(text("llama-bpe").contains(r"|\\p{N}{1,3}| ?"));
        assert!(text("qwen2").contains(r"|\\p{N}| ?"));
        assert!(text("tekken").contains(r"|\\p{N}| ?"));
        assert!(!text("tekken").contains("'re"));
        assert!(text("gpt-4o").contains(r"?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|"));
        assert!(text("starcoder").starts_with(
            r#"{"type":"Sequence","pretokenizers":[{"type":"Digits","individual_digits":true}"#
        ));
        assert_eq!(text("gpt-2"), byte_level(true).to_string());
    }

    #[test]
    fn every_rule_spells_bytes_once() {
        for rule in RULES {
            let text = pre_tokenizer(rule).to_string();
            assert_eq!(text.matches(r#""type":"ByteLevel""#).count(), 1, "{:?}", rule.names);
        }
    }
}
