"""An aarch64 Python with hlokit's dependencies in a folder, run by QEMU's user mode: python -m tests.aarch64.setup.

Needs apt-get and dpkg-deb (Debian, Ubuntu) and the network; no root, and nothing of the system changes: apt-get gets a
configuration of its own, packages are unpacked into FOLDER. What is there already is not fetched again.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "aarch64"
SUITE, PYTHON = "bookworm", "3.11"  # Debian's release, and the Python in it
QEMU_SUITE = "trixie"  # whose QEMU makes a /proc/cpuinfo of the emulated CPU, by which LLVM finds the CPU's features
_PACKAGES = (f"python{PYTHON}-minimal", f"libpython{PYTHON}-stdlib", "libstdc++6")
_QEMU = "qemu-user"
_TESTS_NEED = ("pytest", "pytest-xdist", "hypothesis", "mpmath", "protobuf", "filecheck")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.aarch64.setup", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"default: {FOLDER}")
    folder = parser.parse_args(arguments).folder.resolve()
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            print(f"{program} is not on this machine: the emulated Python is made of Debian's packages", file=sys.stderr)
            return 1
    print(prepare(folder))
    return 0


def prepare(folder: Path) -> Path:
    """The command that is an aarch64 Python, which it makes if needed."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    wheels = sorted({*dependencies, *_TESTS_NEED})
    steps: list[tuple[str, Callable[[Path], None], str]] = [
        ("qemu", lambda place: _unpack(place, QEMU_SUITE, None, [_QEMU]), f"{QEMU_SUITE} {_QEMU}"),
        ("root", lambda place: _unpack(place, SUITE, "arm64", _PACKAGES), f"{SUITE} {_PACKAGES}"),
        ("site", lambda place: _install(place, wheels), f"{PYTHON} {wheels}"),
    ]
    for name, make, inputs in steps:
        _once(folder / name, make, inputs)
    return _command(folder)


def _once(place: Path, make: Callable[[Path], None], inputs: str) -> None:
    """Makes the folder if it is not there whole, made from the same inputs."""
    stamp = place.with_suffix(".stamp")
    digest = hashlib.sha256(inputs.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    print(f"{place.name}: {inputs}", flush=True)
    stamp.unlink(missing_ok=True)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    make(place)
    stamp.write_text(digest)


def _unpack(place: Path, suite: str, architecture: str | None, packages: Sequence[str]) -> None:
    """Debian's packages, with what they depend on for a foreign architecture; None: this machine's, alone."""
    state = place.with_name(f"apt-{place.name}")
    archives = state / "archives"
    environment = _apt(state, suite, architecture)
    subprocess.run(["apt-get", "-q", "update"], check=True, env=environment, cwd=archives)
    wanted = list(packages)
    if architecture is not None:
        listed = subprocess.run(
            ["apt-get", "install", "--print-uris", "-qq", "-y", "--no-install-recommends", *packages],
            check=True, env=environment, capture_output=True, text=True,
        ).stdout  # fmt: skip
        # 'URI' NAME_VERSION_ARCHITECTURE.deb SIZE HASH
        wanted = [line.split()[1].partition("_")[0] for line in listed.splitlines() if line.startswith("'")]
    subprocess.run(["apt-get", "-q", "download", *wanted], check=True, env=environment, cwd=archives)
    for archive in sorted(archives.glob("*.deb")):
        subprocess.run(["dpkg-deb", "-x", archive, place], check=True)
    shutil.rmtree(state)


def _apt(state: Path, suite: str, architecture: str | None) -> dict[str, str]:
    """An environment in which apt-get knows Debian's main archive alone and keeps all it writes in this folder."""
    shutil.rmtree(state, ignore_errors=True)
    for each in ("lists/partial", "cache/archives/partial", "archives"):
        (state / each).mkdir(parents=True)
    (state / "status").touch()
    keyring = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
    if not keyring.exists():
        raise FileNotFoundError(f"{keyring}: install the package debian-archive-keyring")
    source = f"deb [signed-by={keyring}] http://deb.debian.org/debian {suite} main\n"
    (state / "sources.list").write_text(source)
    lines = {
        "Dir::State": state,
        "Dir::State::Lists": state / "lists",
        "Dir::State::status": state / "status",
        "Dir::Cache": state / "cache",
        "Dir::Etc::sourcelist": state / "sources.list",
        "Dir::Etc::sourceparts": "-",
        "APT::Sandbox::User": "",  # as whoever runs it: this folder may be nobody else's
    }
    if architecture is not None:
        lines |= {"APT::Architecture": architecture, "APT::Architectures": architecture}
    (state / "apt.conf").write_text("".join(f'{name} "{value}";\n' for name, value in lines.items()))
    return {**os.environ, "APT_CONFIG": str(state / "apt.conf"), "LC_ALL": "C"}


def _install(place: Path, wheels: Sequence[str]) -> None:
    platforms = ("manylinux2014_aarch64", "manylinux_2_17_aarch64", "manylinux_2_27_aarch64", "manylinux_2_28_aarch64")
    options = [f"--platform={name}" for name in platforms]
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--only-binary=:all:", "--implementation=cp"]
    subprocess.run([*command, *options, f"--python-version={PYTHON}", f"--target={place}", *wheels], check=True)
    # Tests start sys.executable, which must be the command below and not the binary that it runs
    (place / "sitecustomize.py").write_text('import os, sys\nsys.executable = os.environ["HLOKIT_AARCH64_PYTHON"]\n')


def _command(folder: Path) -> Path:
    """A script that runs the Python, which its child processes are too."""
    script = folder / "python"
    root = folder / "root"
    script.write_text(f"""#!/bin/sh
export HLOKIT_AARCH64_PYTHON='{script}' PYTHONHOME='{root}/usr' PYTHONDONTWRITEBYTECODE=1
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}{ROOT}/src:{folder}/site" OPENBLAS_NUM_THREADS=1
exec '{folder}/qemu/usr/bin/qemu-aarch64' -L '{root}' -cpu "${{HLOKIT_AARCH64_CPU:-neoverse-n1}}" \\
    '{root}/usr/bin/python{PYTHON}' "$@"
""")
    script.chmod(0o755)
    return script


if __name__ == "__main__":
    sys.exit(main())
