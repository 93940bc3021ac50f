"""A model on many machines: sealed and verified by the workers of a cluster, mounted by a DaemonSet."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

import gguf_file
from gguf_file import Gguf, pattern
from mounting import shell, wait_until
from safetensors_file import Safetensors, sharded, snapshot

EXAMPLES = Path(__file__).resolve().parents[2] / "scripts" / "examples"
MIB = 1 << 20
SECONDS = 300  # a net, also for a machine that has other things to do


# --- sealing by many -------------------------------------------------------------------


@pytest.fixture
def cluster(weightfs, tmp_path):
    """cluster(COMMAND, MODEL): the example on as many workers as there are cores."""
    programs, scratch = tmp_path / "bin", tmp_path / "scratch"
    programs.mkdir()
    scratch.mkdir()
    (programs / "weightfs").symlink_to(weightfs.binary)
    env = weightfs.env | {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "DASK_TEMPORARY_DIRECTORY": str(scratch),
    }

    def run(command, model, code=0):
        words = [sys.executable, "-B", EXAMPLES / "seal_cluster.py", command, model]
        # A group of its own: what a killed worker leaves goes with the test.
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
        try:
            run.out, run.err = process.communicate(timeout=SECONDS)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == code, f"exit {process.returncode}, not {code}\n{run.err}\n{run.out}"
        return run.out

    run.programs, run.env = programs, env
    return run


def checkpoint(folder, files=5):
    folder.mkdir(exist_ok=True)
    shards = [
        Safetensors({"format": "pt"}).tensor(f"{i}.w", "F32", (300, 1000)).tensor(f"{i}.b", "BF16", (1000 + i,)) for i in range(files)
    ]
    sharded(shards, folder)
    return folder


def seal_of(folder):
    (found,) = folder.glob("*.weightfs.json")
    return found


def without_time(path):
    """The bytes of a seal but for when it was made, and but for the digest over that."""
    text, n = re.subn(rb'"created":"[^"]*"', b'"created":""', path.read_bytes())
    assert n == 1
    text, n = re.subn(rb'"body_sha256":"[0-9a-f]{64}"', b'"body_sha256":""', text)
    assert n == 1
    return text


def sealed_by_one(weightfs, folder):
    """The seal that one machine makes, without its time; none is left there."""
    weightfs.run("seal", folder)
    text = without_time(seal_of(folder))
    seal_of(folder).unlink()
    return text


@pytest.mark.patience(2 * SECONDS)
def test_a_cluster_makes_the_seal_that_one_machine_makes(weightfs, cluster, tmp_path):
    folder = checkpoint(tmp_path / "model")
    alone = sealed_by_one(weightfs, folder)
    told = cluster("seal", folder)
    assert without_time(seal_of(folder)) == alone
    assert all(f"-{i:05d}-of-00005.safetensors: sealed" in told for i in range(1, 6))
    assert not list(folder.glob("*part*")), "parts are left"
    # The same workers verify it, each its files.
    told = cluster("verify", folder)
    assert all(f"-{i:05d}-of-00005.safetensors: good (" in told for i in range(1, 6))


@pytest.mark.patience(2 * SECONDS)
def test_a_cluster_seals_a_split_gguf_named_by_a_later_part(weightfs, cluster, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    files = [gguf_file.plain(), Gguf().tensor("blk.1.weight", "F16", (400, 400)), Gguf().tensor("blk.2.weight", "Q8_0", (200, 320))]
    paths = gguf_file.split(files, "m", folder)
    weightfs.run("seal", paths[0])
    alone = without_time(seal_of(folder))
    seal_of(folder).unlink()
    cluster("seal", paths[2])
    assert without_time(seal_of(folder)) == alone


@pytest.mark.patience(2 * SECONDS)
def test_a_cluster_seals_a_snapshot_beside_its_links(weightfs, cluster, tmp_path):
    """The files of a Hugging Face snapshot are links into the folder of the blobs, where no file has a name."""
    made = checkpoint(tmp_path / "made", files=2)
    folder = snapshot({path.name: path for path in made.iterdir()}, tmp_path / "hub")
    alone = sealed_by_one(weightfs, folder)
    cluster("seal", folder / "model.safetensors.index.json")
    assert without_time(seal_of(folder)) == alone


@pytest.mark.patience(2 * SECONDS)
@pytest.mark.parametrize("how", ["before", "beside"])
def test_a_worker_killed_half_way_is_made_good(weightfs, cluster, tmp_path, how):
    """before: with its command; beside: its command goes on alone, and races the one of the next worker."""
    folder = checkpoint(tmp_path / "model")
    alone = sealed_by_one(weightfs, folder)
    mark = tmp_path / "killed"
    go_on = f'"{weightfs.binary}" "$@" &' if how == "beside" else ""
    script = f"""#!/bin/sh
