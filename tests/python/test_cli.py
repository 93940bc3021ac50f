"""The commands that need no mount, their words and their exit codes."""

import errno
import json
import os
import pty
import re
import subprocess

import numpy as np
import pytest

import gguf_file
import safetensors_file
from gguf_file import Gguf
from mounting import is_mounted, promptly

COMMANDS = ["mount", "umount", "ls", "info", "cat", "seal", "verify", "map", "stats", "diff", "status", "completions"]


@pytest.fixture
def tiny(tmp_path):
    return gguf_file.plain().write(tmp_path / "tiny.gguf")


def test_version(weightfs):
    assert re.fullmatch(r"weightfs \d+\.\d+\.\d+\n", weightfs.run("--version").text)


def test_help_names_every_command(weightfs):
    said = weightfs.run("--help").text
    for command in COMMANDS:
        assert re.search(rf"^\s+{command}\b", said, re.M), command


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help(weightfs, command):
    said = weightfs.run(command, "--help").text
    assert "Usage" in said and len(said) > 100


@pytest.mark.parametrize("shell, word", [("bash", "complete"), ("zsh", "compdef"), ("fish", "complete -c weightfs")])
def test_completions(weightfs, shell, word):
    said = weightfs.run("completions", shell).text
    assert word in said and "verify" in said


def test_completions_are_accepted_by_bash(weightfs, tmp_path):
    (tmp_path / "c.bash").write_bytes(weightfs.run("completions", "bash").out)
    subprocess.run(["bash", "-n", tmp_path / "c.bash"], check=True, timeout=10)


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--no-such-flag"],
        ["ls"],
        ["ls", "--no-such-flag", "MODEL"],
        ["cat", "MODEL"],
        ["cat", "MODEL", "output.weight", "--as", "f33"],
        ["MODEL"],
        ["MODEL", "MNT", "too", "many"],
        ["MODEL", "MNT", "-o", "no_such_option"],
        ["MODEL", "MNT", "-o", "verify=sometimes"],
        ["MODEL", "MNT", "-o", "cache=maybe"],
        ["MODEL", "MNT", "-o", "io=telepathy"],
        ["MODEL", "MNT", "-o", "threads=0"],
        ["MODEL", "MNT", "-o", "threads=many"],
        ["MODEL", "MNT", "-o", "idle=soon"],
        ["MODEL", "MNT", "-o", "umask=999"],
        ["MODEL", "MNT", "-o", "uid=nobody-here"],
        ["MODEL", "MNT", "-o", "on_corruption=shrug"],
        ["umount"],
        ["completions", "csh"],
    ],
    ids=lambda words: " ".join(words) or "nothing",
)
def test_usage_errors_are_2(weightfs, tiny, tmp_path, words):
    (tmp_path / "mnt").mkdir()
    places = {"MODEL": tiny, "MNT": tmp_path / "mnt"}
    result = weightfs.run(*[places.get(word, word) for word in words], code=2)
    assert result.out == b"" and result.err
    assert not is_mounted(tmp_path / "mnt")


def test_a_bad_option_is_named(weightfs, tiny, tmp_path):
    (tmp_path / "mnt").mkdir()
    for word in ("no_such_option", "verify=sometimes"):
        assert word.split("=")[0] in weightfs.run(tiny, tmp_path / "mnt", "-o", f"ro,{word}", code=2).err


# --- ls and info -----------------------------------------------------------------------
def test_ls_table(weightfs, tiny):
    lines = weightfs.run("ls", tiny).text.splitlines()
    (row,) = [line for line in lines if "output.weight" in line]
    assert "Q8_0" in row and re.search(r"4\D+64", row) and "272" in row
    assert any("token_embd.weight" in line and "F32" in line for line in lines)
    assert re.search(r"\b2\b", lines[-1])  # totals


