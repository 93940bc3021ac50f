"""scripts/examples: each is run as its first lines say, and what it prints is compared with the bytes."""

import ast
import contextlib
import functools
import http.client
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest

from gguf_file import Gguf, pattern
from mounting import force_unmount, mounts, wait_until, xattr
from safetensors_file import Safetensors

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "scripts" / "examples"
KIB, MIB = 1 << 10, 1 << 20
SECONDS = 150  # a net, also for a machine that has other things to do


def words(example, *args):
    interpreter = {".py": [sys.executable, "-B"], ".sh": ["sh"]}[Path(example).suffix]
    return [*interpreter, str(EXAMPLES / example), *map(str, args)]


def environment(weightfs, folder, **more):
    """As a user has it: weightfs is found in PATH, and what is written goes below folder."""
    programs = folder / "bin"
    programs.mkdir(exist_ok=True)
    if not (programs / "weightfs").exists():
        (programs / "weightfs").symlink_to(weightfs.binary)
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    path = f"{programs}:{os.environ['PATH']}"
    return weightfs.env | {"PATH": path, "TMPDIR": str(scratch), "DASK_TEMPORARY_DIRECTORY": str(scratch)} | more


@pytest.fixture
def run(weightfs, tmp_path):
    """run(EXAMPLE, ARGUMENT...): what it printed, once it has ended with this code."""

    def run(example, *args, code=0, stdin=None, **more):
        env = environment(weightfs, tmp_path, **more)
        done = subprocess.run(words(example, *args), input=stdin, capture_output=True, text=True, env=env, timeout=SECONDS)
        assert done.returncode == code, f"{example}: exit {done.returncode}, not {code}\n{done.stderr}\n{done.stdout}"
        run.err = done.stderr
        return done.stdout

    return run


def floats(shape, seed=1):
    return np.random.default_rng(seed).standard_normal(shape).astype("<f4")


def flip(path, offset):
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 0x20]))


# --- all of them -----------------------------------------------------------------------


def test_each_begins_by_saying_what_it_does_and_how_to_run_it():
    for path in EXAMPLES.iterdir():
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#!")]
        assert lines[0].startswith("# ") and lines[0].endswith("."), path
        assert lines[1].startswith("# Run: ") and path.name in lines[1], path


def test_none_has_the_name_of_a_module_that_python_needs():
    """Each is started from its folder, which Python then looks in first: a tokenize.py would end all of them."""
    for path in EXAMPLES.glob("*.py"):
        assert path.stem not in sys.stdlib_module_names, path
        ast.parse(path.read_text())


def test_the_readme_tells_of_each():
    readme = (ROOT / "README.md").read_text()
    for path in EXAMPLES.iterdir():
        assert f"`{path.name}`" in readme, path


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.glob("*.*") if path.suffix in (".py", ".sh")))
def test_each_says_how_it_is_called(run, example):
    code = {".py": 1, ".sh": 2}[Path(example).suffix]
    assert run(example, code=code if example != "torch_check.py" or has_torch() else 2) == ""
    assert "usage: " in run.err or not has_torch()


@pytest.mark.parametrize("case", ["numpy_memmap: name", "numpy_memmap: no floats", "numpy_memmap: no mount", "tokens: no map", "safetensors_open: no file", "safetensors_open: name", "tables: no mount", "qdrant_rows: name", "qdrant_rows: a row"])
def test_each_says_in_one_line_what_is_not_there(run, mount, tmp_path, case):
    path = Gguf().tensor("w", "F32", (3, 32)).tensor("v", "F32", (32,)).tensor("i", "I32", (4,)).write(tmp_path / "m.gguf")
    point = mount(path).path
    whole = point / "model.safetensors"
    example, *args = {
        "numpy_memmap: name": ("numpy_memmap", point, "absent", f"{point}/tensors/absent.json"),
        "numpy_memmap: no floats": ("numpy_memmap", point, "i", f"{point}/f32/i.bin"),
        "numpy_memmap: no mount": ("numpy_memmap", tmp_path, "w", f"{tmp_path}/tensors/w.json"),
        "tokens: no map": ("tokens", point, "text", f"{point}/hf/tokenizer.json"),
        "safetensors_open: no file": ("safetensors_open", f"{whole}x", f"{whole}x"),
        "safetensors_open: name": ("safetensors_open", whole, "absent", "absent"),
        "tables: no mount": ("tables", tmp_path, f"{tmp_path}/tensors"),
        "qdrant_rows: name": ("qdrant_rows", point, "absent", f"{point}/f32/absent.npy"),
        "qdrant_rows: a row": ("qdrant_rows", point, "v", "[32]"),
    }[case]
    *args, named = args
    run(f"{example}.py", *args, code=1)
    assert named in run.err and len(run.err.splitlines()) == 1


