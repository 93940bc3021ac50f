"""Mounts of an ordinary user, and who may read whose mount.

As root these tests make the user: a private mount namespace whose /dev/fuse anybody
may open, and "nobody" in it. As an ordinary user they run as they are.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

import gguf_file
from conftest import needs_mounts

NOBODY = 65534


class User:
    """A directory of the user's own, with the program in it, and a shell in the namespace."""

    def __init__(self, weightfs, directory):
        self.directory = Path(directory)
        shutil.copy(weightfs.binary, self.directory / "weightfs")
        gguf_file.plain().write(self.directory / "tiny.gguf")
        (self.directory / "mnt").mkdir()
        self.env = {
            "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
            "LC_ALL": "C.UTF-8",
            "HOME": str(self.directory),
            "XDG_CACHE_HOME": str(self.directory / "cache"),
            "XDG_STATE_HOME": str(self.directory / "state"),
        }
        if os.getuid() == 0:
            for path in [self.directory, *self.directory.iterdir()]:
                os.chown(path, NOBODY, NOBODY)

    def run(self, script, setup="", env=None, timeout=60, code=0):
        """Run a script as the user, in the user's directory; setup is run before, as root.

        The script's processes and mounts are gone afterwards, whatever it did.
        """
        clean = 'trap \'for p in "$PWD"/mnt*; do fusermount3 -u -z "$p" 2>/dev/null; done\' EXIT\n'
        words = ["sh", "-c", f"cd {self.directory} || exit 97\n{clean}{script}"]
        if os.getuid() == 0:
            node = f'mount -t tmpfs tmpfs "$1" && mknod -m 0666 "$1/fuse" c 10 229 && mount --bind "$1/fuse" /dev/fuse || exit 98\n{setup}\n'
            drop = f"shift; exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups "
            (self.directory / "dev").mkdir(exist_ok=True)
            words = ["unshare", "-m", "-p", "-f", "--kill-child", "--mount-proc", "--propagation", "private", "sh", "-c", node + drop + '-- "$@"', "sh", str(self.directory / "dev"), *words]
        elif setup:
            pytest.skip("needs root to prepare the namespace")
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, env=self.env | (env or {}))
        assert "panicked" not in done.stderr, done.stderr
        assert done.returncode == code, f"exit {done.returncode}: {done.stderr}"
        return done


@pytest.fixture
def user(weightfs):
    needs_mounts()
    if shutil.which("fusermount3") is None:
        pytest.fail("fusermount3 is not installed")
    with tempfile.TemporaryDirectory(prefix="weightfs-user-") as directory:
        os.chmod(directory, 0o755)
        yield User(weightfs, directory)


def test_an_ordinary_user_mounts_through_fusermount3(user):
    done = user.run("""
./weightfs tiny.gguf mnt || exit 9
cat mnt/tensors/output.weight.bin >copy
stat -c '%u %a %s' mnt/tensors/output.weight.bin
grep " $PWD/mnt " /proc/self/mounts
./weightfs umount mnt || exit 8
grep -c " $PWD/mnt " /proc/self/mounts
true
""")
    uid, mode, size, source, point, kind, *_ = done.stdout.split()
    owner = NOBODY if os.getuid() == 0 else os.getuid()
    assert (int(uid), mode, size) == (owner, "444", "272")
    assert kind == "fuse.weightfs" and f"user_id={owner}" in done.stdout
    assert done.stdout.split()[-1] == "0"
    assert (user.directory / "copy").read_bytes() == gguf_file.plain().data_of("output.weight")


def test_an_ordinary_user_mounts_all_models_of_a_directory(user):
    """One of them, and a directory, is not for the user to read."""
    done = user.run("""
mkdir -p models/a models/b models/c models/shut
for m in a b c shut; do cp tiny.gguf models/$m/m.gguf; done
chmod 0 models/c/m.gguf models/shut
./weightfs mount --recursive models mnt || exit 9
ls mnt
cmp mnt/a/tensors/output.weight.bin mnt/b/tensors/output.weight.bin || exit 8
stat -c '%u %a' mnt/a/tensors/output.weight.bin mnt/models.json
cat mnt/models.json >models.txt
./weightfs umount mnt || exit 7
./weightfs seal --recursive models; [ $? = 1 ] || exit 6
./weightfs verify --recursive models/a models/b || exit 5
""")
    owner = NOBODY if os.getuid() == 0 else os.getuid()
    listed = done.stdout.splitlines()
    assert listed[:3] == ["a", "b", "models.json"] and listed[3:5] == [f"{owner} 444"] * 2
    assert "models/shut: cannot list it: Permission denied" in done.stderr
    assert [line for line in done.stderr.splitlines() if "left out" in line and "c/m.gguf" in line] != []
    assert "Permission denied" in (user.directory / "models.txt").read_text()
    assert sum(": good" in line for line in listed) == 2