def test_ls_json(weightfs, tiny):
    found = weightfs.run("ls", tiny, "--json").json()
    assert list(found) == ["model", "tensors"]
    assert found["model"]["tensor_count"] == 2 and found["model"]["sealed"] is False
    model = gguf_file.plain()
    assert found["tensors"] == [
        {
            "name": name,
            "source_name": name,
            "dtype": dtype,
            "shape": shape,
            "nbytes": nbytes,
            "source": {"file": "tiny.gguf", "offset": model.place_of(name)},
        }
        for name, dtype, shape, nbytes in [("token_embd.weight", "F32", [8, 32], 1024), ("output.weight", "Q8_0", [4, 64], 272)]
    ]
    assert list(found["tensors"][0])[:5] == ["name", "source_name", "dtype", "shape", "nbytes"]


def test_json_is_utf8_and_ends_with_a_newline(weightfs, tmp_path):
    path = Gguf().tensor("\N{LLAMA}", "F32", (1,)).write(tmp_path / "m.gguf")
    for command in ("ls", "info", "map"):
        out = weightfs.run(command, path, "--json").out
        json.loads(out)
        assert out.endswith(b"\n") and not out.endswith(b"\n\n") and out.startswith(b'{\n  "')
    assert "\N{LLAMA}".encode() in weightfs.run("ls", path, "--json").out


def test_tables_do_not_let_names_reach_the_terminal_raw(weightfs, tmp_path):
    path = Gguf().tensor("red\x1b[31m\nname\x07", "F32", (1,)).key("general.name", "str", "\x1b]0;title\x07").write(tmp_path / "m.gguf")
    for command in ("ls", "info", "map"):
        out = weightfs.run(command, path).out
        assert b"\x1b]0;" not in out and b"\x07" not in out and b"\x1b[31m" not in out, command


def test_info(weightfs, tiny):
    said = weightfs.run("info", tiny).text
    for word in ("llama", "tiny", "Q8_0", "F32", "512"):  # 256 + 256 parameters
        assert word in said, word
    found = weightfs.run("info", tiny, "--json").json()
    flat = json.dumps(found)
    assert '"llama"' in flat and '"parameter_count": 512' in flat


def test_ls_of_a_model_with_odd_sizes_adds_up(weightfs, tmp_path):
    model = safetensors_file.plain()
    found = weightfs.run("ls", model.write(tmp_path / "m.safetensors"), "--json").json()
    assert sum(tensor["nbytes"] for tensor in found["tensors"]) == found["model"]["nbytes"] == 236


# --- cat -------------------------------------------------------------------------------
def test_cat(weightfs, tiny):
    model = gguf_file.plain()
    for name in ("token_embd.weight", "output.weight"):
        assert weightfs.run("cat", tiny, name).out == model.data_of(name)


def test_cat_as_npy(weightfs, tiny, tmp_path):
    (tmp_path / "t.npy").write_bytes(weightfs.run("cat", tiny, "token_embd.weight", "--as", "npy").out)
    loaded = np.load(tmp_path / "t.npy")
    assert loaded.shape == (8, 32) and loaded.tobytes() == gguf_file.plain().data_of("token_embd.weight")


def test_cat_of_no_such_tensor(weightfs, tiny):
    result = weightfs.run("cat", tiny, "outputs.weight", code=1)
    assert result.out == b"" and "outputs.weight" in result.err and "tiny.gguf" in result.err


def test_cat_into_a_closed_pipe_ends_quietly(weightfs, tmp_path):
    path = Gguf().tensor("a", "F32", (1 << 20,), bytes(4 << 20)).write(tmp_path / "m.gguf")
    done = subprocess.run(
        ["sh", "-c", '"$1" cat "$2" a | head -c 10 | wc -c', "sh", weightfs.binary, path],
        capture_output=True,
        text=True,
        timeout=20,
        env=weightfs.env,
    )
    assert done.stdout.strip() == "10" and done.stderr == ""
    many = Gguf()
    for number in range(20_000):
        many.tensor(f"t{number}", "F32", (1,))
    many.write(tmp_path / "many.gguf")
    for words in (["ls"], ["ls", "--json"], ["map"]):
        done = subprocess.run(
            ["sh", "-c", '"$0" "$@" | head -n 1', weightfs.binary, *words, tmp_path / "many.gguf"],
            capture_output=True,
            text=True,
            timeout=20,
            env=weightfs.env,
        )
        assert done.stdout.count("\n") == 1 and done.stderr == "", words