def unread(weightfs, tmp_path, example, *args):
    """The end, and what was said, of an example whose reader has gone, as head goes."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        env = environment(weightfs, tmp_path, PYTHONUNBUFFERED="1")
        done = subprocess.run(words(example, *args), stdin=subprocess.DEVNULL, stdout=writer, stderr=subprocess.PIPE, text=True, env=env, timeout=SECONDS)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize("example", ["numpy_memmap", "safetensors_open", "tables", "qdrant_rows", "torch_check"])
def test_each_ends_quietly_with_its_reader(weightfs, mount, tmp_path, example):
    if example == "torch_check" and not has_torch():
        pytest.skip("torch is not installed")
    path = Gguf().tensor("w", "F32", (3, 32)).write(tmp_path / "m.gguf")
    point = mount(path).path
    args = {"safetensors_open": [point / "model.safetensors"], "tables": [point], "torch_check": [path, point, 1]}
    assert unread(weightfs, tmp_path, f"{example}.py", *args.get(example, [point, "w"])) == (-signal.SIGPIPE, "")


def test_tokens_end_quietly_with_their_reader(weightfs, mount, tmp_path, models):
    point = mount(models / "gemma-3-270m-q4_k_m.gguf", "map=hf").path
    assert unread(weightfs, tmp_path, "tokens.py", point, "Hello") == (-signal.SIGPIPE, "")


# --- NumPy, safetensors, tokenizers ----------------------------------------------------


@pytest.mark.parametrize("dtype", ["F32", "F16", "Q8_0"])
def test_numpy_memmap_shows_the_values_of_the_tensor(run, mount, tmp_path, dtype):
    values = np.round(floats((6, 64)) * 16) / 16
    model = {
        "F32": Gguf().tensor("w", "F32", (6, 64), values),
        "F16": Gguf().tensor("w", "F16", (6, 64), values.astype("<f2")),
        "Q8_0": Gguf().tensor("w", "Q8_0", (6, 64), q8_0(values)),
    }[dtype]
    told = run("numpy_memmap.py", mount(model.write(tmp_path / "m.gguf")).path, "w")
    assert f"w: {dtype} [6, 64]" in told
    assert f"as {'float16' if dtype == 'F16' else 'float32'}: " in told
    assert f"the norm {np.linalg.norm(values[-1]):.4f};" in told


def q8_0(values):
    """Blocks that hold these multiples of 1/16 exactly."""
    blocks = values.reshape(-1, 32)
    codes = (blocks * 16).astype("i1")
    assert np.array_equal(codes / 16, blocks)
    return b"".join(np.float16(1 / 16).tobytes() + row.tobytes() for row in codes)


def test_numpy_memmap_reads_no_more_than_the_rows_it_shows(run, mount, tmp_path):
    mounted = mount(Gguf().tensor("w", "F32", (4096, 4096), bytes(64 * MIB)).write(tmp_path / "m.gguf"))
    run("numpy_memmap.py", mounted.path, "w")
    assert mounted.status["bytes_served"] < 8 * MIB


def test_numpy_memmap_takes_a_vector(run, mount, tmp_path):
    mounted = mount(Safetensors().tensor("v", "F32", (3,), np.array([3, 0, 4], "<f4")).write(tmp_path / "m.safetensors"))
    assert "the norm 5.0000;" in run("numpy_memmap.py", mounted.path, "v")


def test_safetensors_open_lists_the_whole_quantised_model(run, mount, tmp_path):
    values = np.round(floats((6, 64)) * 16) / 16
    model = Gguf().tensor("a", "Q8_0", (6, 64), q8_0(values)).tensor("b", "F16", (5,), values[0, :5].astype("<f2"))
    mounted = mount(model.write(tmp_path / "m.gguf"))
    assert run("safetensors_open.py", mounted / "model.safetensors") == "a: F32 [6, 64]\nb: F16 [5]\n2 tensors\n"
    told = run("safetensors_open.py", mounted / "f16/model.safetensors", "a")
    assert told == f"a: F16 [6, 64]\nbegins with {values[0, :4].astype('<f2')}\n1 tensors\n"


def test_tokens_are_those_of_the_models_own_tokenizer(run, mount, models):
    mounted = mount(models / "gemma-3-270m-q4_k_m.gguf", "map=hf")
    told = run("tokens.py", mounted.path, "Hello weights \U0001f600")
    assert re.search(r" 9259  'Hello' +'Hello'\n", told)
    assert "tokens of 262144: [2, 9259, " in told
    assert told.endswith("and back: 'Hello weights \U0001f600'\n")


# --- Qdrant, DuckDB --------------------------------------------------------------------


@pytest.mark.patience(2 * SECONDS)
def test_the_nearest_row_in_qdrant_is_the_row_itself(run, mount, tmp_path):
    values = np.round(floats((300, 64)) * 16) / 16
    mounted = mount(Gguf().tensor("token_embd.weight", "Q8_0", (300, 64), q8_0(values)).write(tmp_path / "m.gguf"))
    told = run("qdrant_rows.py", mounted.path, "token_embd.weight", 250, 17)
    hits = [(int(row), float(distance)) for row, distance in re.findall(r"row +(\d+)  distance ([\d.]+)", told)]
    distances = np.linalg.norm(values[:250] - values[17], axis=1)
    assert hits[0] == (17, 0)
    assert [row for row, _ in hits] == list(np.argsort(distances)[:5])
    assert [distance for _, distance in hits] == pytest.approx(np.sort(distances)[:5], abs=1e-3)
    assert "row 250 is not one" in (run("qdrant_rows.py", mounted.path, "token_embd.weight", 250, 250, code=1), run.err)[1]


def layered():
    model = Gguf().tensor("token_embd.weight", "F32", (8, 32))
    for layer in (0, 1, 10):
        model.tensor(f"blk.{layer}.attn_q.weight", "Q8_0", (4, 32)).tensor(f"blk.{layer}.attn_norm.weight", "F32", (32,))
    return model.tensor("odd/name [0] 100%", "F16", (3, 3))


@pytest.mark.parametrize("how", ["mount", "ls"])
def test_tables_add_up(run, weightfs, mount, tmp_path, how):
    path = layered().write(tmp_path / "m.gguf")
    if how == "mount":
        told = run("tables.py", mount(path).path)
    else:
        told = run("tables.py", "-", stdin=weightfs.run("ls", path, "--json").text)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in told.splitlines() if line.startswith("│")]
    for row in (
        ["F32", "4", "1408"],
        ["Q8_0", "3", "408"],
        ["F16", "1", "18"],
        ["NULL", "2", "1042", "F16, F32"],
        ["0", "2", "264", "F32, Q8_0"],
        ["10", "2", "264", "F32, Q8_0"],
    ):
        assert row in rows, (row, told)
    layers = [row[0] for row in rows if len(row) == 4][2:]
    assert layers == ["NULL", "0", "1", "10"]


# --- what a fine-tune changed ----------------------------------------------------------


@pytest.fixture
def pair(tmp_path):
    """A model and a fine-tune of it, which changed b."""
    base = Gguf().tensor("a", "F32", (64,), floats(64)).tensor("b", "F32", (64,), floats(64, 2)).tensor("c", "F16", (9,))
    tuned = Gguf().tensor("a", "F32", (64,), floats(64)).tensor("b", "F32", (64,), floats(64, 3)).tensor("c", "F16", (9,))
    return base.write(tmp_path / "base.gguf"), tuned.write(tmp_path / "tuned.gguf")


@pytest.fixture
def scratch(tmp_path):
    """Nothing may be left in it, mounted or not."""
    yield tmp_path / "scratch"
    left = [entry for entry in (tmp_path / "scratch").iterdir() if entry.name.startswith("tmp.")]
    for point in [point for point in mounts() if point.startswith(f"{tmp_path}/scratch/")]:
        force_unmount(point)
    assert left == []


@pytest.mark.usefixtures("mount", "scratch")
def test_what_changed_names_the_changed_tensor_and_no_other(run, pair):
    told = run("what_changed.sh", *pair)
    assert "Files base/tensors/b.bin and tuned/tensors/b.bin differ\n" in told
    assert "a.bin" not in told and "c.bin" not in told
    assert re.search(r"^b +F32 +\[64\]", told, re.M) and not re.search(r"^[ac] ", told, re.M)


@pytest.mark.usefixtures("mount", "scratch")
def test_what_changed_between_a_model_and_itself(run, pair):
    assert run("what_changed.sh", pair[0], pair[0]) == "no tensor differs\n"


@pytest.mark.usefixtures("mount", "scratch")
def test_what_changed_takes_damage_for_no_fine_tune(run, weightfs, pair):
    weightfs.run("seal", pair[1])
    place = weightfs.run("ls", pair[1], "--json").json()["tensors"][0]["source"]["offset"]
    flip(pair[1], place)
    run("what_changed.sh", *pair, code=2)
    assert "tuned/tensors/a.bin: Input/output error" in run.err


@pytest.mark.usefixtures("mount", "scratch")
def test_what_changed_unmounts_the_first_when_the_second_is_no_model(run, tmp_path, pair):
    (tmp_path / "none.gguf").write_text("no model")
    run("what_changed.sh", pair[0], tmp_path / "none.gguf", code=1)
    assert "none.gguf" in run.err


@pytest.mark.usefixtures("mount", "scratch")
def test_what_changed_unmounts_when_its_reader_has_gone(weightfs, tmp_path, pair):
    code, said = unread(weightfs, tmp_path, "what_changed.sh", *pair)
    assert code in (141, -signal.SIGPIPE) and "Error" not in said, said


# --- the server ------------------------------------------------------------------------


class Served:
    """serve.py over one mount; values: the stored bytes of each tensor."""

    def __init__(self, url, mounted, values):
        self.url, self.mounted, self.values = url, mounted, values
        self.client = httpx.Client(base_url=url, timeout=30, limits=httpx.Limits(max_connections=64))
        self.get = functools.partial(self.client.request, "GET")

    def ask(self, name, asked, **headers):
        return self.get(f"/tensors/{name}.bin", headers={"range": asked, **headers})


@contextlib.contextmanager
def serving(weightfs, mounted, values, folder):
    env = environment(weightfs, folder, PYTHONUNBUFFERED="1")
    log = folder / "serve.log"
    with open(log, "w") as file:
        process = subprocess.Popen(words("serve.py", mounted.path, 0), stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env)
    try:
        line = wait_until(lambda: process.poll() is not None or re.search(r"running on (http://\S+)", log.read_text()), 60, "the server")
        assert line is not True, log.read_text()
        served = Served(line[1], mounted, values)
        yield served
        served.client.close()
    finally:
        process.terminate()
        process.wait(20)


@pytest.fixture(scope="module")
def served(shared_mount):
    """A sealed model of which `bad` has a flipped bit at 700,000."""
    folder, weightfs = shared_mount.directory, shared_mount.weightfs
    model = Gguf().tensor("good", "F32", (3 * MIB // 4,), pattern(3 * MIB, seed=1)).tensor("bad", "F32", (MIB // 4,), pattern(MIB, seed=2))
    model.tensor("empty", "F32", (0,)).tensor("small", "Q8_0", (2, 32))
    path = model.write(folder / "m.gguf")
    weightfs.run("seal", path)
    listed = {tensor["name"]: tensor for tensor in weightfs.run("ls", path, "--json").json()["tensors"]}
    flip(path, listed["bad"]["source"]["offset"] + 700_000)
    with serving(weightfs, shared_mount(path), {t.name.decode(): t.data for t in model.tensors}, folder) as served:
        yield served


@pytest.mark.patience(2 * SECONDS)
@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=65535-65536", (65535, 65537)),
        ("bytes=3000000-", (3000000, 3 * MIB)),
        ("bytes=-7", (3 * MIB - 7, 3 * MIB)),
        ("bytes=0-", (0, 3 * MIB)),
        ("bytes=-99999999", (0, 3 * MIB)),
        ("bytes=3145727-99999999999999", (3 * MIB - 1, 3 * MIB)),
    ],
)
def test_serve_answers_a_range_with_that_part(served, asked, part):
    answer = served.ask("good", asked)
    assert answer.status_code == 206
    assert answer.content == served.values["good"][slice(*part)]
    assert answer.headers["content-range"] == f"bytes {part[0]}-{part[1] - 1}/{3 * MIB}"


@pytest.mark.parametrize("asked", ["bytes=3145728-", "bytes=-0", "bytes=99999999999-999999999999"])
def test_serve_refuses_a_range_behind_the_end(served, asked):
    answer = served.ask("good", asked)
    assert answer.status_code == 416 and answer.headers["content-range"] == f"bytes */{3 * MIB}"


@pytest.mark.parametrize("asked", ["lines=1-2", "bytes=", "bytes=-", "bytes=a-b", "bytes=0-1,4-5", "bytes=" + "9" * 5000 + "-"])
def test_serve_answers_what_is_no_range_with_all(served, asked):
    answer = served.ask("good", asked)
    assert answer.status_code == 200 and answer.content == served.values["good"]


def test_serve_tells_of_a_file_without_reading_it(served):
    before = served.mounted.status["bytes_served"]
    answer = served.client.head("/tensors/good.bin", headers={"range": "bytes=0-3"})
    assert answer.status_code == 200 and answer.content == b""
    assert answer.headers["content-length"] == str(3 * MIB) and answer.headers["accept-ranges"] == "bytes"
    assert served.mounted.status["bytes_served"] == before


def test_serve_knows_bytes_by_their_sealed_checksum(served):
    etag = served.ask("good", "bytes=0-3").headers["etag"]
    assert etag == f'"{xattr(served.mounted / "tensors/good.bin", "crc32")}-{3 * MIB}"'
    assert served.ask("good", "bytes=0-3", **{"if-range": etag}).status_code == 206
    assert served.ask("good", "bytes=0-3", **{"if-range": '"other"'}).status_code == 200
    assert "etag" not in served.get("/f32/small.bin").headers


def test_serve_has_the_other_views_and_empty_files(served):
    codes = np.frombuffer(served.values["small"], dtype=[("scale", "<f2"), ("codes", "i1", 32)])
    decoded = codes["scale"].astype("<f4")[:, None] * codes["codes"].astype("<f4")
    assert served.get("/f32/small.bin").content == decoded.tobytes()
    assert json.loads(served.get("/tensors/small.json").content)["shape"] == [2, 32]
    empty = served.get("/tensors/empty.bin")
    assert (empty.status_code, empty.content) == (200, b"")
    assert served.ask("empty", "bytes=0-").status_code == 416


@pytest.mark.parametrize("path", ["tensors/none.bin", "source/m.gguf", "tensors/..", "tensors/..%2fmodel.json", "tensors/a%00b", "tensors/" + "a" * 300, "tensors/"])
def test_serve_shows_nothing_else(served, path):
    host, port = served.url.removeprefix("http://").split(":")
    # Not by httpx, which would tidy the path up.
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.request("GET", f"/{path}")
    assert connection.getresponse().status == 404
    connection.close()


def test_serve_never_sends_damaged_bytes(served):
    """The request breaks off before the bad chunk, and the good chunks around it are served."""
    chunk = 700_000 // (64 * KIB) * 64 * KIB
    got = bytearray()
    with pytest.raises(httpx.RemoteProtocolError), served.client.stream("GET", "/tensors/bad.bin") as answer:
        assert answer.headers["content-length"] == str(MIB)
        for block in answer.iter_bytes():
            got += block
    assert len(got) <= chunk and got == served.values["bad"][: len(got)]
    for begin, end in ((0, chunk), (chunk + 64 * KIB, MIB)):
        assert served.ask("bad", f"bytes={begin}-{end - 1}").content == served.values["bad"][begin:end]
    with pytest.raises(httpx.RemoteProtocolError):
        served.ask("bad", "bytes=700000-700001")
    assert served.get("/tensors/good.bin").content == served.values["good"]


@pytest.mark.patience(2 * SECONDS)
def test_serve_answers_many_at_once(served):
    """128 ranges by 32 clients, of which every eighth asks for damage: each gets its own bytes, or an error."""

    def ask(number):
        if number % 8 == 0:
            with pytest.raises(httpx.RemoteProtocolError):
                served.ask("bad", "bytes=650000-750000")
            return True
        begin = number * 20_011 % (2 * MIB)
        end = begin + 1 + number * 7919 % MIB
        answer = served.ask("good", f"bytes={begin}-{end - 1}")
        return answer.status_code == 206 and answer.content == served.values["good"][begin:end]

    with ThreadPoolExecutor(32) as pool:
        assert all(pool.map(ask, range(128)))


@pytest.mark.patience(2 * SECONDS)
def test_serve_an_unsealed_model_without_etag(weightfs, mount, tmp_path):
    mounted = mount(Gguf().tensor("a", "F32", (4,), floats(4)).write(tmp_path / "m.gguf"))
    with serving(weightfs, mounted, {"a": floats(4).tobytes()}, tmp_path) as served:
        answer = served.ask("a", "bytes=4-7", **{"if-range": '"x"'})
        assert answer.status_code == 200 and "etag" not in answer.headers
        assert served.ask("a", "bytes=4-7").content == floats(4).tobytes()[4:8]


# --- torch -----------------------------------------------------------------------------


def has_torch():
    return importlib.util.find_spec("torch") is not None


def test_torch_check_says_so_where_torch_is_missing(run, tmp_path):
    """Also where it is there: a module that cannot be imported stands before it."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch', name='torch')\n")
    assert run("torch_check.py", "model", "mnt", code=2, PYTHONPATH=str(tmp_path)) == ""
    assert run.err.startswith("torch_check: torch is not installed: nothing was compared")


@pytest.mark.skipif(not has_torch(), reason="needs torch")
@pytest.mark.patience(2 * SECONDS)
def test_torch_check_compares_and_measures(run, mount, tmp_path):
    values = np.round(floats((6, 64)) * 16) / 16
    path = Gguf().tensor("w", "Q8_0", (6, 64), q8_0(values)).tensor("v", "F16", (5,)).write(tmp_path / "m.gguf")
    told = run("torch_check.py", path, mount(path).path, 1)
    assert told.startswith("2 tensors are close by torch.allclose, 2 of them equal in every bit\n")
    other = Gguf().tensor("w", "Q8_0", (6, 64), q8_0(-values)).tensor("v", "F16", (5,)).write(tmp_path / "other.gguf")
    run("torch_check.py", other, mount(path).path, 1, code=1)
    assert "w differs by up to" in run.err
