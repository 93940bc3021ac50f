"""The Debian package and `cargo install`: built, looked at, really installed (in an overlay), used, removed."""

import gzip
import os
import pty
import re
import select
import shutil
import subprocess
import time

import gguf_file
import pytest
from conftest import ROOT, needs_mounts
from machine import Machine, NoMachine, needed

DATA = gguf_file.plain().data_of("output.weight")
BUILD_SECONDS = 900  # where scripts/test has not built it all already

with open(ROOT / "Cargo.toml", encoding="utf-8") as file:
    VERSION = re.search(r'^version = "(.+)"$', file.read(), re.M).group(1)

# {path in the package: mode}
CONTENTS = {
    "usr/bin/weightfs": "-rwxr-xr-x",
    "usr/lib/systemd/system/weightfs@.service": "-rw-r--r--",
    "usr/share/bash-completion/completions/weightfs": "-rw-r--r--",
    "usr/share/zsh/vendor-completions/_weightfs": "-rw-r--r--",
    "usr/share/fish/vendor_completions.d/weightfs.fish": "-rw-r--r--",
    "usr/share/man/man1/weightfs.1.gz": "-rw-r--r--",
    "usr/share/doc/weightfs/README.md": "-rw-r--r--",
    "usr/share/doc/weightfs/changelog.Debian.gz": "-rw-r--r--",
    "usr/share/doc/weightfs/copyright": "-rw-r--r--",
    "usr/share/doc/weightfs/examples/example.conf": "-rw-r--r--",
}


def said(*words, **options):
    return subprocess.run(words, check=True, capture_output=True, text=True, timeout=60, **options).stdout


@pytest.fixture(scope="module")
def deb(tmp_path_factory):
    """The package, built without root's rights, in a directory that the overlay sees."""
    if missing := needed("dpkg-deb", "dpkg-shlibdeps"):
        pytest.skip(f"no Debian packages are made here: {missing} not found")
    words = [ROOT / "scripts/packaging/deb"]
    if os.getuid() == 0:
        words = ["unshare", "--map-user=1000", "--map-group=1000", *words]  # owner of the same files, without a single capability
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS)
    assert done.returncode == 0, done.stderr
    built = done.stdout.rstrip("\n")
    assert built.endswith(".deb") and "\n" not in built, done.stdout
    directory = tmp_path_factory.mktemp("package")
    return shutil.copy(built, directory)


@pytest.fixture(scope="module")
def unpacked(deb, tmp_path_factory):
    directory = tmp_path_factory.mktemp("unpacked")
    said("dpkg-deb", "-x", deb, directory)
    return directory


# --- what is in it -------------------------------------------------------------------------
@pytest.mark.patience(BUILD_SECONDS)
def test_every_file_is_where_its_reader_looks_and_root_s(deb):
    found = {}
    for line in said("dpkg-deb", "-c", deb).splitlines():
        mode, owner, *_, path = line.split()
        assert owner in ("0/0", "root/root"), line
        if mode.startswith("d"):
            assert mode == "drwxr-xr-x", line
        else:
            found[path.removeprefix("./")] = mode
    assert found == CONTENTS


def test_the_fields(deb):
    field = lambda name: said("dpkg-deb", "-f", deb, name).strip()  # noqa: E731
    assert field("Package") == "weightfs" and field("Version").split("-")[0] == VERSION
    depends = [word.split()[0] for word in field("Depends").split(", ")]
    assert "fuse3" in depends and "libc6" in depends
    assert field("Section") == "utils" and field("Maintainer")
    assert len(field("Description").splitlines()[0]) <= 80


def test_copies_are_those_of_this_program(unpacked, weightfs):
    assert said(unpacked / "usr/bin/weightfs", "--version") == f"weightfs {VERSION}\n"
    page = gzip.decompress((unpacked / "usr/share/man/man1/weightfs.1.gz").read_bytes())
    assert page == (ROOT / "man/weightfs.1").read_bytes()
    for shell, path in (
        ("bash", "bash-completion/completions/weightfs"),
        ("zsh", "zsh/vendor-completions/_weightfs"),
        ("fish", "fish/vendor_completions.d/weightfs.fish"),
    ):
        assert (unpacked / "usr/share" / path).read_bytes() == weightfs.run("completions", shell).out
    unit = (unpacked / "usr/lib/systemd/system/weightfs@.service").read_bytes()
    assert unit == (ROOT / "scripts/packaging/weightfs@.service").read_bytes()


def test_the_changelog_begins_with_this_version_and_the_maintainer_of_the_package(unpacked, deb):
    log = gzip.decompress((unpacked / "usr/share/doc/weightfs/changelog.Debian.gz").read_bytes()).decode()
    assert log.startswith(f"weightfs ({VERSION}-1) ")
    assert f" -- {said('dpkg-deb', '-f', deb, 'Maintainer').strip()}  " in log


