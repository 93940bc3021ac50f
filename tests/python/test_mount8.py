"""Through mount(8): lines of an fstab of our own and -o, as root, in a mount namespace of the test's."""

import json
import os
import tempfile
from pathlib import Path

import gguf_file
import namespace
import pytest
from conftest import needs_mounts
from namespace import AS_NOBODY, INSTALLED, NOBODY, OPEN_DEVICE

DATA = gguf_file.plain().data_of("output.weight")


@pytest.fixture
def system(root, weightfs, tmp_path):
    """system(SCRIPT, ARGUMENT...): run where the program is installed; every mount goes with it."""
    needs_mounts()
    for name in ("mnt", "mnt2"):
        (tmp_path / name).mkdir()
    gguf_file.plain().write(tmp_path / "tiny.gguf")

    def run(script, *arguments, setup="", **options):
        leave = 'trap \'for p in mnt mnt2 "a mount point"; do umount -l "$p" 2>/dev/null; done\' EXIT\n'
        return namespace.run(weightfs, INSTALLED + setup + leave + script, *arguments, cwd=tmp_path, **options)

    return run


def fstab(tmp_path, *lines):
    def field(text):
        return str(text).replace("\\", "\\134").replace(" ", "\\040").replace("\t", "\\011").replace("\n", "\\012")

    path = tmp_path / "fstab"
    path.write_text("".join(f"{field(model)} {field(point)} fuse.weightfs {field(options)} 0 0\n" for model, point, options in lines))
    return path


def test_the_type_and_the_source_that_the_mount_table_shows(system, tmp_path):
    done = system("""
mount -t fuse.weightfs tiny.gguf mnt -o verify=once,noatime,nofail || exit 9
cat mnt/tensors/output.weight.bin >copy
findmnt -rno FSTYPE,SOURCE,OPTIONS mnt
umount mnt || exit 8
findmnt mnt
[ $? = 1 ]
""")
    kind, source, options = done.stdout.split()
    assert (kind, source) == ("fuse.weightfs", str(tmp_path / "tiny.gguf"))
    assert {"ro", "nosuid", "nodev"} <= set(options.split(","))
    assert (tmp_path / "copy").read_bytes() == DATA


def test_all_models_of_a_directory(system, tmp_path):
    for name in ("a", "b/c"):
        (tmp_path / "models" / name).mkdir(parents=True)
        gguf_file.plain().write(tmp_path / "models" / name / "m.gguf")
    table = fstab(tmp_path, (tmp_path / "models", tmp_path / "mnt2", "recursive,noauto,nofail,verify=once"))
    done = system("""
mount -t fuse.weightfs models mnt -o recursive,ro || exit 9
mount -T "$1" mnt2 || exit 8
cmp mnt/a/tensors/output.weight.bin mnt2/b/c/tensors/output.weight.bin || exit 7
findmnt -rno SOURCE mnt; ls mnt2
umount mnt && umount mnt2
""", table)
    assert done.stdout.split() == [str(tmp_path / "models"), "a", "b", "models.json"]


def test_relative_paths_and_a_link(system, tmp_path):
    (tmp_path / "link.gguf").symlink_to("tiny.gguf")
    (tmp_path / "sub").mkdir()
    done = system("cd sub && mount -t fuse.weightfs ../link.gguf ../mnt && ls ../mnt/source && umount ../mnt")
    assert done.stdout == "tiny.gguf\n"  # mount(8) resolves the source before anybody sees it


