""".weightfs/metrics, read by the parser that Prometheus' own client library has."""

import re
import subprocess
import threading

import gguf_file
import prometheus_client.parser
import pytest
from gguf_file import Gguf, pattern
from safetensors_file import Safetensors

CHUNK = 4096

# {family: the key of status.json that has the same number}
SAME = {
    "weightfs_start_time_seconds": "mounted_at",
    "weightfs_reads": "reads",
    "weightfs_bytes_served": "bytes_served",
    "weightfs_chunks_checked": "chunks_checked",
    "weightfs_mismatches": "mismatches",
    "weightfs_retries": "retries",
    "weightfs_healed": "healed",
}
STATES = {"verified", "unverified", "degraded", "open", "stale"}


def families(mounted):
    """{name: family} of a document that a strict reader takes, line by line."""
    text = (mounted / ".weightfs/metrics").read_bytes().decode()
    assert text.endswith("\n") and "\r" not in text
    found = {}
    for family in prometheus_client.parser.text_string_to_metric_families(text):
        assert family.name not in found, "one family, one place"
        found[family.name] = family
    helped, typed, seen = set(), {}, set()
    for line in text.removesuffix("\n").split("\n"):  # splitlines() knows more ends than the format does
        if line.startswith("# HELP "):
            helped.add(line.split(" ")[2])
            assert len(line.split(" ", 3)[3]) > 5
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            typed[name] = kind
        else:
            name, labels, value = re.fullmatch(r'([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(?:[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\]|\\[\\"n])*",?)+\})? (\d+)', line).groups()
            assert name in helped and name in typed, f"{name} has samples before its HELP and TYPE"
            assert (name, labels) not in seen, f"twice: {line}"
            seen.add((name, labels))
    assert helped == set(typed)
    for name, kind in typed.items():
        assert name.startswith("weightfs_") and kind in ("counter", "gauge")
        assert name.endswith("_total") == (kind == "counter"), name
    return found


def value(found, name):
    (sample,) = found[name].samples
    return sample.value


def check_same(mounted):
    """Both documents say the same while nobody reads anything else."""
    status, found = mounted.status, families(mounted)
    for name, key in SAME.items():
        assert value(found, name) == status[key], key
    assert value(found, "weightfs_breakers_open") == len(status["breakers"])
    assert value(found, "weightfs_bad_chunks") == len(status["bad"])
    assert (value(found, "weightfs_sources_changed") > 0) == status["source_changed"]
    assert {sample.labels["state"] for sample in found["weightfs_state"].samples} == STATES
    assert [sample.labels["state"] for sample in found["weightfs_state"].samples if sample.value] == [status["state"]]
    (info,) = found["weightfs_info"].samples
    for key in ("verify", "trust", "on_corruption"):
        assert info.labels[key] == status[key]
    assert info.labels["sealed"] == str(status["sealed"]).lower()
    assert value(found, "weightfs_resident_bytes") == pytest.approx(status["rss_bytes"], rel=0.5)
    return status, found


def test_at_the_beginning_and_after_reads(weightfs, mount, tmp_path):
    path = gguf_file.plain().write(tmp_path / "tiny.gguf")
    weightfs.run("seal", path)
    mounted = mount(path, "cache=direct")
    status, found = check_same(mounted)
    assert (status["reads"], value(found, "weightfs_uptime_seconds") < 60) == (0, True)
    assert found["weightfs_tensor_bad_chunks"].samples == []
    mounted.bin("output.weight")
    status, found = check_same(mounted)
    assert status["reads"] > 0 and status["bytes_served"] >= 272 and status["chunks_checked"] > 0
    assert info_version(found) == mounted.model["weightfs"]


def info_version(found):
    return found["weightfs_info"].samples[0].labels["version"]


# The stored name, and the file that it has in tensors/, without .bin.
NAMES = {
    'quote".x': 'quote".x',
    "back\\slash": "back\\slash",
    "new\nline": "new%0Aline",
    "return\r\t": "return%0D%09",
    'mixed\\"\n\\n': 'mixed\\"%0A\\n',
    'a{b="c"} 1': 'a{b="c"} 1',
    "# HELP x y": "# HELP x y",
    "\u00e9\U0001f600": "\u00e9\U0001f600",
    "\u2028line separator\x85": "\u2028line separator\x85",
    "a/b": "a%2Fb",
    "plain.weight": "plain.weight",
}


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def damaged(weightfs, mount, path):
    """Every tensor's first chunk is bad, two of the last one's; all were read."""
    weightfs.run("seal", path, "--chunk-size", "4KiB")
    mounted = mount(path, "cache=direct")
    tensors = weightfs.run("ls", path, "--json").json()["tensors"]
    mounted.unmount()
    for tensor in tensors:
        flip(path, tensor["source"]["offset"])
    flip(path, tensors[-1]["source"]["offset"] + CHUNK)
    mounted = mount(path, "cache=direct", "verify=always")
    bad = 0
    for file in sorted((mounted.path / "tensors").glob("*.bin")):
        for at in (0, CHUNK):
            with open(file, "rb", buffering=0) as opened:
                opened.seek(at)
                try:
                    opened.read(CHUNK)
                except OSError:
                    bad += 1
    assert bad >= len(tensors)
    return mounted, tensors


