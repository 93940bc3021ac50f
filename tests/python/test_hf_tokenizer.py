"""hf/'s tokenizer files: ids as the model's own tokenizer gives them.

Expected ids come from the other side, never from the files under test: SentencePiece, a
trained tokenizer before its conversion, the published tokenizer.json, and for Gemma
SentencePiece over the arrays of the GGUF.
"""

import json
import os
import unicodedata

import pytest

os.environ["HF_HUB_OFFLINE"] = "1"
import tokenizers  # noqa: E402
import transformers  # noqa: E402

import tokenizer_models as models  # noqa: E402
from gguf_file import CHAT_TEMPLATE  # noqa: E402
from tokenizer_corpus import CORPUS  # noqa: E402
from tokenizer_models import BLANK, BYTE, CONTROL, NORMAL, PRE, UNKNOWN, UNUSED, USER_DEFINED, Vocabulary  # noqa: E402

WITH_SPECIAL = ["{0}hello{1}", "a {0} b", "{0}{1}", "x{0}\n\n{1} y", "  {0}  ", "{0}"]


class Served:
    """The files of hf/, as a mount has them."""

    def __init__(self, mounted):
        self.directory = mounted / "hf"
        self.warnings = mounted.model["warnings"]

    def json(self, name):
        text = (self.directory / name).read_text()
        assert "\n" not in text and ": " not in text.replace("\\n", "")[:20]
        return json.loads(text)

    @property
    def tokenizer(self):
        return tokenizers.Tokenizer.from_file(str(self.directory / "tokenizer.json"))

    def __getattr__(self, name):
        return getattr(self.directory, name)


@pytest.fixture
def serve(mount, tmp_path):
    def serve(vocabulary, *options):
        return Served(mount(vocabulary.write(tmp_path / "model.gguf"), "map=hf", *options))

    return serve


@pytest.fixture(scope="module")
def serve_shared(shared_mount, tmp_path_factory):
    def serve(vocabulary, *options):
        return Served(shared_mount(vocabulary.write(tmp_path_factory.mktemp("vocabulary") / "model.gguf"), "map=hf", *options))

    return serve


def ids_of(tokenizer, text):
    return tokenizer.encode(text, add_special_tokens=False).ids


def differing(tokenizer, expected, texts=CORPUS):
    return [text for text in texts if ids_of(tokenizer, text) != expected(text)]


def auto(served, tmp_path, model_type):
    """transformers on the directory; config.json is another's work, and enough here is its model_type."""
    home = tmp_path / "auto"
    home.mkdir(exist_ok=True)
    for path in served.directory.iterdir():
        if path.name != "model.safetensors" and not (home / path.name).exists():
            (home / path.name).symlink_to(path)
    if not (home / "config.json").exists():
        (home / "config.json").write_text(json.dumps({"model_type": model_type}))
    return transformers.AutoTokenizer.from_pretrained(home)


# --- SentencePiece BPE ------------------------------------------------------------------------
SPM = {
    "llama": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False),
    "no bytes": dict(byte_fallback=False, normalization_rule_name="identity", remove_extra_whitespaces=False),
    "no prefix": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False),
    "trimmed": dict(byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=True),
}


@pytest.mark.parametrize("name", SPM)
def test_sentencepiece_bpe_gives_its_ids_and_texts(serve, name):
    options = SPM[name]
    model, _ = models.train_sentencepiece("bpe", **options)
    flags = (
        ("add_space_prefix", "bool", options.get("add_dummy_prefix", True)),
        ("remove_extra_whitespaces", "bool", options["remove_extra_whitespaces"]),
    )
    tokenizer = serve(models.from_sentencepiece(model, "llama", keys=flags)).tokenizer
    assert differing(tokenizer, model.encode) == []
    known = [t for t in CORPUS if 0 not in model.encode(t)]  # SentencePiece has a sign of its own for unknown ones
    assert len(known) > 100
    assert [t for t in known if tokenizer.decode(model.encode(t)) != model.decode(model.encode(t))] == []