def test_a_line_of_fstab_with_all_that_others_read_in_it(system, tmp_path):
    (tmp_path / "a dir").mkdir()
    (tmp_path / "a mount point").mkdir()
    model = gguf_file.plain().write(tmp_path / "a dir/my model, v1.gguf")
    words = (
        "defaults,nofail,_netdev,user,noauto,exec,x-systemd.automount,x-systemd.requires-mounts-for=/a b,x-systemd.idle-timeout=5min,"
        f"x-gvfs-hide,comment=a b\tc,verify=once,fsname=its name,log={tmp_path}/my log,set=x.y=[1\\,2],umask=077"
    )
    table = fstab(tmp_path, (model, tmp_path / "a mount point", words))
    done = system(
        """
mount -T "$1" "a mount point" || exit 9
cat "a mount point/.weightfs/status.json"
cmp "a mount point/source/my model, v1.gguf" "a dir/my model, v1.gguf" || exit 8
stat -c %a "a mount point/model.json" >&2
cat "a mount point/metadata/x.y.json" >&2
findmnt -rno SOURCE "a mount point" >&2
umount "a mount point"
""",
        table,
    )
    status = json.loads(done.stdout)
    assert status["verify"] == "once" and status["log"] == f"{tmp_path}/my log"
    assert (tmp_path / "my log").exists()
    said = [line for line in done.stderr.splitlines() if not line.startswith("weightfs: ")]
    assert said[0] == "400" and json.loads("".join(said[1:-1])) == [1, 2] and said[-1] == "its\\x20name"


@pytest.mark.parametrize("value", ["a b", "it's", '"quoted"', "$(touch ran) `touch ran` ${PATH} ; touch ran", "a\\\\b", "\u00e9\u20ac"])
def test_no_shell_between_reads_a_value(system, tmp_path, value):
    """mount.fuse3 starts us by /bin/sh."""
    (tmp_path / "value").write_text(value)
    model = gguf_file.plain().write(tmp_path / f"{value.replace('/', '')}.gguf")
    options = f"fsname={value}"
    done = system('mount -t fuse.weightfs "$1" mnt -o "$2" && findmnt -no SOURCE mnt && umount mnt', model, options)
    assert done.stdout.rstrip("\n") == value.replace("\\\\", "\\")
    assert not (tmp_path / "ran").exists()


def test_mount_all(system, tmp_path):
    model = tmp_path / "tiny.gguf"
    table = fstab(tmp_path, (model, tmp_path / "mnt", "defaults,verify=off"), (model, tmp_path / "mnt2", "noauto,_netdev"))
    done = system(
        """
mount -a -T "$1" || exit 9
grep -c . mnt/model.json; ls mnt2
mount -a -T "$1" || exit 8
findmnt -rno TARGET -t fuse.weightfs | grep -c "^$PWD/"
umount mnt
mount -a -O _netdev -T "$1" || exit 7
ls mnt mnt2
""",
        table,
    )
    lines = done.stdout.split()
    assert int(lines[0]) > 10 and lines[1] == "1"  # the second time nothing is mounted again
    assert lines[2:] == ["mnt:", "mnt2:"]  # -O _netdev leaves out the first, noauto the second


def test_one_bad_line_leaves_the_others_mounted_and_is_told(system, tmp_path):
    table = fstab(tmp_path, (tmp_path / "gone.gguf", tmp_path / "mnt", "nofail"), (tmp_path / "tiny.gguf", tmp_path / "mnt2", "defaults"))
    done = system('mount -a -T "$1"; code=$?; cmp mnt2/source/tiny.gguf tiny.gguf && ls mnt && exit $code', table, code=64)  # "some succeeded"
    assert f"weightfs: {tmp_path}/gone.gguf: " in done.stderr and done.stdout == ""


