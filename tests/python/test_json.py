"""The JSON of a mount, and its metadata files."""

import json
import math
import os

import numpy as np
import pytest

import gguf_file
import safetensors_file
from gguf_file import CHAT_TEMPLATE, Gguf
from mounting import promptly

MODEL_KEYS = "format format_version byte_order architecture name tensor_count parameter_count nbytes dtypes sources map sealed trust verify weightfs warnings".split()
TENSOR_KEYS = "name source_name dtype shape nbytes elements block byte_order stored_byte_order source checksum files".split()
STATUS_KEYS = "mounted_at uptime_seconds verify trust state reads bytes_served chunks_checked mismatches retries healed source_changed breakers bad rss_bytes log".split()


def document(path):
    """The JSON in a file, after the rules that all of ours keep."""
    text = path.read_bytes().decode("utf-8")
    assert text.endswith("\n") and not text.endswith("\n\n")
    found = json.loads(text)
    if isinstance(found, dict) and found:
        assert text.startswith('{\n  "')
    return found


def in_order(found, keys):
    """Keys in the order given; more may stand between them."""
    assert [key for key in found if key in keys] == keys


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    model = gguf_file.plain()
    model.path = model.write(tmp_path_factory.mktemp("model") / "tiny.gguf")
    os.utime(model.path, ns=(1_600_000_000_000_000_000,) * 2)
    return model


@pytest.fixture(scope="module")
def tiny(source, shared_mount):
    return shared_mount(source.path)


def test_model_json(tiny, source):
    found = document(tiny / "model.json")
    in_order(found, MODEL_KEYS)
    assert found["format"] == "gguf"
    assert found["format_version"] == 3
    assert found["byte_order"] == "little"
    assert found["architecture"] == "llama"
    assert found["name"] == "tiny"
    assert found["tensor_count"] == 2
    assert found["parameter_count"] == 8 * 32 + 4 * 64
    assert found["nbytes"] == 1024 + 272
    assert found["dtypes"] == {"F32": {"tensors": 1, "nbytes": 1024}, "Q8_0": {"tensors": 1, "nbytes": 272}}
    assert len(found["sources"]) == 1
    in_order(found["sources"][0], ["file", "nbytes", "mtime", "sha256"])
    assert found["sources"][0]["file"] == "tiny.gguf"
    assert found["sources"][0]["nbytes"] == source.path.stat().st_size
    assert found["sources"][0]["sha256"] is None
    assert found["map"] == "none"
    assert found["sealed"] is False
    assert found["trust"] == "tofu"
    assert found["verify"] == "always"
    assert found["warnings"] == []
    version = tiny.weightfs.run("--version").text.split()[-1]
    assert found["weightfs"] == version


def test_tensor_json(tiny, source):
    found = document(tiny / "tensors/output.weight.json")
    in_order(found, TENSOR_KEYS)
    assert {key: found[key] for key in TENSOR_KEYS if key != "files"} == {
        "name": "output.weight",
        "source_name": "output.weight",
        "dtype": "Q8_0",
        "shape": [4, 64],
        "nbytes": 272,
        "elements": 256,
        "block": {"elements": 32, "bytes": 34},
        "byte_order": "little",
        "stored_byte_order": "little",
        "source": {"file": "tiny.gguf", "offset": source.place_of("output.weight")},
        "checksum": None,
    }
    assert found["files"]["stored"] == "tensors/output.weight.bin"
    assert found["files"]["npy"] == found["files"]["f32"].replace(".bin", ".npy")  # numpy has no such type


def test_tensor_json_of_an_unquantised_tensor(tiny):
    found = document(tiny / "tensors/token_embd.weight.json")
    assert found["block"] == {"elements": 1, "bytes": 4}
    assert found["shape"] == [8, 32]
    assert found["files"]["npy"] == "tensors/token_embd.weight.npy"
    for path in found["files"].values():
        assert (tiny / path).exists(), path


def test_status_json(tiny):
    found = document(tiny / ".weightfs/status.json")
    in_order(found, STATUS_KEYS)
    assert found["verify"] == "always" and found["trust"] == "tofu"
    assert (found["mismatches"], found["bad"], found["breakers"]) == (0, [], [])
    assert not found["source_changed"]
    assert found["log"] == str(tiny.log_path)
    assert 1 << 20 < found["rss_bytes"] < 1 << 28


def test_status_counts_what_is_served(tiny):
    before = tiny.status
    size = len(tiny.bin("token_embd.weight"))
    after = tiny.status
    assert after["bytes_served"] >= before["bytes_served"] + size
    assert after["reads"] > before["reads"]
    assert after["uptime_seconds"] >= before["uptime_seconds"]


def test_one_open_of_the_status_is_one_snapshot(tiny):
    with open(tiny / ".weightfs/status.json", "rb", buffering=0) as file:
        first = b"".join(iter(lambda: file.read(16), b""))
        tiny.bin("token_embd.weight")
        file.seek(0)
        assert b"".join(iter(lambda: file.read(4096), b"")) == first
    assert json.loads(first)


