"""Lists of digests as they come: through pipes, under the stem's name, of kinds that are not computed."""

import hashlib
import subprocess

import pytest

from gguf_file import Gguf


def sha(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def model(tmp_path):
    return Gguf().tensor("a", "F32", (64,)).write(tmp_path / "m.gguf")


def verify(weightfs, script, *words):
    done = subprocess.run(["bash", "-c", script, weightfs.binary, *map(str, words)], env=weightfs.env, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "script",
    [
        '"$0" verify "$1" --against <(echo "$2  m.gguf")',
        'echo "$2  m.gguf" | "$0" verify "$1" --against /dev/stdin',
        'echo "$2  m.gguf" | "$0" verify "$1" --against -',
        'echo "$2 *m.gguf" | "$0" verify "$1" "$1" --against -',
        '"$0" verify "$1" --against - <<<"$2"',
        'mkfifo "$1.pipe"; echo "$2" >"$1.pipe" & "$0" verify "$1" --against "$1.pipe"',
    ],
)
def test_a_list_through_a_pipe(weightfs, model, script):
    code, said = verify(weightfs, script, model, sha(model))
    assert code == 0 and "/proc/self" not in said, said
    code, said = verify(weightfs, script, model, "0" * 64)
    assert code == 3 and "/proc/self" not in said, said


def test_a_seal_through_a_pipe(weightfs, model, tmp_path):
    weightfs.run("seal", model, "--output", tmp_path / "s.json")
    script = '"$0" verify "$1" --against <(cat "$2")'
    assert verify(weightfs, script, model, tmp_path / "s.json")[0] == 0
    model.write_bytes(model.read_bytes()[:-4] + b"\1\2\3\4")
    assert verify(weightfs, script, model, tmp_path / "s.json")[0] == 3


def test_what_is_no_list_is_told_by_the_name_that_was_typed(weightfs, model, tmp_path):
    code, said = verify(weightfs, 'echo hello | "$0" verify "$1" --against -', model)
    assert code == 1 and "weightfs: -: no list of digests" in said, said
    said = weightfs.run("verify", model, "--against", "/dev/zero", code=1).err
    assert "/dev/zero: at most 67108864 bytes" in said
    assert "neither a regular file nor a pipe" in weightfs.run("verify", model, "--against", tmp_path, code=1).err
    assert weightfs.run("verify", model, "--against", "-", code=1).err, "/dev/null says nothing"


@pytest.mark.parametrize(("kind", "digits", "name"), [("sha1", 40, "SHA-1"), ("xxh3", 16, "XXH3")])
def test_digests_of_gguf_hash_that_are_not_computed_are_told(weightfs, model, tmp_path, kind, digits, name):
    digest = "0" * digits
    manifest = tmp_path / "list"
    manifest.write_text(f"{kind:<8}  {digest}  m.gguf:a\n{kind:<8}  {digest}  m.gguf\n")
    said = weightfs.run("verify", model, "--against", manifest, code=4).err
    assert name in said and "no line for" not in said
    # With another that is computed there is nothing to say.
    tensor = hashlib.sha256(tensor_of(model)).hexdigest()
    manifest.write_text(f"{kind:<8}  {digest}  m.gguf\nsha256    {tensor}  m.gguf:a\n")
    assert name not in weightfs.run("verify", model, "--against", manifest).err


def tensor_of(path):
    return path.read_bytes()[-256:]


@pytest.mark.parametrize("line", ["{sha}\n", "{sha}  m.gguf\n"])
def test_a_list_under_the_name_of_the_stem(weightfs, model, tmp_path, line):
    (tmp_path / "m.sha256").write_text(line.format(sha=sha(model)))
    weightfs.run("verify", model)
    (tmp_path / "m.sha256").write_text(line.format(sha="0" * 64))
    assert weightfs.run("verify", model, code=3).text
    for other in ("m.safetensors", "m"):
        (tmp_path / other).write_bytes(b"x")
        weightfs.run("verify", model, code=4)
        (tmp_path / other).unlink()
