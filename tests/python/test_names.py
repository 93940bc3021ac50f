"""From a tensor's name to its file's name, and that no two meet."""

import hashlib
import json
import os

import pytest

import gguf_file
import safetensors_file
from gguf_file import Gguf
from mounting import shell

SUFFIX = len(".json")


def encoded(name, suffix=SUFFIX):
    """The rule of the tree, written again: bytes of a name to the stem of its file."""
    pieces = []
    for character in name.decode("utf-8", "surrogateescape"):
        raw = character.encode("utf-8", "surrogateescape")
        odd = "\udc80" <= character <= "\udcff" or raw in (b"/", b"%", b"\x7f") or raw < b" "
        pieces.append(b"".join(b"%%%02X" % byte for byte in raw) if odd else raw)
    if odd_pieces := [p for p in pieces if p.startswith(b"%") and len(p) > 3]:
        raise AssertionError(f"an escape is one byte: {odd_pieces}")
    stem = b"".join(pieces) or b"%"
    if len(stem) + suffix <= 255:
        return stem
    cut = b""
    for piece in pieces:
        if len(cut) + len(piece) > 233:
            break
        cut += piece
    return cut + b"~" + hashlib.sha256(name).hexdigest()[:16].encode()


NAMES = [
    b"plain.weight",
    b"",
    b".",
    b"..",
    b"...",
    b".hidden",
    b"a/b",
    b"/abs",
    b"../../x",
    b"a%b",
    b"a%2Fb",
    b"%",
    b"%%",
    b"100% sure/or not",
    b"new\nline",
    b"tab\t",
    b"nul\0inside",
    b"\x01\x1f\x7f",
    b"back\\slash",
    b" leading and trailing ",
    b"-rf",
    b"quote'\"`$x",
    b"*?[a]",
    b"a:b",
    b"~",
    "caf\u00e9".encode(),  # composed
    "cafe\u0301".encode(),  # the same to the eye: no normalisation
    "\N{LLAMA}\N{SPARKLES}.weight".encode(),
    "\u6f22\u5b57".encode(),
    "\u0085\u009f".encode(),  # C1 controls are not in the rule's list
    "\u202ertl".encode(),
    "\ufeffbom".encode(),
    b"UPPER",
    b"upper",
    b"x.bin",
    b"x",
    b"x.json",
    b"x.npy",
]
INVALID = [b"\xff", b"a\x80b", b"\xc0\xaf", b"\xe2\x82", b"\xe2\x82A", b"\xed\xa0\x80", b"\xf0\x9f\xa6", b"\xf4\x90\x80\x80", b"ok\xff/\xfe%"]
LONG = [
    b"a" * 250,
    b"b" * 251,
    b"c" * 255,
    b"d" * 256,
    b"e" * 5000,
    b"f" * 64,
    b"g" * 250 + b"/",
    b"/" * 83 + b"h",  # 250 bytes once escaped
    b"/" * 84,  # 252
    b"i" * 232 + b"/" * 20,  # the cut would fall into an escape
    b"j" * 230 + "\N{LLAMA}".encode() * 10,  # and here into a character
    b"k" * 231 + b"\xff" * 20,
    b"l" * 300 + b"1",
    b"l" * 300 + b"2",  # the same prefix, another hash
]


def model_of(names):
    model = Gguf()
    for number, name in enumerate(names):
        model.tensor(name, "I32", (1,), number.to_bytes(4, "little"))
    return model


def test_the_rule_itself():
    assert encoded(b"a/b") == b"a%2Fb"
    assert encoded(b"") == b"%"
    assert encoded(b"\xff\n") == b"%FF%0A"
    assert len(encoded(b"b" * 251)) == 250
    assert encoded(b"i" * 232 + b"/" * 20).startswith(b"i" * 232 + b"~")
    assert len({encoded(name) for name in NAMES + INVALID + LONG}) == len(NAMES + INVALID + LONG)


@pytest.fixture(scope="module")
def odd(tmp_path_factory, shared_mount):
    return shared_mount(model_of(NAMES + INVALID + LONG).write(tmp_path_factory.mktemp("model") / "odd.gguf"))