if [ "$2" = --part ] && mkdir "{mark}" 2>/dev/null; then {go_on} kill -9 $PPID; exit 1; fi
exec "{weightfs.binary}" "$@"
"""
    (cluster.programs / "weightfs").unlink()
    (cluster.programs / "weightfs").write_text(script)
    (cluster.programs / "weightfs").chmod(0o755)
    cluster("seal", folder)
    assert mark.exists(), "no worker was killed"
    assert without_time(seal_of(folder)) == alone


@pytest.mark.patience(2 * SECONDS)
def test_a_file_that_cannot_be_sealed_is_named_and_nothing_is_merged(cluster, tmp_path):
    folder = checkpoint(tmp_path / "model")
    third = folder / "model-00003-of-00005.safetensors"
    # Its header is sound, so that the model can be listed; the download was another one.
    (folder / "SHA256SUMS").write_text(f"{'0' * 64}  {third.name}\n")
    cluster("seal", folder, code=1)
    assert f"{third}: " in run_errors(cluster.err) and "1 of 5 files failed" in cluster.err
    assert not list(folder.glob("*.weightfs.json"))


@pytest.mark.patience(2 * SECONDS)
def test_a_damaged_file_is_named_by_its_worker(weightfs, cluster, tmp_path):
    folder = checkpoint(tmp_path / "model")
    weightfs.run("seal", folder)
    third = folder / "model-00003-of-00005.safetensors"
    with open(third, "r+b") as file:
        file.seek(700_000)
        file.write(b"damage")
    told = cluster("verify", folder, code=1)
    assert told.count(": good (") == 4
    assert f"{third}: " in run_errors(cluster.err) and "1 of 5 files failed" in cluster.err
    assert re.search(r"^ +2\.w +10 +model-00003-of-00005.safetensors ", cluster.err, re.M), cluster.err


def run_errors(err):
    """Without what the engine itself logs."""
    return "\n".join(line for line in err.splitlines() if not re.match(r"\d{4}-\d\d-\d\d ", line))


# --- a DaemonSet -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def documents():
    return list(yaml.safe_load_all((EXAMPLES / "kubernetes-daemonset.yaml").read_text()))


def test_kubernetes_knows_every_field(documents):
    """Against the schemas of Kubernetes itself, which know what is required and allow nothing else."""
    for document in documents:
        for version in ("1.30", "1.37"):
            kubernetes_validate.validate(document, version, strict=True)


def test_what_the_schemas_do_not_say(documents):
    """Rules that the API server or the kubelet enforce, between fields."""
    daemon, reader = documents
    pod = daemon["spec"]["template"]
    labels = daemon["spec"]["selector"]["matchLabels"]
    assert labels.items() <= pod["metadata"]["labels"].items()
    for spec in (pod["spec"], reader["spec"]):
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        for container in spec["containers"]:
            for mounted in container["volumeMounts"]:
                assert mounted["name"] in volumes
                if mounted.get("mountPropagation") == "Bidirectional":
                    assert container["securityContext"]["privileged"] is True
                    assert not mounted.get("readOnly")
    # What one pod mounts is where the other looks.
    (daemon_container,), (reader_container,) = pod["spec"]["containers"], reader["spec"]["containers"]
    shared = {v["name"]: v["hostPath"]["path"] for v in pod["spec"]["volumes"] + reader["spec"]["volumes"]}
    places = {m["mountPropagation"]: (shared[m["name"]], m["mountPath"]) for c in (daemon_container, reader_container) for m in c["volumeMounts"] if "mountPropagation" in m}
    assert places["Bidirectional"][0] == places["HostToContainer"][0]
    point = places["Bidirectional"][1] + "/llama"
    assert reader_container["command"][1].startswith(places["HostToContainer"][1] + "/llama/")
    for command in commands(daemon_container).values():
        assert point in " ".join(command)


def commands(container):
    """Everything that is run in the container."""
    return {
        "mount": container["command"],
        "startup": container["startupProbe"]["exec"]["command"],
        "ready": container["readinessProbe"]["exec"]["command"],
        "stop": container["lifecycle"]["preStop"]["exec"]["command"],
    }


def test_its_commands_do_what_they_say_and_the_node_sees_it(weightfs, root, tmp_path, documents):
    """The container is a mount namespace below a directory that passes mounts on, as Bidirectional does."""
    (container,) = documents[0]["spec"]["template"]["spec"]["containers"]
    models, node, programs = tmp_path / "models", tmp_path / "node", tmp_path / "bin"
    for folder in (models / "llama", node, programs):
        folder.mkdir(parents=True)
    (programs / "weightfs").symlink_to(weightfs.binary)
    path = Gguf().tensor("a", "F32", (MIB // 4,), pattern(MIB)).write(models / "llama" / "m.gguf")
    point = node / "llama"
    inside = {"/models": models, "/mnt/weightfs": node}
    env = weightfs.env | {"PATH": f"{programs}:{os.environ['PATH']}"}

    def there(word):
        for name, place in inside.items():
            word = re.sub(rf"(?<![\w/]){name}(?=/)", str(place), word)
        return word

    def command(name):
        return [there(word) for word in commands(container)[name]]

    def start():
        """The container's process; unshare becomes it."""
        return subprocess.Popen(["unshare", "-m", "--propagation", "unchanged", *command("mount")], env=env, stderr=subprocess.PIPE, text=True)

    def in_container(process, name):
        return subprocess.run(["nsenter", "-t", str(process.pid), "-m", *command(name)], env=env, capture_output=True, text=True, timeout=30)

    shell('mount --bind "$1" "$1" && mount --make-shared "$1"', node)
    try:
        # Unsealed, it refuses, and is not started again in vain for long: it says why.
        refused = start()
        assert "seal=require" in refused.communicate(timeout=30)[1]
        assert refused.returncode == 4
        weightfs.run("seal", path)

        process = start()
        wait_until(lambda: in_container(process, "startup").returncode == 0, 20, "the mount")
        assert (point / "tensors" / "a.bin").read_bytes() == pattern(MIB)
        assert in_container(process, "ready").returncode == 0

        # Killed: what it leaves is cleared by the next one.
        process.kill()
        process.communicate()
        assert subprocess.run(command("ready"), env=env, capture_output=True).returncode != 0
        process = start()
        wait_until(lambda: in_container(process, "startup").returncode == 0, 20, "the mount after a kill")
        with open(point / "tensors" / "a.bin", "rb") as file:
            stopped = in_container(process, "stop")
            assert stopped.returncode == 0, stopped.stderr
            assert not os.path.ismount(point)
            assert file.read() == pattern(MIB), "who has a file open finishes with it"
        wait_until(lambda: process.poll() is not None, 20, "the end of the container")
        assert process.returncode == 0
        process.communicate()

        # Asked to end without the hook: the signal reaches weightfs, not only the shell.
        process = start()
        wait_until(lambda: in_container(process, "startup").returncode == 0, 20, "the mount after a stop")
        process.terminate()
        process.communicate(timeout=30)
        assert not os.path.ismount(point)
    finally:
        for place in (point, node):
            while shell('umount -l "$1"', place, code=None).code == 0:
                pass