@pytest.mark.parametrize(
    "model, options, code, words",
    [
        ("tiny.gguf", "frobnicate", 2, ["frobnicate"]),
        ("tiny.gguf", "verify=sometimes", 2, ["verify", "sometimes", "once"]),
        ("tiny.gguf", "seal=require", 4, ["tiny.gguf", "weightfs seal"]),
        ("gone.gguf", "ro", 1, ["gone.gguf", "No such file"]),
        ("broken.gguf", "ro", 1, ["broken.gguf"]),
        ("stale.gguf", "ro", 5, ["stale.gguf.weightfs.json"]),
        ("hf:acme/none", "ro", 1, ["acme/none"]),
    ],
)
def test_errors_come_out_of_mount_as_they_are(system, tmp_path, model, options, code, words):
    (tmp_path / "broken.gguf").write_bytes((tmp_path / "tiny.gguf").read_bytes()[:40])
    (tmp_path / "stale.gguf").write_bytes((tmp_path / "tiny.gguf").read_bytes())
    (tmp_path / "stale.gguf.weightfs.json").write_text("{}")
    named = model if model.startswith("hf:") else tmp_path / model
    table = fstab(tmp_path, (named, tmp_path / "mnt", options))
    for script in ('mount -t fuse.weightfs "$1" mnt -o "$2"', 'mount -T "$3" mnt'):
        done = system(f"{script}; code=$?; findmnt mnt && exit 99; exit $code", named, options, table, code=code)
        assert done.stderr.startswith("weightfs: ") and len(done.stderr.splitlines()) <= 4, done.stderr
        assert all(word in done.stderr for word in words), done.stderr


def test_a_mount_point_that_is_not_there(system, tmp_path):
    done = system("mount -t fuse.weightfs tiny.gguf none", code=1)
    assert "none: there is no such directory" in done.stderr
    done = system("mount -t fuse.weightfs tiny.gguf none/below -o X-mount.mkdir && ls none/below/tensors | wc -l && umount none/below")
    assert int(done.stdout) > 0


def test_a_remount_is_refused_by_its_word(system):
    done = system("mount -t fuse.weightfs tiny.gguf mnt && mount -o remount,rw mnt; code=$?; cat mnt/source/tiny.gguf | cmp - tiny.gguf && exit $code", code=2)
    assert '"remount"' in done.stderr


def test_at_boot_there_is_no_environment(system, tmp_path):
    table = fstab(tmp_path, (tmp_path / "tiny.gguf", tmp_path / "mnt", f"log={tmp_path}/log"))
    system('env -i /bin/mount -T "$1" mnt && cmp mnt/source/tiny.gguf tiny.gguf && umount mnt', table)


def test_the_options_of_ownership(system):
    done = system("mount -t fuse.weightfs tiny.gguf mnt -o uid=1000,gid=100,umask=027,allow_other && stat -c '%u %g %a' mnt/model.json mnt/tensors")
    assert done.stdout.splitlines() == ["1000 100 440", "1000 100 550"]


def test_user_lets_anybody_mount_what_the_line_says(system, tmp_path):
    (tmp_path / "node").mkdir()
    with tempfile.TemporaryDirectory(prefix="weightfs-user-") as theirs:  # pytest's directories are root's own
        os.chmod(theirs, 0o755)
        home = Path(theirs)
        gguf_file.plain().write(home / "tiny.gguf")
        for name in ("mnt", "mnt2"):
            (home / name).mkdir()
        (home / "log").touch()
        for path in (home / "mnt", home / "log"):
            os.chown(path, NOBODY, NOBODY)
        words = f"noauto,user,log={home}/log"
        table = fstab(tmp_path, (home / "tiny.gguf", home / "mnt", words), (home / "tiny.gguf", home / "mnt2", words))
        done = system(
            f"""
mount --bind "$1" /etc/fstab && cd "$2" || exit 97
{AS_NOBODY} mount "$2/mnt" || exit 9
{AS_NOBODY} cat mnt/tensors/output.weight.bin | wc -c
findmnt -rno OPTIONS mnt
{AS_NOBODY} umount "$2/mnt" || exit 8
{AS_NOBODY} mount "$2/mnt2"; echo $?
""",
            table,
            home,
            setup=OPEN_DEVICE,
            env={"NODE": str(tmp_path / "node"), "HOME": "/nonexistent"},
        )
    size, options, refused = done.stdout.split()
    assert int(size) == len(DATA) and f"user_id={NOBODY}" in options
    assert refused == "1" and "mnt2" in done.stderr  # that directory is root's
