#![allow(clippy::unwrap_used)]

use super::super::{File, Plan};
use super::testing::{Keys, floats, ints, strings, text};
use super::{plan, write};
use crate::model::{Array, Value, ValueType};
use serde_json::{Value as Json, json};

const B: &str = "\u{2581}";

fn planned(keys: &Keys) -> Plan {
    keys.look(|meta| {
        let mut planned = Plan::default();
        plan(meta, &mut planned);
        planned
    })
}

fn bytes(keys: &Keys, file: File) -> Vec<u8> {
    keys.look(|meta| write(meta, file)).unwrap()
}

fn made(keys: &Keys, file: File) -> Json {
    serde_json::from_slice(&bytes(keys, file)).unwrap()
}

fn tokenizer(keys: &Keys) -> Json {
    made(keys, File::Tokenizer)
}

fn no_files(keys: &Keys, because: &str) {
    let planned = planned(keys);
    assert_eq!(planned.files, [File::GenerationConfig]);
    assert_eq!(planned.warnings.len(), 1, "{:?}", planned.warnings);
    assert!(planned.warnings[0].contains(because), "{:?}", planned.warnings);
}

fn added(keys: &Keys) -> Vec<(u64, String, bool)> {
    let json = tokenizer(keys);
    let tokens = json["added_tokens"].as_array().unwrap();
    let token = |t: &Json| {
        (t["id"].as_u64().unwrap(), t["content"].as_str().unwrap().into(), t["special"] == true)
    };
    tokens.iter().map(token).collect()
}

fn words(json: &Json) -> Vec<&str> {
    json["model"]["merges"].as_array().unwrap().iter().map(|m| m.as_str().unwrap()).collect()
}

fn llama() -> Keys {
    Keys::new("llama", "llama").tokens(&[
        ("<unk>", 2),
        ("<s>", 3),
        ("</s>", 3),
        ("<0x00>", 6),
        ("  ", 4),
        ("abc", 1),
        ("ab", 1),
        ("bc", 1),
        ("a", 1),
        ("b", 1),
        ("c", 1),
        (B, 1),
    ])
}

fn gpt2() -> Keys {
    Keys::new("qwen2", "gpt2")
        .tokens(&[
            ("a", 1),
            ("b", 1),
            ("ab", 1),
            ("<|end|>", 3),
            ("<t>", 4),
            ("[PAD5]", 5),
            ("old", 5),
        ])
        .with("tokenizer.ggml.pre", text("qwen2"))
        .with("tokenizer.ggml.merges", strings(&["a b"]))
}

fn bert() -> Keys {
    Keys::new("bert", "bert")
        .tokens(&[
            ("[PAD]", 3),
            ("[UNK]", 3),
            ("[CLS]", 3),
            ("[SEP]", 3),
            ("\u{2581}he", 1),
            ("llo", 1),
            (B, 1),
        ])
        .with("tokenizer.ggml.unknown_token_id", Value::U32(1))
        .with("tokenizer.ggml.cls_token_id", Value::U32(2))
        .with("tokenizer.ggml.seperator_token_id", Value::U32(3))
}

fn t5() -> Keys {
    Keys::new("t5", "t5").tokens(&[
        ("<pad>", 3),
        ("</s>", 3),
        ("<unk>", 2),
        ("\u{2581}a", 1),
        ("b", 1),
    ])
}

