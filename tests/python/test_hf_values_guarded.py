"""map=hf under a seal, with damage in the file, and of big-endian files."""

import errno
import os
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

from hf_golden import assert_bytes, families, files, golden, model, tensors_of, write

CHUNK = 4096
Q0 = "model.layers.0.self_attn.q_proj.weight"
# one of each way to move values
EACH = ("llama", "llama-bias", "llama-qkv", "mixtral-gate-up", "gemma3", "gpt2", "gptneox", "falcon-40b", "bloom", "mamba2", "deepseek2", "gpt-oss", "gpt-oss-plain")


def shows_all(mounted, made):
    """Every file of tensors/ and f32/, byte for byte."""
    assert files(mounted / "tensors", ".bin") == set(made.shown)
    for name, shown in made.shown.items():
        what = f"{made.family.name} in {made.dtype}: {name}"
        assert_bytes(mounted.bin(name), shown.raw, what, shown.dtype)
        if shown.values is not None:
            assert_bytes((mounted / f"f32/{name}.bin").read_bytes(), shown.values.astype("<f4").tobytes(), what)
    for name, (_, shape, data) in tensors_of(mounted / "f32/model.safetensors").items():
        shown = made.shown[name]
        assert shape == shown.shape
        assert_bytes(data, shown.raw if shown.values is None else shown.values.astype("<f4").tobytes(), name)


@pytest.mark.parametrize("name", EACH)
@pytest.mark.parametrize("dtype", ["F16", "Q8_0"])
def test_a_sealed_model_shows_the_same(weightfs, mount, tmp_path, name, dtype):
    made = model(name, dtype)
    path = write(made, tmp_path)
    weightfs.run("seal", path, "--chunk-size", "4KiB")
    mounted = mount(path, "map=hf", "seal=require")
    assert mounted.model["sealed"] is True
    shows_all(mounted, made)
    for tensor, shown in made.shown.items():
        about = mounted.json(f"tensors/{tensor}.json")
        if shown.moved:
            assert about["checksum"] is None, f"{tensor}: the checksum of bytes that are not stored so"


def test_sums_are_only_of_what_is_stored_so(weightfs, mount, tmp_path):
    made = model("llama", "Q8_0")
    path = write(made, tmp_path)
    weightfs.run("seal", path)
    mounted = mount(path, "map=hf")
    changed = {name for name, shown in made.shown.items() if shown.moved}
    for listing in ("SHA256SUMS", "tensors.sfv"):
        text = (mounted / listing).read_text()
        for name in made.shown:
            assert (f"{name}.bin" in text) == (name not in changed), f"{listing}: {name}"


@pytest.mark.parametrize("name", ["llama", "gemma", "gpt2", "gptneox", "falcon-40b", "deepseek2", "mamba", "gpt-oss"])
@pytest.mark.parametrize("dtype", ["F32", "F16", "Q8_0"])
def test_big_endian_files_show_the_same(mount, tmp_path, name, dtype):
    made = model(name, dtype)
    mounted = mount(write(made, tmp_path, big=True), "map=hf")
    assert mounted.model["byte_order"] == "big"
    shows_all(mounted, made)


@pytest.mark.parametrize("dtype", ["Q4_K_M"])
@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek2"])
def test_big_endian_blocks_of_256_show_the_same(mount, tmp_path, name, dtype):
    made = model(name, dtype)
    shows_all(mount(write(made, tmp_path, big=True), "map=hf"), made)


@pytest.mark.parametrize("options", [("io=pread",), ("verify=off",), ("cache=page",), ("cache=direct", "verify=once")], ids="+".join)
@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek2", "gpt-oss"])
def test_every_way_to_read_shows_the_same(mount, tmp_path, name, options):
    made = model(name, "Q8_0")
    mounted = mount(write(made, tmp_path), "map=hf", *options)
    shows_all(mounted, made)
    for tensor, shown in made.shown.items():
        if shown.values is None:
            continue
        mapped = np.load(mounted / f"f32/{tensor}.npy", mmap_mode="r")
        assert np.array_equal(mapped, shown.values), tensor


def test_many_readers_of_one_changed_tensor(mount, tmp_path):
    made = model("gpt2", "Q4_K_M")
    mounted = mount(write(made, tmp_path), "map=hf", "cache=direct")
    wanted = {name: shown.values.astype("<f4").tobytes() for name, shown in made.shown.items() if shown.moved}

    def read(seed):
        rng = random.Random(seed)
        for _ in range(40):
            name = rng.choice(list(wanted))
            offset = rng.randrange(len(wanted[name]))
            with open(mounted / f"f32/{name}.bin", "rb", buffering=0) as file:
                found = os.pread(file.fileno(), 70_000, offset)
            assert found == wanted[name][offset : offset + 70_000], (name, offset)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))


