"""What a daemon has given up once the mount is ready."""
import json
import os
import time

import gguf_file
import pytest
from gguf_file import Gguf, pattern


@pytest.fixture
def tiny(tmp_path):
    return gguf_file.plain().write(tmp_path / "tiny.gguf")


def tasks(pid):
    return [f"/proc/{pid}/task/{task}" for task in os.listdir(f"/proc/{pid}/task")]


def test_every_thread_has_given_up_new_privileges(mount, tiny):
    mounted = mount(tiny)
    (mounted / "model.json").read_bytes()
    for task in tasks(mounted.pid):
        with open(f"{task}/status") as file:
            assert "NoNewPrivs:\t1\n" in file.read(), task
    status = json.loads((mounted / ".weightfs/status.json").read_text())
    assert "no_new_privs" in status["confined"].split(",")
    assert status["rss_bytes"] > 0


def test_a_confined_daemon_keeps_what_it_saw(weightfs, mount, tiny, tmp_path):
    cache = tmp_path / "cache"
    mounted = mount(tiny, env={"XDG_CACHE_HOME": str(cache)})
    for file in (mounted.path / "source").iterdir():
        file.read_bytes()
    mounted.unmount()
    end = time.monotonic() + 10
    while not (kept := list((cache / "weightfs/tofu").glob("*"))) and time.monotonic() < end:
        time.sleep(0.05)
    assert len(kept) == 1


def test_the_keeper_holds_nothing_of_the_daemon(mount, tiny):
    mounted = mount(tiny)
    with open(f"/proc/{mounted.pid}/task/{mounted.pid}/children") as file:
        keepers = file.read().split()
    assert len(keepers) == 1
    fds = f"/proc/{keepers[0]}/fd"
    open_files = {os.readlink(f"{fds}/{fd}").split(":")[0] for fd in os.listdir(fds)}
    assert open_files == {"socket", "/dev/null"}