@pytest.mark.parametrize("kind", ["gguf", "safetensors"])
def test_hostile_names_of_damaged_tensors(weightfs, mount, tmp_path, kind):
    if kind == "gguf":
        model = Gguf().key("general.architecture", "str", "x")
        for i, name in enumerate(NAMES):
            model.tensor(name, "F32", [2 * CHUNK // 4], pattern(2 * CHUNK, seed=i))
        path = model.write(tmp_path / "m.gguf")
    else:
        path = tmp_path / 'm "q"\n\\.safetensors'
        model = Safetensors()
        for i, name in enumerate(NAMES):
            model.tensor(name, "F32", [2 * CHUNK // 4], pattern(2 * CHUNK, seed=i))
        model.write(path)
    mounted, tensors = damaged(weightfs, mount, path)
    status, found = check_same(mounted)
    samples = {sample.labels["tensor"]: sample.value for sample in found["weightfs_tensor_bad_chunks"].samples}
    last = NAMES[tensors[-1]["source_name"]]
    assert samples == {file: 2 if file == last else 1 for file in NAMES.values()}
    assert all((mounted / f"tensors/{file}.bin").exists() for file in samples)
    assert sum(samples.values()) == len(status["bad"]) == value(found, "weightfs_bad_chunks")
    assert status["state"] in ("degraded", "open")


def test_names_that_differ_in_bytes_that_are_no_text_stay_two(weightfs, mount, tmp_path):
    model = Gguf().key("general.architecture", "str", "x")
    names = (b"w\xff", b"w\xfe", b"")
    for i, name in enumerate(names):
        model.tensor(name, "F32", [2 * CHUNK // 4], pattern(2 * CHUNK, seed=i))
    mounted, _ = damaged(weightfs, mount, model.write(tmp_path / "m.gguf"))
    samples = {sample.labels["tensor"] for sample in families(mounted)["weightfs_tensor_bad_chunks"].samples}
    assert samples == {"w%FF", "w%FE", "%"}


def test_damage_of_padding_has_no_tensor(weightfs, mount, tmp_path):
    model = Gguf().key("general.architecture", "str", "x").tensor("a", "F32", [1]).tensor("b", "F32", [1])
    path = model.write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    flip(path, model.place_of("a") + 4)
    mounted = mount(path, "cache=direct")
    with pytest.raises(OSError):
        (mounted / "source/m.gguf").read_bytes()
    _, found = check_same(mounted)
    (sample,) = found["weightfs_tensor_bad_chunks"].samples
    assert (sample.labels, sample.value) == ({"part": "padding", "tensor": ""}, 1)


def test_counters_only_grow_while_others_read(weightfs, mount, tmp_path):
    model = Gguf().key("general.architecture", "str", "x").tensor("a", "F32", [1 << 18], pattern(1 << 20))
    path = model.write(tmp_path / "m.gguf")
    weightfs.run("seal", path)
    mounted = mount(path, "cache=direct")
    readers = [threading.Thread(target=lambda: [mounted.bin("a") for _ in range(40)]) for _ in range(3)]
    for reader in readers:
        reader.start()
    before, rounds = {}, 0
    while any(reader.is_alive() for reader in readers) or rounds < 3:
        found = families(mounted)
        now = {name: family.samples[0].value for name, family in found.items() if family.type == "counter"}
        assert all(now[name] >= before.get(name, 0) for name in now), (before, now)
        before, rounds = now, rounds + 1
    for reader in readers:
        reader.join()
    status, _ = check_same(mounted)
    assert status["bytes_served"] >= 3 * 40 << 20


def test_one_open_shows_one_moment(mount, tmp_path):
    mounted = mount(gguf_file.plain().write(tmp_path / "tiny.gguf"), "cache=direct")
    with open(mounted / ".weightfs/metrics", "rb", buffering=0) as file:
        first = file.read(100)
        for _ in range(5):
            mounted.bin("output.weight")
        whole = first + b"".join(iter(lambda: file.read(100), b""))
    text = whole.decode()
    list(prometheus_client.parser.text_string_to_metric_families(text))
    assert "\nweightfs_reads_total 0\n" in text
    done = subprocess.run(["cp", mounted / ".weightfs/metrics", tmp_path / "copy"], check=True, timeout=20)
    assert done.returncode == 0 and "weightfs_reads_total 0" not in (tmp_path / "copy").read_text()
