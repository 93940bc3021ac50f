"""Small tokenizers trained by the reference packages, written as a GGUF's metadata the way
llama.cpp's converter does it; and SentencePiece models put together from such metadata."""

import io
import struct
from dataclasses import dataclass

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from gguf_file import VALUE_TYPES, Gguf
from tokenizer_corpus import training_text

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
BLANK = "\u2581"


@dataclass
class Vocabulary:
    model: str
    tokens: list
    types: list
    scores: list | None = None
    merges: list | None = None
    keys: tuple = ()  # (name under tokenizer.ggml, kind, value)
    architecture: str = "llama"
    extra: tuple = ()  # (key, kind, value)

    def gguf(self):
        gguf = Gguf()
        gguf.key("general.architecture", "str", self.architecture)
        gguf.key(f"{self.architecture}.context_length", "u32", 2048)
        gguf.key("tokenizer.ggml.model", "str", self.model)
        gguf.key("tokenizer.ggml.tokens", "arr:str", self.tokens)
        if self.scores is not None:
            gguf.key("tokenizer.ggml.scores", "arr:f32", self.scores)
        if self.types is not None:
            gguf.key("tokenizer.ggml.token_type", "arr:i32", self.types)
        if self.merges is not None:
            gguf.key("tokenizer.ggml.merges", "arr:str", self.merges)
        for name, kind, value in self.keys:
            gguf.key(f"tokenizer.ggml.{name}", kind, value)
        for key, kind, value in self.extra:
            gguf.key(key, kind, value)
        return gguf.tensor("token_embd.weight", "F32", (8, 4))

    def write(self, path):
        return self.gguf().write(path)


def metadata(path):
    """The metadata of a little-endian GGUF of version 3; the gguf package takes half a minute for a large vocabulary."""
    with open(path, "rb") as file:

        def number(code):
            return struct.unpack("<" + code, file.read(struct.calcsize(code)))[0]

        def value(kind):
            if kind == 8:
                return file.read(number("Q")).decode()
            if kind != 9:
                return number(CODES[kind])
            kind, count = number("I"), number("Q")
            if kind in CODES:
                return struct.unpack(f"<{count}{CODES[kind]}", file.read(count * struct.calcsize(CODES[kind])))
            return [value(kind) for _ in range(count)]

        assert (file.read(4), number("I")) == (b"GGUF", 3)
        _, count = number("Q"), number("Q")
        return {file.read(number("Q")).decode(): value(number("I")) for _ in range(count)}


CODES = {number: code for number, code in VALUE_TYPES.values() if code}


# --- protocol buffers, as far as SentencePiece's model file needs them -----------------------
def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, value):
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3) + varint(int(value))


def fields(blob):
    """(number, value) of a message; nested messages stay bytes."""
    at = 0

    def number():
        nonlocal at
        n = shift = 0
        while True:
            byte = blob[at]
            at += 1
            n |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return n

    while at < len(blob):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
        elif tag & 7 == 2:
            size = number()
            yield tag >> 3, blob[at : at + size]
            at += size
        else:
            size = {1: 8, 5: 4}[tag & 7]
            yield tag >> 3, blob[at : at + size]
            at += size


def processor(tokens, scores, types, kind="bpe", prefix=True, charsmap=b"", trim=False):
    """SentencePiece itself, over the arrays of a GGUF."""
    pieces = []
    for token, score, type_ in zip(tokens, scores, types, strict=True):
        text = token.replace(" ", BLANK) if type_ == USER_DEFINED else token
        pieces.append(field(1, field(1, text.encode()) + field(2, float(score)) + field(3, type_)))
    trainer = field(3, {"unigram": 1, "bpe": 2}[kind]) + field(35, any(t == BYTE for t in types))
    normalizer = field(1, b"made") + field(2, charsmap) + field(3, prefix) + field(4, trim) + field(5, True)
    model = sentencepiece.SentencePieceProcessor()
    model.LoadFromSerializedProto(b"".join(pieces) + field(2, trainer) + field(3, normalizer))
    return model


def train_sentencepiece(kind, size=1500, **options):
    """A trained model and its charsmap."""
    settings = dict(model_type=kind, vocab_size=size, character_coverage=1.0, num_threads=1, minloglevel=2, hard_vocab_limit=False) | options
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(training_text()), model_writer=out, **settings)
    model = sentencepiece.SentencePieceProcessor()
    model.LoadFromSerializedProto(out.getvalue())
    normalizer = dict(fields(dict(fields(out.getvalue()))[3]))
    return model, normalizer.get(2, b"")