def test_cat_into_a_full_disk_says_so(weightfs, tiny):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([weightfs.binary, "cat", tiny, "token_embd.weight"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20, env=weightfs.env)
    assert done.returncode == 1 and done.stderr.startswith("weightfs: ")


# --- what a MODEL is -------------------------------------------------------------------
def test_a_missing_model(weightfs, tmp_path):
    for command in ("ls", "info", "map", "seal"):
        assert "none.gguf" in weightfs.run(command, tmp_path / "none.gguf", code=1).err


def test_an_unreadable_model(weightfs, tiny):
    if os.getuid() == 0:
        pytest.skip("root reads everything")
    os.chmod(tiny, 0)
    said = weightfs.run("ls", tiny, code=1).err
    assert "tiny.gguf" in said and os.strerror(errno.EACCES).lower() in said.lower()


def test_a_file_named_like_a_command(weightfs, mount, tmp_path):
    gguf_file.plain().write(tmp_path / "ls")
    point = mount.point()
    weightfs.run("./ls", point, cwd=tmp_path)
    assert is_mounted(point) and (point / "model.json").exists()
    weightfs.run("umount", point)
    weightfs.run("mount", "ls", point, cwd=tmp_path)
    assert is_mounted(point) and (point / "source/ls").exists()
    weightfs.run("umount", point)


def test_odd_file_names_as_arguments(weightfs, tmp_path):
    for name in ("two words.gguf", "\N{LLAMA}.gguf", "a,b.gguf", "-dash.gguf", "new\nline.gguf"):
        gguf_file.plain().write(tmp_path / name)
        assert weightfs.run("ls", f"./{name}", "--json", cwd=tmp_path).json()["tensors"][0]["source"]["file"] == name
    weightfs.run("ls", "--", "-dash.gguf", cwd=tmp_path)


def test_listing_touches_no_data(weightfs, tmp_path):  # C61
    path = tmp_path / "sparse.safetensors"
    size = 1 << 40
    header = {"a": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}, "b": {"dtype": "F32", "shape": [2], "data_offsets": [size, size + 8]}}
    path.write_bytes(safetensors_file.encode(header, b""))
    start = path.stat().st_size
    os.truncate(path, start + size + 8)
    found = promptly(0.5, lambda: weightfs.run("ls", path, "--json").json())
    words = ["sh", "-c", '"$1" cat "$2" a | head -c 40 | wc -c', "sh", weightfs.binary, path]
    done = promptly(0.5, lambda: subprocess.run(words, capture_output=True, text=True, timeout=20, env=weightfs.env))
    # All of it would be as many pages as a machine has memory.
    assert weightfs.run("ls", path).pages < 10_000
    assert found["model"]["nbytes"] == size + 8 and done.stdout.strip() == "40"
    assert weightfs.run("cat", path, "b").out == bytes(8)


# --- terminals -------------------------------------------------------------------------
def on_terminal(weightfs, *words):
    """Exit code, and what came on a terminal of standard output and error."""
    leader, follower = pty.openpty()
    child = subprocess.Popen([weightfs.binary, *map(str, words)], stdin=subprocess.DEVNULL, stdout=follower, stderr=follower, env=weightfs.env | {"TERM": "xterm", "COLUMNS": "80"})
    os.close(follower)
    said = b""
    try:
        while piece := os.read(leader, 65536):
            said += piece
    except OSError:
        pass  # the last writer has gone
    os.close(leader)
    return child.wait(60), said


def test_progress_on_a_terminal_and_nothing_otherwise(weightfs, tmp_path):
    path = Gguf().tensor("a", "F32", (48 << 20,), bytes(192 << 20)).write(tmp_path / "m.gguf")
    assert "\r" not in weightfs.run("seal", path, "--force").err
    code, said = on_terminal(weightfs, "seal", path, "--force")
    assert code == 0 and b"\r" in said
    assert weightfs.run("verify", path).err == ""