def test_the_status_command(tiny):
    found = tiny.weightfs.run("status", tiny.path, "--json").json()
    in_order(found, STATUS_KEYS)
    assert str(tiny.log_path) in tiny.weightfs.run("status", tiny.path).text


def test_chat_template_is_verbatim(tiny):  # C33
    assert (tiny / "metadata/tokenizer.chat_template").read_bytes() == CHAT_TEMPLATE.encode()


def test_metadata_names(tiny):
    assert sorted(os.listdir(tiny / "metadata")) == ["general.architecture", "general.name", "tokenizer.chat_template"]


@pytest.fixture(scope="module")
def rich(tmp_path_factory, shared_mount):
    model = Gguf()
    model.key("general.architecture", "str", "llama")
    for kind, value in NUMBERS.items():
        model.key(f"k.{kind}", kind, value)
    model.key("k.true", "bool", 1).key("k.odd_true", "bool", 2).key("k.false", "bool", 0)
    model.key("k.inf", "f32", math.inf).key("k.neg", "f64", -math.inf).key("k.nan", "f32", math.nan)
    model.key("k.empty", "arr:u32", []).key("k.no_words", "arr:str", [])
    model.key("k.sixty_four", "arr:i32", range(64)).key("k.sixty_five", "arr:i32", range(65))
    model.key("k.words", "arr:str", [f"word {n} \N{LLAMA}" for n in range(100)])
    model.key("k.floats", "arr:f32", [n / 3 for n in range(100)])
    model.key("k.flags", "arr:bool", [n % 2 for n in range(70)])
    model.key("k.bad_text", "str", b"a\xff\xfeb\xe2\x82c")
    model.key("k.empty_text", "str", "")
    model.key("k.lines", "str", "one\ntwo\n")
    model.key("tokenizer.chat_template.tool use", "str", CHAT_TEMPLATE)
    model.key("sl/ash", "u32", 7)
    model.tensor("a", "F32", (4,))
    return shared_mount(model.write(tmp_path_factory.mktemp("model") / "rich.gguf"))


NUMBERS = {
    "u8": 255,
    "i8": -128,
    "u16": 65535,
    "i16": -32768,
    "u32": 2**32 - 1,
    "i32": -(2**31),
    "u64": 2**64 - 1,
    "i64": -(2**63),
    "f32": 0.1,
    "f64": 0.1,
}


def test_numbers_are_exact(rich):
    found = document(rich / "metadata.json")
    for kind, value in NUMBERS.items():
        if kind == "f32":
            assert np.float32(found["k.f32"]) == np.float32(value)
        else:
            assert found[f"k.{kind}"] == value and type(found[f"k.{kind}"]) is type(value), kind
        assert document(rich / f"metadata/k.{kind}.json") == found[f"k.{kind}"]


def test_bools(rich):
    found = document(rich / "metadata.json")
    assert (found["k.true"], found["k.odd_true"], found["k.false"]) == (True, True, False)


def test_numbers_that_json_has_not_are_strings(rich):
    found = document(rich / "metadata.json")
    assert (found["k.inf"], found["k.neg"], found["k.nan"]) == ("Infinity", "-Infinity", "NaN")
    assert document(rich / "metadata/k.nan.json") == "NaN"


def test_arrays_up_to_64_elements_are_shown_and_longer_ones_named(rich):
    found = document(rich / "metadata.json")
    assert found["k.empty"] == [] and found["k.no_words"] == []
    assert found["k.sixty_four"] == list(range(64))
    assert found["k.sixty_five"] == {"array": "i32", "length": 65, "file": "metadata/k.sixty_five.json"}
    assert found["k.words"] == {"array": "str", "length": 100, "file": "metadata/k.words.json"}
    assert found["k.flags"] == {"array": "bool", "length": 70, "file": "metadata/k.flags.json"}


def test_arrays_are_whole_in_their_files(rich):
    assert document(rich / "metadata/k.sixty_five.json") == list(range(65))
    assert document(rich / "metadata/k.words.json") == [f"word {n} \N{LLAMA}" for n in range(100)]
    assert document(rich / "metadata/k.empty.json") == []
    assert document(rich / "metadata/k.flags.json") == [bool(n % 2) for n in range(70)]
    floats = np.array(document(rich / "metadata/k.floats.json"), dtype=np.float32)
    assert np.array_equal(floats, np.array([n / 3 for n in range(100)], dtype=np.float32))


def test_strings_are_files_without_a_suffix(rich):
    listed = os.listdir(rich / "metadata")
    assert "k.bad_text" in listed and "k.bad_text.json" not in listed
    assert (rich / "metadata/k.empty_text").read_bytes() == b""
    assert (rich / "metadata/k.lines").read_bytes() == b"one\ntwo\n"
    assert (rich / "metadata/tokenizer.chat_template.tool use").read_bytes() == CHAT_TEMPLATE.encode()


def test_text_that_is_no_utf8(rich):
    assert (rich / "metadata/k.bad_text").read_bytes() == b"a\xff\xfeb\xe2\x82c"
    assert document(rich / "metadata.json")["k.bad_text"] == "a\ufffd\ufffdb\ufffd\ufffdc"