def from_sentencepiece(model, kind, user_defined=(), **more):
    """What the converter writes for a SentencePiece model."""
    ids = range(model.get_piece_size())
    tokens = [model.id_to_piece(i) for i in ids]

    def type_of(i):
        if model.is_unknown(i):
            return UNKNOWN
        if model.is_control(i):
            return CONTROL
        if model.is_byte(i):
            return BYTE
        if model.is_unused(i):
            return UNUSED
        return USER_DEFINED if tokens[i] in user_defined else NORMAL

    types = [type_of(i) for i in ids]
    tokens = [t.replace(BLANK, " ") if kind == USER_DEFINED else t for t, kind in zip(tokens, types)]
    return Vocabulary(kind, tokens, types, [model.get_score(i) for i in ids], **more)


# --- byte-level BPE ---------------------------------------------------------------------------
CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def split(*expressions):
    steps = [pre_tokenizers.Split(tokenizers.Regex(e), "isolated") for e in expressions]
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def gpt2_words():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"

# Each: the pre-tokenizer as published, whether NFC comes first, and whether whole words are taken as they are.
PRE = {
    "gpt-2": (gpt2_words(), False, False),
    "starcoder": (pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), gpt2_words()]), False, False),
    "qwen2": (split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL), True, False),
    "llama-bpe": (split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + TAIL), False, True),
    "gpt-4o": (
        split(
            rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{CONTRACTIONS}?"
            rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}"
        ),
        False,
        False,
    ),
    "tekken": (
        split(rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{TAIL}"),
        False,
        True,
    ),
    "deepseek-v3": (
        split(
            r"\p{N}{1,3}",
            "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
            r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL,
        ),
        False,
        False,
    ),
    "falcon": (
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Punctuation("contiguous"),
                gpt2_words(),
                pre_tokenizers.Digits(individual_digits=False),
                pre_tokenizers.Split(tokenizers.Regex("[0-9][0-9][0-9]"), "isolated"),
            ]
        ),
        False,
        False,
    ),
}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
USER = ["<think>", "    ", "\t\t"]


def train_byte_level(pre, size=1600):
    """A trained tokenizer with special and user-defined tokens at the end."""
    words, composes, whole = PRE[pre]
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=whole))
    tokenizer.pre_tokenizer = words
    tokenizer.decoder = decoders.ByteLevel()
    if composes:
        tokenizer.normalizer = normalizers.NFC()
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(training_text(), trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in USER])
    return tokenizer


def from_byte_level(tokenizer, pre, padding=5, **more):
    """What the converter writes for it: a vocabulary by id, filled up to the embedding's size."""
    import json

    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    count = len(vocabulary) + padding
    names = {number: text for text, number in vocabulary.items()}
    tokens, types = [], []
    for i in range(count):
        text = names.get(i)
        tokens.append(f"[PAD{i}]" if text is None else text)
        types.append(UNUSED if text is None else CONTROL if text in SPECIAL else USER_DEFINED if text in USER else NORMAL)
    merges = [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]
    end = vocabulary[SPECIAL[0]]
    keys = (("pre", "str", pre), ("eos_token_id", "u32", end), ("bos_token_id", "u32", end), *more.pop("keys", ()))
    return Vocabulary("gpt2", tokens, types, merges=merges, keys=keys, **more)


# --- WordPiece --------------------------------------------------------------------------------
def from_word_piece(tokenizer, **more):
    """What the converter writes for BERT: phantom spaces instead of ##."""
    import json

    special = {token["content"] for token in json.loads(tokenizer.to_str())["added_tokens"] if token["special"]}
    vocabulary = tokenizer.get_vocab()
    tokens, types = [None] * len(vocabulary), [NORMAL] * len(vocabulary)
    for text, number in vocabulary.items():
        if text in special:
            tokens[number], types[number] = text, CONTROL
        elif text.startswith("##"):
            tokens[number] = text[2:]
        else:
            tokens[number] = BLANK + text
    roles = {"unknown": "[UNK]", "seperator": "[SEP]", "padding": "[PAD]", "cls": "[CLS]", "mask": "[MASK]"}
    keys = tuple((f"{role}_token_id", "u32", vocabulary[text]) for role, text in roles.items())
    return Vocabulary("bert", tokens, types, keys=keys, architecture="bert", **more)