#[test]
fn a_whole_file_is_this_one() {
    let keys = llama().with("tokenizer.ggml.add_eos_token", Value::Bool(true));
    let expected = concat!(
        r#"{"version":"1.0","truncation":null,"padding":null,"added_tokens":["#,
        r#"{"id":0,"content":"<unk>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},"#,
        r#"{"id":1,"content":"<s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},"#,
        r#"{"id":2,"content":"</s>","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":true},"#,
        r#"{"id":4,"content":"  ","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":false}],"#,
        r#""normalizer":{"type":"Sequence","normalizers":[{"type":"Prepend","prepend":"BLANK"},"#,
        r#"{"type":"Replace","pattern":{"String":" "},"content":"BLANK"}]},"pre_tokenizer":null,"#,
        r#""post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>","type_id":0}},"#,
        r#"{"Sequence":{"id":"A","type_id":0}},{"SpecialToken":{"id":"</s>","type_id":0}}],"#,
        r#""pair":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}},"#,
        r#"{"SpecialToken":{"id":"</s>","type_id":0}},{"SpecialToken":{"id":"<s>","type_id":1}},"#,
        r#"{"Sequence":{"id":"B","type_id":1}},{"SpecialToken":{"id":"</s>","type_id":1}}],"#,
        r#""special_tokens":{"<s>":{"id":"<s>","ids":[1],"tokens":["<s>"]},"#,
        r#""</s>":{"id":"</s>","ids":[2],"tokens":["</s>"]}}},"#,
        r#""decoder":{"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"BLANK"},"content":" "},"#,
        r#"{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},"#,
        r#""model":{"type":"BPE","dropout":null,"unk_token":"<unk>","continuing_subword_prefix":null,"#,
        r#""end_of_word_suffix":null,"fuse_unk":true,"byte_fallback":true,"ignore_merges":false,"#,
        r#""vocab":{"<unk>":0,"<s>":1,"</s>":2,"<0x00>":3,"  ":4,"abc":5,"ab":6,"bc":7,"a":8,"b":9,"c":10,"BLANK":11},"#,
        r#""merges":["ab c","a bc","a b","b c"]}}"#,
    );
    let found = String::from_utf8(bytes(&keys, File::Tokenizer)).unwrap();
    assert_eq!(found, expected.replace("BLANK", B));
}