@pytest.mark.parametrize("sealed", [False, True], ids=["unsealed", "sealed"])
@pytest.mark.parametrize("name, tensor", [("gpt2", "transformer.h.0.mlp.c_fc.weight"), ("llama", Q0), ("deepseek2", "model.layers.0.self_attn.kv_b_proj.weight")])
def test_a_source_that_is_rewritten_in_place_is_noticed(weightfs, mount, tmp_path, name, tensor, sealed):
    """Also by what was decoded before and is kept."""
    made = model(name, "Q8_0")
    path = write(made, tmp_path)
    if sealed:
        weightfs.run("seal", path)
    mounted = mount(path, "map=hf", "cache=direct")
    with ExitStack() as stack:
        opened = [stack.enter_context(open(mounted / f"{directory}/{tensor}.bin", "rb", buffering=0)) for directory in ("tensors", "f32")]
        for file in opened:
            assert len(os.pread(file.fileno(), 4096, 0)) == 4096
        raw = path.read_bytes()
        with open(path, "r+b") as source:
            source.write(raw[: len(raw) // 2] + bytes(len(raw) - len(raw) // 2))
        os.utime(path)
        for file in opened:
            with pytest.raises(OSError) as caught:
                os.pread(file.fileno(), 4096, 0)
            assert caught.value.errno == errno.ESTALE, file.name


@pytest.mark.patience(120)
def test_memory_stays_flat_over_a_large_transposed_tensor(mount, tmp_path):
    """A Q8_0 matrix of 68 MiB, 256 MiB in F32, by 4 readers: a cache of it all would show."""
    rows, columns = 8192, 8192
    family = families()["gpt2"]
    blocks = np.random.default_rng(3).integers(0, 256, (rows * columns // 32, 34), dtype=np.uint8)
    blocks[:, :2] = np.frombuffer(np.float16(0.01).tobytes(), np.uint8)
    stored = golden.Stored("Q8_0", (rows, columns), blocks.reshape(rows, -1))
    made = golden.Model(family, "Q8_0")
    mounted = mount(write(made, tmp_path, change=lambda _: {"blk.0.ffn_up.weight": stored}), "map=hf")
    path = mounted / "f32/transformer.h.0.mlp.c_fc.weight.bin"
    assert path.stat().st_size == rows * columns * 4

    def read(part):
        with open(path, "rb", buffering=0) as file:
            size = rows * columns  # a quarter of the bytes
            got = [os.pread(file.fileno(), 1 << 20, part * size + at) for at in range(0, size, 1 << 20)]
        found = np.frombuffer(b"".join(got), "<f4").reshape(-1, rows)
        first = part * columns // 4
        mine = blocks.reshape(rows, columns // 32, 34)[:, first // 32 : (first + columns // 4) // 32, 2:].reshape(rows, -1).view(np.int8)
        return np.array_equal(found, mine.T * np.float32(np.float16(0.01)))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(read, range(4)))
    assert mounted.rss_anon() < 48 << 20, f"{mounted.rss_anon() >> 20} MiB"


# --- damage ----------------------------------------------------------------------------------
def place_of(path, name):
    """Where a stored tensor starts in the file."""
    import gguf

    return next(int(tensor.data_offset) for tensor in gguf.GGUFReader(path).tensors if tensor.name == name)


def damage(path, at):
    raw = bytearray(path.read_bytes())
    raw[at] ^= 0x20
    path.write_bytes(raw)


def served(path, offset, length):
    """The bytes that come before the first error, and that error's number, or 0."""
    out = b""
    with open(path, "rb", buffering=0) as file:
        while len(out) < length:
            try:
                more = os.pread(file.fileno(), length - len(out), offset + len(out))
            except OSError as error:
                return out, error.errno
            if not more:
                break
            out += more
    return out, 0


def check_damaged(mounted, directory, name, data, bad, spans):
    """bad: which bytes of the file cannot be had; spans: the (offset, length) to read."""
    for offset, length in spans:
        part = bad[offset : offset + length]
        good = int(np.argmax(part)) if part.any() else len(part)
        found, error = served(mounted / f"{directory}/{name}.bin", offset, length)
        what = f"{directory}/{name}.bin, {length} bytes at {offset}"
        assert error == (errno.EIO if part.any() else 0), f"{what}: errno {error}, bad bytes {int(part.sum())}"
        assert len(found) == good, f"{what}: {len(found)} bytes served, the good prefix is {good}"
        assert found == data[offset : offset + good], f"{what}: wrong bytes served"


def broken_model(weightfs, mount, tmp_path, name, dtype, stored, byte):
    """Seal, flip one bit of a stored tensor, mount; the byte range of the stored tensor that is bad."""
    made = model(name, dtype)
    path = write(made, tmp_path)
    weightfs.run("seal", path, "--chunk-size", "4KiB")
    start = place_of(path, stored)
    damage(path, start + byte)
    mounted = mount(path, "map=hf", "cache=direct")
    chunk = byte // CHUNK
    return made, mounted, np.arange(made.stored[stored].raw.size) // CHUNK == chunk


ROWS = [
    ("llama", "Q8_0", "blk.0.attn_q.weight", "model.layers.0.self_attn.q_proj.weight", 5000),
    ("llama", "Q4_K_M", "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", 30_000),
    ("llama", "Q4_K_M", "blk.0.attn_k.weight", "model.layers.0.self_attn.k_proj.weight", 30_001),
    ("llama", "F32", "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", 10_000),
    ("llama-qkv", "Q8_0", "blk.0.attn_qkv.weight", "model.layers.0.self_attn.k_proj.weight", 9000),
    ("falcon-40b", "Q8_0", "blk.0.attn_qkv.weight", "transformer.h.0.self_attention.query_key_value.weight", 9000),
    ("gptneox", "Q8_0", "blk.0.attn_qkv.weight", "gpt_neox.layers.0.attention.query_key_value.weight", 9000),
]


@pytest.mark.parametrize("name, dtype, stored, shown, byte", ROWS)
def test_damage_in_permuted_rows_stops_only_them(weightfs, mount, tmp_path, name, dtype, stored, shown, byte):
    made, mounted, lost = broken_model(weightfs, mount, tmp_path, name, dtype, stored, byte)
    about = made.shown[shown]
    bad = lost[about.places]
    assert 0 < bad.sum() < len(bad)
    row = len(about.raw) // about.shape[0]
    rows = [(at, row) for at in range(0, len(bad), row)]
    check_damaged(mounted, "tensors", shown, about.raw, bad, [(0, len(bad)), (1, len(bad) - 1), *rows])

    block, size = golden.gguf.GGML_QUANT_SIZES[golden.Type[about.dtype]]
    in_blocks = np.repeat(bad.reshape(-1, size).any(axis=1), block * 4)
    row = 4 * about.values.size // about.shape[0]
    rows = [(at, row) for at in range(0, len(in_blocks), row)]
    check_damaged(mounted, "f32", shown, about.values.astype("<f4").tobytes(), in_blocks, [(0, len(in_blocks)), (3, len(in_blocks) - 3), *rows])

    for other, its in made.shown.items():
        if stored not in its.sources:
            assert mounted.bin(other) == its.raw, other


ELSEWHERE = [
    ("gpt2", "F16", "blk.0.ffn_up.weight", "transformer.h.0.mlp.c_fc.weight", 9000),
    ("gpt2", "Q8_0", "blk.0.ffn_up.weight", "transformer.h.0.mlp.c_fc.weight", 9000),
    ("deepseek2", "Q8_0", "blk.0.attn_k_b.weight", "model.layers.0.self_attn.kv_b_proj.weight", 5000),
    ("deepseek2", "Q8_0", "blk.0.attn_v_b.weight", "model.layers.0.self_attn.kv_b_proj.weight", 5000),
    ("gpt-oss", "Q8_0", "blk.0.ffn_up_exps.weight", "model.layers.0.mlp.experts.gate_up_proj_blocks", 9000),
    ("gpt-oss", "Q8_0", "blk.0.ffn_up_exps.weight", "model.layers.0.mlp.experts.gate_up_proj_scales", 9000),
]


@pytest.mark.parametrize("name, dtype, stored, shown, byte", ELSEWHERE)
def test_damage_under_a_computed_tensor_never_gives_wrong_bytes(weightfs, mount, tmp_path, name, dtype, stored, shown, byte):
    """What comes before the error is right; the error comes, and only for what was made of the chunk."""
    made, mounted, _ = broken_model(weightfs, mount, tmp_path, name, dtype, stored, byte)
    about = made.shown[shown]
    views = {"tensors": about.raw} | ({} if about.values is None else {"f32": about.values.astype("<f4").tobytes()})
    for directory, data in views.items():
        found, error = served(mounted / f"{directory}/{shown}.bin", 0, len(data))
        assert error == errno.EIO and found == data[: len(found)] and len(found) < len(data)
        right = 0
        row = len(data) // about.shape[0]
        for at in range(0, len(data), row):
            found, error = served(mounted / f"{directory}/{shown}.bin", at, row)
            assert found == data[at : at + len(found)] and (error == 0) == (len(found) == row)
            right += len(found)
        assert right < len(data)
    for other, its in made.shown.items():
        if stored not in its.sources:
            assert mounted.bin(other) == its.raw, other


def test_damage_under_changed_norms(weightfs, mount, tmp_path):
    made, mounted, _ = broken_model(weightfs, mount, tmp_path, "gemma", "Q8_0", "blk.0.attn_norm.weight", 100)
    name = "model.layers.0.input_layernorm.weight"
    assert served(mounted / f"tensors/{name}.bin", 0, 256) == (b"", errno.EIO)
    assert served(mounted / f"f32/{name}.bin", 0, 256) == (b"", errno.EIO)
    for other, its in made.shown.items():
        if other != name:
            assert mounted.bin(other) == its.raw, other