def test_runs_of_spaces_as_user_defined_tokens_are_sentencepieces(serve):
    runs = [BLANK * n for n in range(2, 32)] + ["<tool>"]
    model, _ = models.train_sentencepiece(
        "bpe", byte_fallback=True, normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False, user_defined_symbols=runs
    )
    vocabulary = models.from_sentencepiece(model, "llama", user_defined=runs, keys=(("add_space_prefix", "bool", False),))
    assert "   " in vocabulary.tokens and vocabulary.types[vocabulary.tokens.index("   ")] == USER_DEFINED
    tokenizer = serve(vocabulary).tokenizer
    assert differing(tokenizer, model.encode, CORPUS + ["<tool>", "a<tool> b", " <tool>"]) == []


@pytest.mark.patience(120)
def test_gemma_gives_the_ids_of_sentencepiece(shared_mount, models, tmp_path):  # noqa: F811
    from tokenizer_models import metadata, processor

    source = models / "gemma-3-270m-q4_k_m.gguf"
    keys = metadata(source)
    tokens, types = ([*keys[f"tokenizer.ggml.{name}"]] for name in ("tokens", "token_type"))
    model = processor(tokens, keys["tokenizer.ggml.scores"], types, prefix=False)
    mounted = shared_mount(source, "map=hf", "seal=none")
    served = Served(mounted)
    tokenizer = served.tokenizer
    assert differing(tokenizer, model.encode) == []
    assert [t for t in CORPUS if tokenizer.decode(model.encode(t)) != t] == []
    assert tokenizer.encode("a<start_of_turn>user\nb").ids == [2, 236746, 105, 2364, 107, 236763]
    assert served.json("generation_config.json") == {"bos_token_id": 2, "eos_token_id": [1, 106], "pad_token_id": 0}
    assert json.loads((served.directory / "tokenizer.json").read_text())["model"]["vocab"] == {t: i for i, t in enumerate(tokens)}
    loaded = auto(served, tmp_path, "gemma3_text")
    assert [t for t in CORPUS if loaded(t).input_ids != tokenizer.encode(t).ids] == []
    assert (loaded.bos_token, loaded.eos_token, loaded.pad_token, loaded.unk_token) == ("<bos>", "<eos>", "<pad>", "<unk>")
    assert mounted.json(".weightfs/status.json")["rss_anon_bytes"] < 48 << 20


# --- byte-level BPE ---------------------------------------------------------------------------
@pytest.fixture(scope="module", params=PRE)
def byte_level(request, serve_shared):
    reference = models.train_byte_level(request.param)
    return request.param, reference, serve_shared(models.from_byte_level(reference, request.param))


def test_byte_level_bpe_gives_its_ids_and_texts(byte_level):
    _, reference, served = byte_level
    tokenizer = served.tokenizer
    texts = CORPUS + [t.format(*pair) for t in WITH_SPECIAL for pair in [models.SPECIAL[1:], models.USER[:2], (models.SPECIAL[0], models.USER[2])]]
    assert differing(tokenizer, lambda text: ids_of(reference, text), texts) == []
    for skip in (True, False):
        assert [t for t in texts if tokenizer.decode(ids_of(reference, t), skip) != reference.decode(ids_of(reference, t), skip)] == []
    assert tokenizer.get_vocab() == reference.get_vocab()


def test_byte_level_bpe_loads_in_transformers(byte_level, tmp_path):
    name, reference, served = byte_level
    if name == "qwen2":
        model_type = "qwen2"
    else:
        model_type = "llama"
    loaded = auto(served, tmp_path, model_type)
    first = [reference.token_to_id(models.SPECIAL[0])] if name in ("llama-bpe", "tekken") else []
    assert [t for t in CORPUS if loaded(t).input_ids != first + ids_of(reference, t)] == []


# One name for each way to cut words.
FAMILIES = (
    "gpt-2 starcoder command-r llama-bpe glm4 dbrx qwen2 stablelm2 qwen35 ufakzeka laguna gpt-4o granite-embed-multi-97m tiny_aya tekken jais-2 minicpm5 "
    "seed-coder bailingmoe exaone-moe bloom viking falcon deepseek-llm deepseek-coder deepseek-v3 spark2_5 afmoe youtu chameleon superbpe unheard-of"
).split()