@pytest.mark.parametrize("way", ["./weightfs umount mnt", "fusermount3 -u mnt", "kill -TERM $pid", "kill -INT $pid", "kill -HUP $pid"])
def test_an_ordinary_user_unmounts(user, way):
    user.run(f"""
./weightfs tiny.gguf mnt || exit 9
for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^./weightfs tiny.gguf mnt' && pid=${{p#/proc/}}; done
[ -n "$pid" ] || exit 7
{way} || exit 8
for n in 1 2 3 4 5 6 7 8 9 10; do [ -e /proc/$pid ] || break; sleep 0.3; done
if grep -q " $PWD/mnt " /proc/self/mounts; then exit 6; fi
[ ! -e /proc/$pid ] || grep -q zombie /proc/$pid/status || exit 5
""")


def test_a_mount_of_somebody_else_is_not_the_users_to_unmount(user):
    """fusermount3 says that it is not in /etc/mtab, which it is."""
    point = user.directory / "mnt it's"
    setup = f"""mkdir "{point}" && "{user.directory}/weightfs" "{user.directory}/tiny.gguf" "{point}" || exit 96"""
    for words in ("", " --lazy"):
        done = user.run(f"""./weightfs umount "{point}"{words}; [ $? = 1 ] || exit 9
grep -c " $PWD/mnt.040it's " /proc/self/mounts""", setup=setup)
        assert "mounted by root, and only that user or root may unmount it" in done.stderr and "mtab" not in done.stderr
        assert f"as root, weightfs umount '{user.directory}/mnt it'\\''s'" in done.stderr
        assert done.stdout.strip() == "1"
        point.rmdir()


def test_a_signal_with_an_open_file(user):
    user.run("""
./weightfs -f tiny.gguf mnt & pid=$!
for n in 1 2 3 4 5 6 7 8 9 10; do [ -e mnt/model.json ] && break; sleep 0.2; done
exec 5<mnt/tensors/output.weight.bin
kill -TERM $pid
for n in 1 2 3 4 5 6 7 8 9 10; do grep -q " $PWD/mnt " /proc/self/mounts || break; sleep 0.3; done
if grep -q " $PWD/mnt " /proc/self/mounts; then exit 6; fi
exec 5<&-
wait $pid
""")


def test_a_dead_mount_of_an_ordinary_user(user):  # C43
    user.run("""
./weightfs -f tiny.gguf mnt & pid=$!
for n in 1 2 3 4 5 6 7 8 9 10; do [ -e mnt/model.json ] && break; sleep 0.2; done
kill -9 $pid
wait $pid 2>/dev/null
ls mnt 2>/dev/null && exit 9
./weightfs tiny.gguf mnt || exit 8
cat mnt/tensors/output.weight.bin >/dev/null || exit 7
./weightfs umount mnt || exit 6
if grep -q " $PWD/mnt " /proc/self/mounts; then exit 5; fi
""")


def test_allow_other_needs_a_line_in_fuse_conf(user):  # C45
    done = user.run("./weightfs tiny.gguf mnt -o allow_other", setup="mount --bind /dev/null /etc/fuse.conf", code=1)
    assert "/etc/fuse.conf" in done.stderr and "user_allow_other" in done.stderr
    assert done.stderr.startswith("weightfs: ") and len(done.stderr.splitlines()) <= 4


def test_allow_other_with_that_line(user):  # C45
    setup = 'echo user_allow_other >"$1/conf" && mount --bind "$1/conf" /etc/fuse.conf'
    done = user.run("./weightfs tiny.gguf mnt -o allow_other && stat -c %a mnt/model.json && cat /proc/self/mounts", setup=setup)
    assert "444" in done.stdout and "allow_other" in done.stdout


