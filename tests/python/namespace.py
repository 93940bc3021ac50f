"""Scripts in a mount namespace of their own: what they install, hide and mount is gone with them."""

import subprocess

# The program where mount(8) finds it, though it finds us without PATH.
INSTALLED = 'mount -t tmpfs tmpfs /usr/local/bin && : >/usr/local/bin/weightfs && mount --bind "$PROGRAM" /usr/local/bin/weightfs || exit 99\n'
# A device that anybody may open, in the directory $NODE.
OPEN_DEVICE = 'mount -t tmpfs tmpfs "$NODE" && mknod -m 0666 "$NODE/fuse" c 10 229 && mount --bind "$NODE/fuse" /dev/fuse || exit 98\n'

NOBODY = 65534
AS_NOBODY = f"setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups --"


def run(weightfs, script, *arguments, code=0, env=None, timeout=60, cwd=None):
    """Run a shell script as root; $PROGRAM is ours, "$1" and so on are the arguments."""
    done = subprocess.run(
        ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        cwd=cwd,
        env=weightfs.env | {"PROGRAM": weightfs.binary} | (env or {}),
    )
    assert "panicked" not in done.stderr, done.stderr
    assert code is None or done.returncode == code, f"exit {done.returncode}, not {code}\nstderr: {done.stderr}\nstdout: {done.stdout}"
    return done