@pytest.fixture(scope="module")
def letters():
    return models.from_byte_level(models.train_byte_level("gpt-2"), "gpt-2")


@pytest.mark.parametrize("name", FAMILIES)
def test_every_way_to_cut_words_loads_and_loses_nothing(serve, letters, name):
    served = serve(letters, f'set=tokenizer.ggml.pre="{name}"')
    tokenizer = served.tokenizer
    composes = tokenizer.normalizer is not None
    assert composes == (name in ("command-r", "qwen2", "qwen35"))
    texts = [(text, unicodedata.normalize("NFC", text) if composes else text) for text in CORPUS]
    assert [text for text, expected in texts if tokenizer.decode(ids_of(tokenizer, text)) != expected] == []
    assert any("token ids may differ" in warning for warning in served.warnings) == (name in ("spark2_5", "afmoe", "youtu", "unheard-of"))


# --- WordPiece, Unigram -----------------------------------------------------------------------
def test_word_piece_gives_the_ids_of_the_published_tokenizer(serve, models, tmp_path):  # noqa: F811
    import tokenizer_models

    reference = tokenizers.Tokenizer.from_file(str(models / "all-MiniLM-L6-v2/tokenizer.json"))
    reference.no_truncation()
    reference.no_padding()
    served = serve(tokenizer_models.from_word_piece(reference))
    tokenizer = served.tokenizer
    assert tokenizer.get_vocab() == reference.get_vocab()
    for text, other in zip(CORPUS, CORPUS[1:] + CORPUS[:1]):
        for inputs in [(text,), (text, other)]:
            found, expected = tokenizer.encode(*inputs), reference.encode(*inputs)
            assert (found.ids, found.type_ids) == (expected.ids, expected.type_ids), inputs
        assert tokenizer.decode(expected.ids) == reference.decode(expected.ids)
    loaded = auto(served, tmp_path, "bert")
    assert [t for t in CORPUS if loaded(t).input_ids != reference.encode(t).ids] == []


# What the library's parts do otherwise than SentencePiece: unknown bytes next to each other, a base letter
# and several marks at once, and runs whose best cut is a draw.
UNIGRAM_DIFFERS = {"\x80\x85\x9f", "e\u0301\u0302\u0303", "\u1112\u1161\u11ab", "x" * 300, "ab" * 150, "\u00e9" * 40}


@pytest.mark.parametrize("add_bos", [False, True])
def test_unigram_gives_the_ids_of_sentencepiece(serve, add_bos):
    model, charsmap = models.train_sentencepiece("unigram", normalization_rule_name="nmt_nfkc", pad_id=3)
    keys = (
        ("precompiled_charsmap", "arr:u8", charsmap),
        *((f"{role}_token_id", "u32", i) for role, i in [("unknown", 0), ("bos", 1), ("eos", 2), ("padding", 3)]),
        ("add_bos_token", "bool", add_bos),
    )
    tokenizer = serve(models.from_sentencepiece(model, "t5", keys=keys, architecture="bert")).tokenizer
    assert len(charsmap) > 200_000
    assert set(differing(tokenizer, model.encode)) <= UNIGRAM_DIFFERS
    assert tokenizer.decode(model.encode("Hello world 123")) == "Hello world 123"
    begin = [1] if add_bos else []
    a, b = model.encode("a b"), model.encode("c")
    assert tokenizer.encode("a b").ids == [*begin, *a, 2]
    assert tokenizer.encode("a b", "c").ids == ([1, *a, 2, 2, *b, 2] if add_bos else [*a, 2, *b, 2])


# --- hostile vocabularies: what is served loads ------------------------------------------------
def hostile(**change):
    tokens = ["<unk>", "<s>", "</s>", "a", "b", "ab", "", "", "ab", b"\xff\xfe", "x" * 100_000, "\x00\n\"\\", "\u2028"]
    base = dict(model="llama", tokens=tokens, types=[UNKNOWN, CONTROL, CONTROL] + [NORMAL] * 10, scores=[0.0] * 13)
    return Vocabulary(**(base | change))