# --- limits ----------------------------------------------------------------------------
def test_ls_json_is_laid_out_as_every_document(weightfs, tmp_path):
    path = Gguf().tensor('a "\u00e9\n', "F32", (2, 3), bytes(24)).tensor("b", "F32", (), bytes(4)).write(tmp_path / "m.gguf")
    for model in (path, Gguf().write(tmp_path / "none.gguf")):
        said = weightfs.run("ls", model, "--json")
        assert said.text == json.dumps(said.json(), indent=2, ensure_ascii=False) + "\n"
        assert list(said.json()) == ["model", "tensors"]
        for tensor in said.json()["tensors"]:
            assert list(tensor) == ["name", "source_name", "dtype", "shape", "nbytes", "source"]
            assert list(tensor["source"]) == ["file", "offset"]


def test_no_message_is_without_end(weightfs, tiny, tmp_path):
    long = "x" * 100_000
    for words in (["ls", tiny, long], ["cat", tiny, long], [tiny, tmp_path, "-o", long], [tiny, tmp_path, "-o", f"verify={long}"]):
        said = weightfs.run(*words, code=None)
        assert said.code in (1, 2) and 0 < len(said.err) < 4100, said.err[:300]
        assert said.err.startswith("weightfs: ") and ("..." in said.err or '~"' in said.err)
    said = weightfs.run("cat", tiny, long, code=1).err
    assert "tiny.gguf" in said


def test_cat_names_the_model_whose_tensor_has_no_such_form(weightfs, tmp_path):
    path = Gguf().tensor("a", "I32", (2,), bytes(8)).write(tmp_path / "m.gguf")
    said = weightfs.run("cat", path, "a", "--as", "f32", code=1).err
    assert f"{path}: tensor" in said and "no values" in said


def test_set_takes_files_and_pipes_of_some_size(weightfs, tiny, tmp_path):
    (tmp_path / "mnt").mkdir()
    (tmp_path / "long").touch()
    os.truncate(tmp_path / "long", (64 << 20) + 1)
    for file in ("/dev/zero", tmp_path / "long"):
        said = weightfs.run(tiny, tmp_path / "mnt", "-o", f"set=a=@{file}", code=1).err
        assert str(64 << 20) in said and str(file) in said, said


def test_a_log_that_is_a_pipe_is_refused_at_once(weightfs, tiny, tmp_path):
    (tmp_path / "mnt").mkdir()
    os.mkfifo(tmp_path / "pipe")
    said = weightfs.run(tiny, tmp_path / "mnt", "-o", f"log={tmp_path / 'pipe'}", code=1, timeout=10).err
    assert "pipe" in said and "regular file" in said


@pytest.mark.parametrize("point", ["/", "/proc", "/proc/self/task", "/sys", "/sys/kernel", "/dev", "/dev/pts"])
def test_directories_of_the_system_are_not_mounted_on(weightfs, tiny, point):
    if os.path.isdir(point):
        said = weightfs.run(tiny, point, code=1).err
        assert "choose another" in said and "/" in said, said
        assert not os.path.exists(os.path.join(point, "model.json"))


def test_a_target_without_end_is_refused(weightfs, tiny, tmp_path):
    (tmp_path / "map.json").write_text(json.dumps({"weightfs_map": 1, "rules": [{"regex": "(.*)", "to": "${1}" * 1_000_000}]}))
    said = weightfs.run("map", tiny, "--map", tmp_path / "map.json", code=1).err
    assert "map.json" in said and len(said) < 2000


def test_info_fits_a_narrow_window_and_a_wide_one(weightfs, tmp_path):
    model = Gguf().key("general.architecture", "str", "llama")
    for number, kind in enumerate(("F32", "Q8_0", "Q4_K", "Q6_K")):
        model.tensor(f"t{number}", kind, (4, 256))
    path = model.write(tmp_path / "m.gguf")
    for columns, bar in ((40, 0), (50, 8), (100, 24)):
        lines = weightfs.run("info", path, env={"COLUMNS": str(columns), "LC_ALL": "C"}).text.splitlines()
        shares = lines[lines.index("dtypes by bytes") + 1 :][:4]
        assert all(len(re.findall("[#.]", line.split("%")[0].rsplit(" ", 2)[0])) == bar for line in shares), shares
        assert max(map(len, shares)) <= columns, shares