def test_lintian_finds_no_error(deb):
    if missing := needed("lintian"):
        pytest.skip(f"{missing} not found")
    done = subprocess.run(["lintian", "--allow-root", "--fail-on", "error", deb], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


# --- installed -------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def installed(deb, tmp_path_factory):
    """A machine where dpkg -i has installed it; taken away again in the last test."""
    directory = tmp_path_factory.mktemp("installed")
    try:
        machine = Machine(directory)
    except NoMachine as reason:
        pytest.skip(f"nowhere to install it: {reason}")
    machine.run('dpkg -i "$1"', deb)
    yield machine
    machine.close()


def test_the_installed_program_mounts_and_is_found_by_mount_8(installed, tmp_path):
    needs_mounts()
    gguf_file.plain().write(tmp_path / "tiny.gguf")
    (tmp_path / "mnt").mkdir()
    done = installed.run(
        """cd "$1"
weightfs --version
weightfs tiny.gguf mnt && wc -c <mnt/tensors/output.weight.bin && weightfs umount mnt || exit 9
echo "$1/tiny.gguf $1/mnt fuse.weightfs nofail,x-systemd.automount 0 0" >>/etc/fstab
mount "$1/mnt" && cmp mnt/source/tiny.gguf tiny.gguf && umount "$1/mnt" && mountpoint mnt
[ $? = 32 ]
""",
        tmp_path,
    )
    assert done.stdout.split()[:3] == ["weightfs", VERSION, str(len(DATA))]


def test_the_man_page_is_found_and_renders_without_a_warning(installed):
    if missing := needed("man"):
        pytest.skip(f"{missing} not found")
    done = installed.run("MANPAGER=cat MANWIDTH=80 man --warnings weightfs")
    assert "WEIGHTFS(1)" in done.stdout and "MOUNT OPTIONS" in done.stdout and done.stderr == ""
    assert "auto_unmount" in done.stdout
    done = installed.run("whatis weightfs")
    assert "weightfs (1)" in done.stdout


def test_the_unit_is_found_with_its_program_and_manual(installed):
    if missing := needed("systemd-analyze"):
        pytest.skip(f"{missing} not found")
    done = installed.run("systemd-analyze verify weightfs@tiny.service")
    assert done.stdout + done.stderr == ""


class Terminal:
    """An interactive shell in the machine; type() and wait for what it shows."""

    def __init__(self, words):
        master, slave = pty.openpty()
        self.master = master
        self.shown = b""
        self.process = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", "TERM": "dumb", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
        os.close(slave)

    def type(self, text):
        os.write(self.master, text.encode())

    def wait_for(self, text, seconds=30):
        limit = time.monotonic() + seconds
        while text.encode() not in self.shown:
            left = limit - time.monotonic()
            assert left > 0, f"{text!r} was not shown: {self.shown!r}"
            if select.select([self.master], [], [], left)[0]:
                try:
                    self.shown += os.read(self.master, 4096)
                except OSError:
                    raise AssertionError(f"{text!r} was not shown: {self.shown!r}") from None
        self.shown = self.shown.partition(text.encode())[2]

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.master)


SHELLS = {
    # The file is loaded by bash-completion when the word is first completed.
    "bash": (["bash", "--norc", "--noprofile", "-i"], "PS1='> '; . /usr/share/bash-completion/bash_completion; echo read''y\n"),
    "zsh": (["zsh", "-f", "-i"], "PS1='> '; autoload -U compinit; compinit -u -D; echo read''y\n"),
}


@pytest.mark.parametrize("shell", SHELLS)
def test_tab_completes_a_command(installed, shell):
    words, setup = SHELLS[shell]
    if missing := needed(shell):
        pytest.skip(f"{missing} not found")
    if shell == "bash" and not os.path.exists("/usr/share/bash-completion/bash_completion"):
        pytest.skip("bash-completion is not installed")
    terminal = Terminal(installed.enter(*words))
    try:
        terminal.type(setup)
        terminal.wait_for("ready")
        terminal.wait_for("> ")
        terminal.type("weightfs se\t")
        terminal.wait_for("seal ")
        terminal.type("--chunk\t")
        terminal.wait_for("--chunk-size")
    finally:
        terminal.close()


def test_fish_completes_a_command(installed):
    if missing := needed("fish"):
        pytest.skip(f"{missing} not found")
    done = installed.run('fish -c \'complete -C "weightfs se"\'', env={"HOME": "/tmp"})
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["seal"]


def test_purging_leaves_nothing(installed):
    """The last: the machine goes after it."""
    installed.run("dpkg --no-triggers -P weightfs")
    done = installed.run('for f in "$@"; do [ ! -e "/$f" ] || echo "$f"; done', *CONTENTS)
    assert done.stdout == ""
    installed.run("dpkg -s weightfs", code=1)


# --- without a package -----------------------------------------------------------------------
@pytest.mark.patience(BUILD_SECONDS)
def test_cargo_install(tmp_path):
    """The crate installs itself as README says; the release build is used again."""
    words = ["cargo", "install", "--quiet", "--locked", "--offline", "--path", ROOT, "--root", tmp_path]
    done = subprocess.run([*words, "--target-dir", os.environ.get("CARGO_TARGET_DIR", ROOT / "target")], capture_output=True, text=True, timeout=BUILD_SECONDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert said(tmp_path / "bin/weightfs", "--version") == f"weightfs {VERSION}\n"
    assert os.listdir(tmp_path / "bin") == ["weightfs"]