@pytest.mark.parametrize("number", range(len(NAMES + INVALID + LONG)))
def test_a_gguf_name(odd, number):
    name = (NAMES + INVALID + LONG)[number]
    path = os.fsencode(odd / "tensors") + b"/" + encoded(name)
    with open(path + b".bin", "rb") as file:
        assert file.read() == number.to_bytes(4, "little")
    with open(path + b".json", "rb") as file:
        about = json.load(file)
    assert about["name"] == about["source_name"]
    lossy = "".join("\ufffd" if "\udc80" <= c <= "\udcff" else c for c in name.decode("utf-8", "surrogateescape"))
    assert about["name"] == lossy
    assert about["files"]["stored"] == "tensors/" + (encoded(name) + b".bin").decode()
    assert os.path.exists(path + b".npy")


def test_the_listing_is_these_files_and_no_others(odd):
    listed = os.listdir(os.fsencode(odd / "tensors"))
    wanted = [encoded(name) + suffix for name in NAMES + INVALID + LONG for suffix in (b".bin", b".json", b".npy")]
    assert sorted(listed) == sorted(wanted)
    assert max(map(len, listed)) <= 255


def test_find_and_cat_take_every_name(odd):
    done = shell('find "$1" -name "*.bin" -print0 | xargs -0 cat | wc -c', odd / "tensors")
    assert int(done.text) == 4 * len(NAMES + INVALID + LONG)


def test_other_spellings_of_a_name_do_not_exist(odd):
    for name in (b"a%2fb", b"PLAIN.weight", b"a%252fb", b"%2E", b"%00", b""):
        assert not os.path.lexists(os.fsencode(odd / "tensors") + b"/" + name + b".bin"), name


@pytest.fixture(scope="module")
def odd_safetensors(tmp_path_factory, shared_mount):
    model = safetensors_file.Safetensors()
    for number, name in enumerate(NAMES):
        model.tensor(name.decode(), "I32", (1,), number.to_bytes(4, "little"))
    return shared_mount(model.write(tmp_path_factory.mktemp("model") / "odd.safetensors"))


def test_safetensors_names_follow_the_same_rule(odd_safetensors):
    for number, name in enumerate(NAMES):
        with open(os.fsencode(odd_safetensors / "tensors") + b"/" + encoded(name) + b".bin", "rb") as file:
            assert file.read() == number.to_bytes(4, "little"), name


def test_a_long_name_that_meets_a_real_one_refuses_the_mount(mount, tmp_path):
    long = b"n" * 300
    said = mount.refused(model_of([long, encoded(long)]).write(tmp_path / "m.gguf"))
    assert "n" * 100 in said and encoded(long).decode()[-17:] in said


def test_long_metadata_keys_and_dots(mount, tmp_path):
    model = Gguf().tensor("a", "F32", (1,))
    for key in (b".", b"..", b"k" * 300, b"a/b", b"\xff"):
        model.key(key, "str", key)
    mounted = mount(model.write(tmp_path / "m.gguf"))
    folder = os.fsencode(mounted / "metadata") + b"/"
    wanted = {b".": b"%2E", b"..": b"%2E%2E", b"k" * 300: encoded(b"k" * 300), b"a/b": b"a%2Fb", b"\xff": b"%FF"}
    assert sorted(os.listdir(folder)) == sorted(wanted.values())
    for key, name in wanted.items():
        with open(folder + name, "rb") as file:
            assert file.read() == key


@pytest.mark.parametrize("name", ["100%.gguf", "two words \N{LLAMA}.gguf", "line\nbreak.gguf", "%" * 80 + ".gguf"])
def test_the_name_of_the_source_file(mount, tmp_path, name):
    model = gguf_file.plain()
    mounted = mount(model.write(tmp_path / name))
    listed = os.listdir(os.fsencode(mounted / "source"))
    assert listed == [encoded(os.fsencode(name), suffix=0)]
    assert mounted.model["sources"][0]["file"] == name
    assert (mounted / "source" / os.fsdecode(listed[0])).read_bytes() == model.encode()


def test_a_source_name_that_is_no_utf8(mount, tmp_path):
    path = os.fsencode(tmp_path) + b"/m\xff.gguf"
    with open(path, "wb") as file:
        file.write(gguf_file.plain().encode())
    mounted = mount(path)
    assert os.listdir(mounted / "source") == ["m%FF.gguf"]
