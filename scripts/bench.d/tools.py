"""What the bench needs and gets by itself: the release build, a venv, packages of Debian."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

DEBIAN = {"squashfuse": "squashfuse", "mksquashfs": "squashfs-tools", "archivemount": "archivemount", "fuse-zip": "fuse-zip"}


def target(root):
    return (root / os.environ.get("CARGO_TARGET_DIR", "target")).resolve()


def build(root, say):
    say("cargo build --release")
    done = subprocess.run(["cargo", "build", "--release", "--locked", "--quiet"], cwd=root)
    if done.returncode:
        sys.exit("bench: the build failed (see above)")
    return target(root) / "release" / "weightfs"


def venv(root, say):
    """The Python of a venv with what requirements.txt pins, kept while that stays the same; None without network."""
    wanted = Path(__file__).with_name("requirements.txt").read_text()
    stamp = hashlib.sha256((sys.version + sys.base_prefix + wanted).encode()).hexdigest()
    place = target(root) / "bench-venv"
    mark = place / ".pinned"
    if not (mark.exists() and mark.read_text() == stamp):
        say("a venv with what scripts/bench.d/requirements.txt pins")
        shutil.rmtree(place, ignore_errors=True)
        file = Path(__file__).with_name("requirements.txt")
        pip = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", file]
        for command in ([sys.executable, "-m", "venv", place], pip):
            if subprocess.run(command).returncode:
                say("the venv could not be made: no ratarmount, safetensors, gguf, and no chart")
                shutil.rmtree(place, ignore_errors=True)
                return None
        mark.write_text(stamp)
    return place / "bin" / "python"


def install(say):
    """The peers from Debian, when this is root and they are missing."""
    missing = sorted({package for command, package in DEBIAN.items() if not shutil.which(command)})
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        say(f"missing peers: {' '.join(missing)} (Debian: apt-get install {' '.join(missing)})")
        return
    say(f"apt-get install {' '.join(missing)}")
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for words in (["apt-get", "update", "-qq"], ["apt-get", "install", "-qq", "-y", "--no-install-recommends", *missing]):
        if subprocess.run(words, env=env, stdout=subprocess.DEVNULL).returncode:
            say(f"{' '.join(words[:2])} failed: some peers will be missing")
            return


def gemma(root, directory, say):
    """The real GGUF, fetched once by scripts/fetch-models, linked where a seal may stand beside it."""
    link = directory / "gemma.gguf"
    if not link.exists():
        done = subprocess.run([sys.executable, root / "scripts" / "fetch-models"], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            return None
        link.unlink(missing_ok=True)
        link.symlink_to(Path(done.stdout.strip()) / "gemma-3-270m-q4_k_m.gguf")
    return link