def test_keys_are_encoded_as_file_names_only(rich):
    assert document(rich / "metadata/sl%2Fash.json") == 7
    assert document(rich / "metadata.json")["sl/ash"] == 7


def test_metadata_keeps_the_order_of_the_file(rich):
    keys = list(document(rich / "metadata.json"))
    assert keys[0] == "general.architecture" and keys[-1] == "sl/ash"
    assert keys.index("k.u8") < keys.index("k.f64") < keys.index("k.words")


def test_a_string_and_a_number_that_want_one_file_refuse_the_mount(mount, tmp_path):
    model = Gguf().key("a.json", "str", "text").key("a", "u32", 1).tensor("t", "F32", (1,))
    said = mount.refused(model.write(tmp_path / "m.gguf"))
    assert "a.json" in said and '"a"' in said


def test_model_json_of_safetensors(mount, tmp_path):
    model = safetensors_file.plain()
    found = document(mount(model.write(tmp_path / "tiny.safetensors")) / "model.json")
    in_order(found, MODEL_KEYS)
    assert (found["format"], found["byte_order"], found["architecture"]) == ("safetensors", "little", None)
    assert found["tensor_count"] == 3
    assert found["parameter_count"] == 48 + 15 + 7
    assert found["nbytes"] == 192 + 30 + 14
    assert found["dtypes"]["BF16"] == {"tensors": 1, "nbytes": 14}


def test_metadata_values_of_safetensors_are_verbatim(mount, tmp_path):
    values = {"format": "pt", "note": 'tab\t "quoted" \N{LLAMA}\n', "": "empty key"}
    model = safetensors_file.Safetensors(values).tensor("a", "F32", (1,))
    mounted = mount(model.write(tmp_path / "m.safetensors"))
    assert document(mounted / "metadata.json") == values
    assert (mounted / "metadata/note").read_bytes() == values["note"].encode()
    assert (mounted / "metadata/%").read_bytes() == b"empty key"


def test_no_metadata_is_an_empty_object(mount, tmp_path):
    mounted = mount(safetensors_file.Safetensors().tensor("a", "F32", (1,)).write(tmp_path / "m.safetensors"))
    assert json.loads((mounted / "metadata.json").read_text()) == {}
    assert os.listdir(mounted / "metadata") == []


def test_a_long_vocabulary_neither_slows_the_mount_nor_stays_in_memory(weightfs, mount, tmp_path):  # C04
    model = Gguf().key("general.architecture", "str", "llama")
    words = [f"tok{n}" for n in range(262_144)]
    model.key("tokenizer.ggml.tokens", "arr:str", words)
    model.key("tokenizer.ggml.scores", "arr:f32", [float(n) for n in range(262_144)])
    model.tensor("a", "F32", (4,))
    path = model.write(tmp_path / "m.gguf")
    promptly(0.5, lambda: weightfs.run("ls", path))
    mounted = mount(path)
    memory = mounted.rss_anon()
    assert document(mounted / "metadata.json")["tokenizer.ggml.tokens"]["length"] == 262_144
    assert document(mounted / "metadata/tokenizer.ggml.tokens.json") == words
    assert mounted.rss_anon() < max(memory + (8 << 20), 24 << 20)


# --- set=: metadata overridden in the mount --------------------------------------------
@pytest.fixture
def keyed(tmp_path):
    model = gguf_file.plain().key("llama.context_length", "u32", 2048).key("k.scale", "f32", 0.5).key("k.list", "arr:u8", [1, 2])
    return model.write(tmp_path / "keyed.gguf")


def test_set_replaces_and_adds_values(mount, keyed, tmp_path):
    (tmp_path / "template").write_bytes(b"line one\nline two, no newline added")
    flags = ["--set", "llama.context_length=4096", "--set", "k.list=[3,4,5]", "--set", "new.words=[\"a\",\"b\"]", "--set", "new.flag=true"]
    flags += ["--set", f"tokenizer.chat_template=@{tmp_path / 'template'}", "--set", "new.number=-7"]
    mounted = mount(keyed, flags=flags)
    found = document(mounted / "metadata.json")
    assert (found["llama.context_length"], found["k.list"], found["k.scale"]) == (4096, [3, 4, 5], 0.5)
    assert (found["new.words"], found["new.flag"], found["new.number"]) == (["a", "b"], True, -7)
    assert (mounted / "metadata/tokenizer.chat_template").read_bytes() == b"line one\nline two, no newline added"
    assert document(mounted / "metadata/llama.context_length.json") == 4096
    assert (mounted / "source/keyed.gguf").read_bytes() == keyed.read_bytes()


def test_set_as_an_option_escapes_its_commas(mount, keyed):
    assert document(mount(keyed, r"set=k.list=[7\,8],umask=022") / "metadata.json")["k.list"] == [7, 8]


@pytest.mark.parametrize("value", ["llama.context_length=\"text\"", "llama.context_length=-1", "llama.context_length=4294967296", "k.list=[256]", "split.count=2", "general.alignment=64"])
def test_set_of_a_value_that_does_not_fit(mount, keyed, value):
    said = mount.refused(keyed, code=None, flags=["--set", value])
    assert value.split("=")[0] in said
