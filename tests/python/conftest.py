"""What the tests share: the program, mounts that always come down, the real models."""

import os
import subprocess
from pathlib import Path

import pytest

from mounting import TEST_SECONDS, Mounts, Weightfs, watchdog

ROOT = Path(__file__).resolve().parents[2]
SKIP_MOUNTS = os.environ.get("WEIGHTFS_SKIP_MOUNT_TESTS") == "1"


def binary():
    for path in (os.environ.get("WEIGHTFS_BIN"), ROOT / "target/release/weightfs", ROOT / "target/debug/weightfs"):
        if path and Path(path).exists():
            return Path(path).resolve()
    return None


def program(home):
    found = binary()
    if found is None:
        pytest.fail("no weightfs to test: cargo build --release, or set WEIGHTFS_BIN")
    return Weightfs(found, home)


def pytest_report_header():
    return [
        f"weightfs: {binary() or 'not built'}",
        f"as: uid {os.getuid()}",
        "mounts: SKIPPED (WEIGHTFS_SKIP_MOUNT_TESTS=1)" if SKIP_MOUNTS else "mounts: through /dev/fuse",
    ]


def needs_mounts():
    if SKIP_MOUNTS:
        pytest.skip("WEIGHTFS_SKIP_MOUNT_TESTS=1")


@pytest.fixture(autouse=True)
def limit(request):
    """No test waits for a mount for ever; patience(SECONDS) asks for more time."""
    asked = request.node.get_closest_marker("patience")
    with watchdog(asked.args[0] if asked else TEST_SECONDS):
        yield


@pytest.fixture
def weightfs(tmp_path):
    """The program with a home of its own."""
    return program(tmp_path / "home")


@pytest.fixture
def mount(weightfs, tmp_path):
    """mount(MODEL, OPTION...): a mount that goes when the test ends."""
    needs_mounts()
    mounts = Mounts(weightfs, tmp_path)
    yield mounts
    mounts.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A directory, and mounts in it, for all tests of one file."""
    directory = tmp_path_factory.mktemp("shared")
    mounts = Mounts(program(directory / "home"), directory)
    yield mounts
    mounts.close()


@pytest.fixture(scope="module")
def shared_mount(shared):
    needs_mounts()
    return shared


@pytest.fixture
def root():
    if os.getuid() != 0:
        pytest.skip("needs root")


@pytest.fixture(scope="session")
def models():
    """The folder of the two real models."""
    given = os.environ.get("WEIGHTFS_TEST_MODELS")
    if given:
        return Path(given)
    done = subprocess.run([ROOT / "scripts" / "fetch-models"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())