HOSTILE = {
    "odd tokens": hostile(),
    "all special": hostile(types=[CONTROL] * 13),
    "all user-defined": hostile(types=[USER_DEFINED] * 13),
    "all unused": hostile(types=[UNUSED] * 13),
    "all bytes": hostile(types=[BYTE] * 13),
    "types without a meaning": hostile(types=[-1, 0, 7, 1 << 30, *[99] * 9]),
    "scores that are no numbers": hostile(scores=[float("nan"), float("inf"), -float("inf")] + [-0.0] * 10),
    "no types, no scores": hostile(types=None, scores=None),
    "ids out of range": hostile(keys=tuple((f"{r}_token_id", "i32", i) for r, i in [("bos", -1), ("eos", 13), ("unknown", 1 << 30), ("padding", 99)])),
    "ids of odd tokens": hostile(keys=tuple((f"{r}_token_id", "u32", i) for r, i in [("bos", 6), ("eos", 10), ("unknown", 8), ("padding", 9)]) + (("add_eos_token", "bool", True),)),
    "byte-level": hostile(model="gpt2", merges=["a b", "b a", "a zz", "x", "", " ", "  ", "a  b", "a b c", b"\xff b", "\n\n"]),
    "byte-level, no merges": hostile(model="gpt2", merges=[], types=[CONTROL] * 13),
    "word pieces": hostile(model="bert"),
    "word pieces, special": hostile(model="bert", types=[CONTROL] * 13),
    "unigram": hostile(model="t5"),
    "unigram, no numbers": hostile(model="t5", scores=[float("nan")] * 13),
    "unigram, huge scores": hostile(model="t5", scores=[3e38, -3e38] * 6 + [1e-45]),
    "unigram, bad map": hostile(model="t5", keys=(("precompiled_charsmap", "arr:u8", b"\x04\0\0\0\xff\xff\xff\x7fA\0"),)),
    "unigram, cut map": hostile(model="t5", keys=(("precompiled_charsmap", "arr:u8", b"\xff\xff\xff\xff"),)),
    "one token": Vocabulary("llama", ["x"], [NORMAL], [0.0]),
    "one word piece": Vocabulary("bert", ["x"], [NORMAL]),
    "one unigram": Vocabulary("t5", [""], [NORMAL], [0.0]),
    "placeholders that are there": hostile(tokens=["[EMPTY_1]", "", "[LONG_3]", "x" * 5000, "[REPEATED_5]", "[EMPTY_1]", "a", "a"], types=None, scores=None),
    "placeholders, unigram": hostile(model="t5", tokens=["[EMPTY_1]", "", "[LONG_3]", "x" * 5000, "[REPEATED_5]", "[EMPTY_1]", "a", "a"], types=None, scores=[0.0] * 8),
    "deep unigram": hostile(model="t5", tokens=["<pad>", "</s>", "<unk>", "y" * 4096, "z" * 4097], types=None, scores=[0.0] * 5),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_vocabulary_holds_the_library_loads_what_is_served(serve, name):
    served = serve(HOSTILE[name])
    tokenizer = served.tokenizer
    for text in CORPUS:
        try:
            ids = ids_of(tokenizer, text)
        except Exception as error:  # a vocabulary without its unknown token
            assert "unk" in str(error).lower(), name
        else:
            tokenizer.decode(ids)
    for file in ("tokenizer_config.json", "special_tokens_map.json", "generation_config.json"):
        served.json(file)


NO_FILES = {
    "no model": (Vocabulary("rwkv", ["a"], [1]), "rwkv"),
    "no tokens": (Vocabulary("llama", [], None), "empty"),
    "lengths": (Vocabulary("llama", ["a", "b"], [1], [0.0, 0.0]), "token_type has 1 elements where there are 2"),
    "kimi": (Vocabulary("gpt2", ["a"], [1], merges=["a a"], keys=(("pre", "str", "kimi-k2"),)), "kimi-k2"),
    "too many": (Vocabulary("llama", ["x"] * ((1 << 20) + 1), None), "over the limit"),
}


@pytest.mark.parametrize("name", NO_FILES)
def test_a_vocabulary_that_makes_no_tokenizer_is_named_in_a_warning(serve, name):
    vocabulary, said = NO_FILES[name]
    served = serve(vocabulary)
    assert any("no tokenizer files" in warning and said in warning for warning in served.warnings), served.warnings
    names = {path.name for path in served.directory.iterdir()}
    assert "generation_config.json" in names and not names & {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}


def test_a_million_tokens_cost_seconds_and_little_memory(mount, tmp_path):
    tokens = [f"t{i:x}" for i in range(1 << 20)]
    model = Vocabulary("llama", tokens, None, [-float(i) for i in range(1 << 20)]).write(tmp_path / "many.gguf")
    mounted = mount(model, "map=hf")
    size = (mounted / "hf/tokenizer.json").stat().st_size
    assert len((mounted / "hf/tokenizer.json").read_bytes()) == size
    assert mounted.json(".weightfs/status.json")["rss_anon_bytes"] < size + (64 << 20)


# --- templates, overrides ---------------------------------------------------------------------
def small(**more):
    return Vocabulary("llama", ["<unk>", "<s>", "</s>", BLANK, "a"], [UNKNOWN, CONTROL, CONTROL, NORMAL, NORMAL], [0.0, 0.0, 0.0, -1.0, -2.0], **more)


def test_chat_templates_are_in_both_places(serve, tmp_path):
    extra = (("tokenizer.chat_template", "str", CHAT_TEMPLATE), ("tokenizer.chat_template.tool_use", "str", "{{ tools }}"))
    served = serve(small(extra=extra))
    assert (served.directory / "chat_template.jinja").read_text() == CHAT_TEMPLATE
    assert (served.directory / "additional_chat_templates/tool_use.jinja").read_text() == "{{ tools }}"
    listed = [{"name": "default", "template": CHAT_TEMPLATE}, {"name": "tool_use", "template": "{{ tools }}"}]
    assert served.json("tokenizer_config.json")["chat_template"] == listed


def test_a_template_that_is_set_reaches_both_places(serve, tmp_path):
    (tmp_path / "new.jinja").write_text("{% set x = '\"' %}\n")
    served = serve(small(extra=(("tokenizer.chat_template", "str", "old"),)), f"set=tokenizer.chat_template=@{tmp_path}/new.jinja", "set=tokenizer.ggml.add_eos_token=true")
    assert (served.directory / "chat_template.jinja").read_text() == "{% set x = '\"' %}\n"
    assert served.json("tokenizer_config.json")["chat_template"] == "{% set x = '\"' %}\n"
    assert served.tokenizer.encode("a").ids == [1, 3, 4, 2]
    loaded = auto(served, tmp_path, "llama")
    assert loaded.chat_template == "{% set x = '\"' %}\n"
    assert loaded("a").input_ids == [1, 3, 4, 2]


def test_an_array_that_is_set_is_the_vocabulary(serve):
    served = serve(small(), 'set=tokenizer.ggml.tokens=["<unk>"\\,"<s>"\\,"</s>"\\,"\u2581"\\,"z"]')
    assert served.tokenizer.encode("z").ids == [1, 3, 4]


def test_a_ready_tokenizer_is_served_byte_for_byte(serve):
    ready = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0}, unk_token="x")).to_str(pretty=True)
    served = serve(small(extra=(("tokenizer.huggingface.json", "str", ready),)))
    assert (served.directory / "tokenizer.json").read_text() == ready


def test_two_mounts_give_the_same_bytes(serve, mount, tmp_path):
    extra = (("tokenizer.chat_template", "str", "x"),)
    model = small(extra=extra).write(tmp_path / "same.gguf")
    first, second = mount(model, "map=hf"), mount(model, "map=hf")
    names = sorted(path.name for path in (first / "hf").iterdir())
    assert names == sorted(path.name for path in (second / "hf").iterdir())
    for name in names:
        if (first / "hf" / name).is_file():
            assert (first / "hf" / name).read_bytes() == (second / "hf" / name).read_bytes()
            assert (first / "hf" / name).stat().st_size == len((first / "hf" / name).read_bytes())