def test_no_fusermount3(user):  # C44
    setup = 'for f in $(command -v fusermount3) /bin/fusermount3 /usr/bin/fusermount3; do [ -e $f ] && mount --bind /dev/null $f; done'
    done = user.run("./weightfs tiny.gguf mnt", setup=setup, env={"PATH": "/usr/sbin"} if os.getuid() else None, code=1)
    assert "fusermount3" in done.stderr and "fuse3" in done.stderr


HELPERS = "$(command -v fusermount3) /bin/fusermount3 /usr/bin/fusermount3"


def test_a_fusermount3_without_its_setuid_bit(user):
    setup = f'cp $(command -v fusermount3) "$1/helper" && chmod 0755 "$1/helper" && for f in {HELPERS}; do [ -e $f ] && mount --bind "$1/helper" $f; done'
    done = user.run("./weightfs tiny.gguf mnt; code=$?; ls -A mnt; exit $code", setup=setup, code=1)
    assert "not setuid root" in done.stderr and "chmod 4755" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 4 and done.stdout == ""


def test_a_process_that_may_gain_no_privileges(user):
    done = user.run("setpriv --no-new-privs ./weightfs tiny.gguf mnt", code=1)
    assert "no_new_privs" in done.stderr and len(done.stderr.splitlines()) <= 4, done.stderr


def test_a_device_that_only_root_may_open(user):
    done = user.run("./weightfs tiny.gguf mnt", setup="chmod 0600 /dev/fuse", code=1)
    assert "/dev/fuse" in done.stderr and ("chmod" in done.stderr or "permission" in done.stderr.lower())
    assert len(done.stderr.splitlines()) <= 4


def test_a_mount_point_of_somebody_else(user):
    done = user.run("./weightfs tiny.gguf /usr", code=1)
    assert "/usr" in done.stderr


def test_a_seal_goes_into_the_cache_where_the_directory_is_not_ours(user):
    setup = f"mkdir -p {user.directory}/theirs && cp {user.directory}/tiny.gguf {user.directory}/theirs && chmod 755 {user.directory}/theirs"
    done = user.run(
        "./weightfs seal theirs/tiny.gguf && ./weightfs verify theirs/tiny.gguf && ls cache/weightfs/seals && ./weightfs theirs/tiny.gguf mnt && cat mnt/model.json",
        setup=setup,
    )
    assert os.listdir(user.directory / "theirs") == ["tiny.gguf"]
    assert '"sealed": true' in done.stdout


def test_a_seal_that_has_no_place_says_both_and_how_to_name_one(user):
    setup = f"mkdir -p {user.directory}/theirs && cp {user.directory}/tiny.gguf {user.directory}/theirs && chmod 755 {user.directory}/theirs"
    away = {"HOME": "/nonexistent", "XDG_CACHE_HOME": "/nonexistent/cache"}
    done = user.run("./weightfs seal theirs/tiny.gguf", setup=setup, env=away, code=1)
    first, second, way = done.stderr.splitlines()
    assert f"{user.directory}/theirs/tiny.gguf.weightfs.json" in first and "Permission denied" in first, first
    assert "/nonexistent/cache/weightfs/seals/" in second and "Permission denied" in second, second
    assert "--output" in way
    user.run("./weightfs seal theirs/tiny.gguf --output own.json", setup=setup.replace("mkdir -p", "test -d"), env=away)
    done = user.run("./weightfs seal --part theirs/tiny.gguf", setup=setup.replace("mkdir -p", "test -d"), env=away, code=1)
    assert "--output" in done.stderr and "/nonexistent" not in done.stderr, done.stderr


def test_another_user_cannot_read_a_private_mount(root, weightfs, mount, tmp_path):  # C45
    path = gguf_file.plain().write(tmp_path / "m.gguf")
    with tempfile.TemporaryDirectory(prefix="weightfs-user-") as directory:
        os.chmod(directory, 0o755)
        for options, works in (([], False), (["allow_other"], True), (["allow_other", "umask=077"], False)):
            point = Path(directory, f"mnt{len(options)}{works}")
            point.mkdir()
            mounted = mount(path, *options, point=point)
            done = subprocess.run(
                ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "cat", point / "tensors/output.weight.bin"],
                capture_output=True,
                timeout=20,
            )
            assert (done.returncode == 0) == works, (options, done.stderr)
            if works:
                assert done.stdout == gguf_file.plain().data_of("output.weight")
            mounted.close()