#[test]
fn merges_go_by_score_then_id_and_the_longer_left_part_first() {
    let keys = llama();
    assert_eq!(words(&tokenizer(&keys)), ["ab c", "a bc", "a b", "b c"]);
    // "bc" before "ab" before "abc"; equal scores go by id.
    let mut scores = [0.0f32; 12];
    (scores[5], scores[6], scores[7]) = (-2.0, -1.0, -0.5);
    let turned = keys.clone().with("tokenizer.ggml.scores", floats(&scores));
    assert_eq!(words(&tokenizer(&turned)), ["b c", "a b", "ab c", "a bc"]);
    let equal = keys.clone().with(
        "tokenizer.ggml.scores",
        floats(&[-0.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
    );
    assert_eq!(words(&tokenizer(&equal)), ["ab c", "a bc", "a b", "b c"]);
    // No number is the lowest of all.
    (scores[5], scores[6], scores[7]) = (f32::NAN, f32::NEG_INFINITY, f32::INFINITY);
    let odd = keys.with("tokenizer.ggml.scores", floats(&scores));
    assert_eq!(words(&tokenizer(&odd)), ["b c", "ab c", "a bc", "a b"]);
}

#[test]
fn only_normal_tokens_are_parts_and_results_of_merges() {
    for kind in [2, 3, 4, 5, 6] {
        let tokens = [("<unk>", 2), ("a", 1), ("b", 1), ("ab", kind), ("abb", 1), ("bb", 1)];
        let json = tokenizer(&Keys::new("llama", "llama").tokens(&tokens));
        assert_eq!(words(&json), ["a bb", "b b"], "{kind}");
    }
}

#[test]
fn a_part_with_a_space_makes_all_merges_pairs() {
    let tokens = [("x y", 1), ("x", 1), (" y", 1), ("\u{e9}\u{e9}", 1), ("\u{e9}", 1)];
    let json = tokenizer(&Keys::new("llama", "llama").tokens(&tokens));
    assert_eq!(json["model"]["merges"], json!([["x", " y"], ["\u{e9}", "\u{e9}"]]));
    let comment = [("#versions", 1), ("#version", 1), ("s", 1)];
    let json = tokenizer(&Keys::new("llama", "llama").tokens(&comment));
    assert_eq!(json["model"]["merges"], json!([["#version", "s"]]));
}

#[test]
fn listed_merges_win_over_scores_and_impossible_ones_go() {
    let list = ["a b", "a x", "x b", "b a", "ab", "", " ", "a ", " a", "b c", "a bc", "a b c"];
    let keys = llama().with("tokenizer.ggml.merges", strings(&list));
    assert_eq!(words(&tokenizer(&keys)), ["a b", "b c", "a bc"]);
    // A space in a token is written as U+0120 in the list.
    let tokens = [(" ", 1), ("  ", 1)];
    let keys = Keys::new("gemma4", "gemma4").tokens(&tokens);
    let keys = keys.with("tokenizer.ggml.merges", strings(&["\u{120} \u{120}"]));
    let json = tokenizer(&keys);
    assert_eq!(json["model"]["merges"], json!([[" ", " "]]));
    assert_eq!(
        json["normalizer"],
        json!({"type": "Replace", "pattern": {"String": " "}, "content": B})
    );
}

#[test]
fn without_the_space_prefix_nothing_is_added_or_taken() {
    let json = tokenizer(&llama().with("tokenizer.ggml.add_space_prefix", Value::Bool(false)));
    assert_eq!(json["normalizer"]["type"], "Replace");
    assert_eq!(json["decoder"]["decoders"].as_array().unwrap().len(), 3);
    let json =
        tokenizer(&llama().with("tokenizer.ggml.remove_extra_whitespaces", Value::Bool(true)));
    assert_eq!(json["normalizer"]["normalizers"][0]["pattern"], json!({"Regex": "\\A +| +\\z"}));
    assert_eq!(json["normalizer"]["normalizers"].as_array().unwrap().len(), 4);
}

#[test]
fn byte_level_has_its_words_its_padding_left_out_and_no_unknown() {
    let json = tokenizer(&gpt2());
    assert_eq!(
        json["model"]["vocab"],
        json!({"a": 0, "b": 1, "ab": 2, "<|end|>": 3, "<t>": 4, "old": 6})
    );
    assert_eq!(json["model"]["merges"], json!(["a b"]));
    assert_eq!(json["model"]["unk_token"], Json::Null);
    assert_eq!(json["model"]["ignore_merges"], false);
    assert_eq!(json["normalizer"], json!({"type": "NFC"}));
    assert_eq!(json["post_processor"]["type"], "ByteLevel");
    assert_eq!(json["decoder"]["type"], "ByteLevel");
    assert_eq!(added(&gpt2()), [(3, "<|end|>".into(), true), (4, "<t>".into(), false)]);
    let llama3 = gpt2()
        .with("tokenizer.ggml.pre", text("llama-bpe"))
        .with("tokenizer.ggml.bos_token_id", Value::U32(3));
    let json = tokenizer(&llama3);
    assert_eq!(json["model"]["ignore_merges"], true);
    assert_eq!(json["normalizer"], Json::Null);
    assert_eq!(
        json["post_processor"]["single"][0],
        json!({"SpecialToken": {"id": "<|end|>", "type_id": 0}})
    );
}

#[test]
fn word_piece_is_respelt() {
    let json = tokenizer(&bert());
    let expected = json!({"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "he": 4, "##llo": 5, "##\u{2581}": 6});
    assert_eq!(json["model"]["vocab"], expected);
    assert_eq!(json["model"]["unk_token"], "[UNK]");
    assert_eq!(json["normalizer"]["lowercase"], true);
    assert_eq!(json["normalizer"]["strip_accents"], Json::Null);
    let pair = json!([
        {"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}},
        {"SpecialToken": {"id": "[SEP]", "type_id": 1}},
    ]);
    assert_eq!(json["post_processor"]["pair"], pair);
    let plain = Keys::new("bert", "bert").tokens(&[("[UNK]", 3), ("he", 1), ("##llo", 1)]);
    assert_eq!(tokenizer(&plain)["model"]["vocab"], json!({"[UNK]": 0, "he": 1, "##llo": 2}));
}

#[test]
fn a_cased_word_piece_vocabulary_is_told_by_its_capitals() {
    let cased =
        Keys::new("bert", "bert").tokens(&[("[UNK]", 3), ("\u{2581}He", 1), ("\u{2581}[X]", 1)]);
    assert_eq!(tokenizer(&cased)["normalizer"]["lowercase"], false);
    let uncased =
        Keys::new("bert", "bert").tokens(&[("[UNK]", 3), ("\u{2581}he", 1), ("\u{2581}[X]", 1)]);
    assert_eq!(tokenizer(&uncased)["normalizer"]["lowercase"], true);
    let said = cased
        .with("tokenizer.ggml.normalizer.lowercase", Value::Bool(true))
        .with("tokenizer.ggml.normalizer.strip_accents", Value::Bool(false));
    let json = tokenizer(&said);
    assert_eq!(json["normalizer"]["lowercase"], true);
    assert_eq!(json["normalizer"]["strip_accents"], false);
}

#[test]
fn unigram_has_all_places_and_scores_that_are_numbers() {
    let scores = [0.0, 0.0, 0.0, -1.1, f32::NAN, f32::INFINITY, -7.5];
    let tokens = [
        ("<pad>", 3),
        ("</s>", 3),
        ("<unk>", 2),
        ("\u{2581}a", 1),
        ("b", 1),
        ("\u{2581}a", 1),
        ("[PAD6]", 5),
    ];
    let keys = Keys::new("t5", "t5").tokens(&tokens).with("tokenizer.ggml.scores", floats(&scores));
    let json = tokenizer(&keys);
    let exact = f64::from(-1.1f32);
    let expected = json!([
        ["<pad>", 0.0],
        ["</s>", 0.0],
        ["<unk>", 0.0],
        ["\u{2581}a", exact],
        ["b", -7.5],
        ["[REPEATED_5]", -7.5],
    ]);
    assert_eq!(json["model"]["vocab"], expected);
    assert_eq!(json["model"]["unk_id"], 2);
    assert_eq!(json["model"]["byte_fallback"], false);
    assert_eq!(json["pre_tokenizer"]["prepend_scheme"], "always");
    assert_eq!(json["normalizer"]["normalizers"].as_array().unwrap().len(), 2);
    assert_eq!(json["post_processor"]["pair"].as_array().unwrap().len(), 4);
}

#[test]
fn pairs_of_xlm_r_have_its_two_ends_in_the_middle() {
    let keys = t5()
        .with("tokenizer.ggml.bos_token_id", Value::U32(0))
        .with("tokenizer.ggml.add_bos_token", Value::Bool(true));
    let json = tokenizer(&keys);
    let names: Vec<&Json> =
        json["post_processor"]["pair"]
            .as_array()
            .unwrap()
            .iter()
            .map(|p| {
                if p["Sequence"].is_null() {
                    &p["SpecialToken"]["id"]
                } else {
                    &p["Sequence"]["id"]
                }
            })
            .collect();
    assert_eq!(names, ["<pad>", "A", "</s>", "</s>", "B", "</s>"]);
    // transformers would build another pair from the two flags.
    assert_eq!(made(&keys, File::TokenizerConfig)["add_bos_token"], Json::Null);
    assert_eq!(made(&t5(), File::TokenizerConfig)["add_eos_token"], true);
}

#[test]
fn sentinels_of_t5_are_found_under_padding() {
    let mut tokens: Vec<(String, i32)> = (0..32_100).map(|i| (format!("t{i}"), 1)).collect();
    for (i, token) in tokens.iter_mut().enumerate().skip(32_000) {
        *token = (format!("[PAD{i}]"), 5);
    }
    let json = tokenizer(&Keys::new("t5", "t5").tokens(&tokens));
    assert_eq!(json["model"]["vocab"][32_000][0], "<extra_id_99>");
    assert_eq!(json["model"]["vocab"][32_099][0], "<extra_id_0>");
    assert_eq!(json["added_tokens"].as_array().unwrap().len(), 100);
}

#[test]
fn odd_texts_keep_their_ids() {
    let long = vec![b'x'; 5000];
    let tokens: [(&[u8], i32); 7] = [
        (b"<unk>", 2),
        (b"", 1),
        (b"a", 1),
        (b"a", 1),
        (b"\xff\xfe", 1),
        (&long, 3),
        (b"\"\\\n", 1),
    ];
    let json = tokenizer(&Keys::new("llama", "llama").tokens(&tokens));
    let expected = json!({
        "<unk>": 0, "[EMPTY_1]": 1, "a": 2, "\u{fffd}\u{fffd}": 4, "[LONG_5]": 5, "\"\\\n": 6,
    });
    assert_eq!(json["model"]["vocab"], expected);
    assert_eq!(json["added_tokens"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_missing_or_of_the_wrong_form_is_said_and_nothing_is_promised() {
    no_files(
        &Keys::new("llama", "llama").without("tokenizer.ggml.model"),
        "no tokenizer.ggml.model",
    );
    no_files(&Keys::new("llama", "llama"), "no tokenizer.ggml.tokens");
    no_files(&Keys::new("llama", "none"), "no vocabulary");
    for word in ["rwkv", "plamo2", "hybriddna", "whitespace", "test", "bpe\n"] {
        no_files(&Keys::new("rwkv7", word), "is unsupported");
    }
    no_files(&gpt2().with("tokenizer.ggml.pre", text("kimi-k2")), "is unsupported");
    no_files(&gpt2().with("tokenizer.ggml.pre", Value::U32(1)), "is of type u32");
    no_files(&gpt2().without("tokenizer.ggml.merges"), "no tokenizer.ggml.merges");
    no_files(&gpt2().with("tokenizer.ggml.merges", text("a b")), "is of type str");
    no_files(&gpt2().with("tokenizer.ggml.merges", ints(&[1])), "array of i32, not of str");
    no_files(&llama().with("tokenizer.ggml.tokens", floats(&[1.0])), "array of f32, not of str");
    no_files(&llama().with("tokenizer.ggml.tokens", strings::<&str>(&[])), "is empty");
    no_files(
        &llama().with("tokenizer.ggml.scores", floats(&[1.0])),
        "has 1 elements where there are 12",
    );
    no_files(
        &llama().with("tokenizer.ggml.scores", strings(&["x"])),
        "array of str, not of numbers",
    );
    no_files(
        &llama().with("tokenizer.ggml.token_type", ints(&[1, 1])),
        "has 2 elements where there are 12",
    );
    no_files(&t5().without("tokenizer.ggml.scores"), "no tokenizer.ggml.scores");
    let keys = t5().with("tokenizer.ggml.precompiled_charsmap", ints(&[1]));
    no_files(&keys, "array of i32, not of u8");
}

#[test]
fn more_than_a_limit_is_refused_at_the_plan() {
    let many = |count| {
        Value::Array(Array::Span {
            elem: ValueType::Str,
            count,
            extent: crate::model::Extent { shard: 0, offset: 0, len: count * 8 },
            encoding: crate::model::Encoding { order: crate::model::ByteOrder::Little, wide: true },
        })
    };
    let keys = Keys::new("llama", "llama").with("tokenizer.ggml.tokens", many((1 << 20) + 1));
    no_files(&keys, "has 1048577 elements, over the limit of 1048576");
    let long = Value::Array(Array::Inline {
        elem: ValueType::Str,
        items: vec![text(&"x".repeat(33 << 20))],
    });
    no_files(
        &Keys::new("llama", "llama").with("tokenizer.ggml.tokens", long),
        "bytes, over the limit",
    );
    no_files(
        &gpt2().with("tokenizer.ggml.merges", many((4 << 20) + 1)),
        "over the limit of 4194304",
    );
}

#[test]
fn what_is_not_certain_is_said() {
    let warned = |keys: Keys, what: &str| {
        let planned = planned(&keys);
        assert!(planned.files.contains(&File::Tokenizer));
        assert_eq!(planned.warnings.len(), 1, "{:?}", planned.warnings);
        assert!(planned.warnings[0].contains(what), "{:?}", planned.warnings);
    };
    warned(llama().without("tokenizer.ggml.scores"), "scores is missing");
    warned(gpt2().without("tokenizer.ggml.pre"), "there is no tokenizer.ggml.pre");
    warned(gpt2().with("tokenizer.ggml.pre", text("new-one")), "\"new-one\"");
    warned(gpt2().with("tokenizer.ggml.pre", text("youtu")), "not certain");
    assert_eq!(planned(&gpt2()).warnings, Vec::<String>::new());
}

#[test]
fn ids_that_no_token_has_are_none() {
    let keys = llama()
        .with("tokenizer.ggml.bos_token_id", Value::U32(12))
        .with("tokenizer.ggml.eos_token_id", Value::I32(-1))
        .with("tokenizer.ggml.unknown_token_id", text("x"))
        .with("tokenizer.ggml.padding_token_id", Value::U64(u64::MAX))
        .with("tokenizer.ggml.eot_token_id", Value::U32(99));
    let json = tokenizer(&keys);
    assert_eq!(json["post_processor"], Json::Null);
    assert_eq!(json["model"]["unk_token"], Json::Null);
    assert_eq!(made(&keys, File::SpecialTokensMap), json!({}));
    assert_eq!(made(&keys, File::GenerationConfig), json!({}));
    assert_eq!(made(&keys, File::TokenizerConfig)["add_bos_token"], false);
    // Without a key llama.cpp's defaults hold, as far as there are such tokens.
    let short = Keys::new("llama", "llama").tokens(&[("<unk>", 2), ("<s>", 3)]);
    assert_eq!(
        made(&short, File::SpecialTokensMap),
        json!({"bos_token": "<s>", "unk_token": "<unk>"})
    );
}

#[test]
fn the_settings_are_these() {
    let keys = llama()
        .with("llama.context_length", Value::U32(4096))
        .with("tokenizer.ggml.padding_token_id", Value::U32(0))
        .with("tokenizer.chat_template", text("{{ x }}\n"));
    let text = String::from_utf8(bytes(&keys, File::TokenizerConfig)).unwrap();
    let expected = concat!(
        r#"{"bos_token":"<s>","eos_token":"</s>","unk_token":"<unk>","pad_token":"<unk>","#,
        r#""tokenizer_class":"PreTrainedTokenizerFast","add_bos_token":true,"add_eos_token":false,"#,
        r#""clean_up_tokenization_spaces":false,"model_max_length":4096,"#,
        r#""model_input_names":["input_ids","attention_mask"],"chat_template":"{{ x }}\n"}"#,
    );
    assert_eq!(text, expected);
    let json = made(&bert(), File::TokenizerConfig);
    assert_eq!(json["clean_up_tokenization_spaces"], true);
    assert_eq!(json["model_input_names"], json!(["input_ids", "token_type_ids", "attention_mask"]));
    assert_eq!((&json["cls_token"], &json["sep_token"]), (&json!("[CLS]"), &json!("[SEP]")));
    assert_eq!(json["add_bos_token"], Json::Null);
}

#[test]
fn tokens_that_transformers_would_take_apart_are_not_left_to_it() {
    for name in ["<s >", "<s:>", "$s"] {
        let keys = Keys::new("llama", "llama").tokens(&[("<unk>", 2), (name, 3), ("</s>", 3)]);
        assert_eq!(made(&keys, File::TokenizerConfig)["add_bos_token"], Json::Null, "{name}");
        assert_eq!(tokenizer(&keys)["post_processor"]["single"][0]["SpecialToken"]["id"], name);
    }
}

#[test]
fn chat_templates_are_all_there() {
    let keys = llama()
        .with("tokenizer.chat_template", text("main"))
        .with("tokenizer.chat_template.tool_use", text("tool"))
        .with("tokenizer.chat_template.", text("no name"))
        .with("tokenizer.chat_template.bad", Value::U32(1));
    let planned = planned(&keys);
    let named: Vec<File> =
        planned.files.iter().copied().filter(|f| matches!(f, File::NamedTemplate(_))).collect();
    assert_eq!(named.len(), 1);
    assert_eq!(bytes(&keys, named[0]), b"tool");
    assert_eq!(bytes(&keys, File::ChatTemplate), b"main");
    assert_eq!(planned.warnings.len(), 1);
    assert!(planned.warnings[0].contains("tokenizer.chat_template.bad"));
    let expected =
        json!([{"name": "default", "template": "main"}, {"name": "tool_use", "template": "tool"}]);
    assert_eq!(made(&keys, File::TokenizerConfig)["chat_template"], expected);
    let none = llama();
    assert!(!super::tests::planned(&none).files.contains(&File::ChatTemplate));
    assert_eq!(made(&none, File::TokenizerConfig).get("chat_template"), None);
    assert!(none.look(|meta| write(meta, File::ChatTemplate)).is_err());
}

#[test]
fn generation_ends_at_every_end_of_turn() {
    let tokens = [
        ("<unk>", 2),
        ("<s>", 3),
        ("</s>", 3),
        ("<|eot_id|>", 3),
        ("<|end|>", 3),
        ("<|im_end|>", 1),
        ("x", 1),
    ];
    let keys = Keys::new("llama", "llama")
        .tokens(&tokens)
        .with("tokenizer.ggml.eom_token_id", Value::U32(6))
        .with("general.sampling.temp", Value::F32(0.7))
        .with("general.sampling.top_k", Value::I32(40))
        .with("general.sampling.top_p", Value::F32(f32::NAN));
    let text = String::from_utf8(bytes(&keys, File::GenerationConfig)).unwrap();
    let expected = r#"{"bos_token_id":1,"eos_token_id":[2,6,3,4],"temperature":0.7,"top_k":40,"do_sample":true}"#;
    assert_eq!(text, expected);
    let harmony = [("<unk>", 2), ("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)];
    let keys = Keys::new("gpt-oss", "llama").tokens(&harmony);
    assert_eq!(made(&keys, File::GenerationConfig)["eos_token_id"], 2);
    let keys = t5().with("t5.decoder_start_token_id", Value::U32(0));
    assert_eq!(
        made(&keys, File::GenerationConfig),
        json!({"eos_token_id": 1, "decoder_start_token_id": 0})
    );
}

#[test]
fn generation_needs_no_vocabulary() {
    let keys = Keys::new("x", "rwkv").with("tokenizer.ggml.eos_token_id", Value::U32(7));
    assert_eq!(made(&keys, File::GenerationConfig), json!({"eos_token_id": 7}));
}

#[test]
fn a_ready_tokenizer_is_served_as_it_is() {
    let ready = "{ \"model\" : {} }\n";
    for keys in [llama(), Keys::new("x", "rwkv")] {
        let keys = keys.with("tokenizer.huggingface.json", text(ready));
        assert!(planned(&keys).files.contains(&File::Tokenizer));
        assert_eq!(planned(&keys).warnings, Vec::<String>::new());
        assert_eq!(bytes(&keys, File::Tokenizer), ready.as_bytes());
        assert_eq!(made(&keys, File::TokenizerConfig)["add_bos_token"], Json::Null);
    }
    for broken in ["{", "{}", "[]", "[1]", "[{\"model\": {}}]", "{\"model\": 1} x", "null"] {
        let keys = llama().with("tokenizer.huggingface.json", text(broken));
        assert_eq!(tokenizer(&keys), tokenizer(&llama()), "{broken}");
        let hopeless = Keys::new("x", "rwkv").with("tokenizer.huggingface.json", text(broken));
        assert!(hopeless.look(|meta| write(meta, File::Tokenizer)).is_err());
        assert_eq!(planned(&hopeless).files, [File::GenerationConfig], "{broken}");
        assert!(planned(&hopeless).warnings[0].contains("hf/ has no tokenizer files"));
    }
}

#[test]
fn some_tokens_take_the_blanks_beside_them_along() {
    let side =
        |keys: &Keys, id: usize, side: &str| tokenizer(keys)["added_tokens"][id][side] == true;
    let phi = Keys::new("phi3", "llama")
        .tokens(&[("<unk>", 2), ("<s>", 3), ("<|user|>", 3), ("<x>", 4)])
        .named("Phi-3 mini");
    assert_eq!([0, 1, 2, 3].map(|i| side(&phi, i, "rstrip")), [false, false, true, false]);
    let mask = gpt2()
        .tokens(&[("<mask>", 3), ("[MASK]", 3)])
        .with("tokenizer.ggml.merges", strings::<&str>(&[]));
    let jina = mask.clone().with("tokenizer.ggml.pre", text("jina-v2-code"));
    assert_eq!([0, 1].map(|i| side(&jina, i, "lstrip")), [true, false]);
    let modern = mask.with("tokenizer.ggml.pre", text("modern-bert"));
    assert_eq!([0, 1].map(|i| side(&modern, i, "lstrip")), [false, true]);
}

#[test]
fn a_vocabulary_built_to_grow_stops_at_a_limit() {
    // Every beginning is a token: 4,000 letters of vocabulary, 5 GB of merges.
    let tokens: Vec<(String, i32)> = (1..3500).map(|n| ("a".repeat(n), 1)).collect();
    let keys = Keys::new("llama", "llama").tokens(&tokens);
    let error = keys.look(|meta| write(meta, File::Tokenizer)).unwrap_err();
    assert!(error.to_string().contains("limit"), "{error}");
}
