"""The wheel, installed alone, is enough to run the README."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = ("llvmlite", "scipy", "rich", "cyclopts", "google.protobuf", "jax", "jaxlib", "mpi4py")

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    left_out = ("PYTHONPATH", "PYTHONHOME", "JAX_PLATFORMS")
    environment = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a venv that holds the wheel and its dependencies only."""
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, ROOT, cwd=folder)
    (wheel,) = folder.glob("hlokit-*.whl")
    run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    python = folder / "venv" / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    run(python, "-m", "pip", "install", "-q", wheel, cwd=folder)
    return python


def blocks(language: str) -> list[str]:
    """The README's blocks in a language, in order."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)


def test_a_new_user_follows_the_readme(installed: Path, tmp_path: Path) -> None:
    """Every block of Python, then every command, in order in one folder, as they are printed; but that pip gets the wheel."""
    (tmp_path / "readme.py").write_text("\n".join(blocks("python")), encoding="utf-8")
    assert "[0.25" in run(installed, "readme.py", cwd=tmp_path)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) >= 6 and any("jax" in command for command in commands)
    (wheel,) = installed.parents[2].glob("hlokit-*.whl")
    for command in commands:
        command = command.replace("'hlokit[", f"'{wheel}[")
        script = f'set -e; export PATH="{installed.parent}:$PATH"; {command}'
        assert run("bash", "-c", script, cwd=tmp_path) or "pip install" in command, command


def test_wheel_imports_nothing_heavy(installed: Path, tmp_path: Path) -> None:
    code = f"import sys, hlokit; print(*(name for name in {HEAVY} if name in sys.modules))"
    assert run(installed, "-c", code, cwd=tmp_path).split() == []


def test_wheel_is_not_jax_s_default(installed: Path, tmp_path: Path) -> None:
    run(installed, "-m", "pip", "install", "-q", "jax>=0.10.2", cwd=tmp_path)
    code = "import sys, jax; print(jax.default_backend(), 'hlokit' in sys.modules, 'jax_plugins.hlokit' in sys.modules)"
    assert run(installed, "-c", code, cwd=tmp_path) == "cpu False True\n"
    chosen = "import jax; jax.config.update('jax_platforms', 'hlokit,cpu'); print(jax.default_backend())"
    assert run(installed, "-c", chosen, cwd=tmp_path) == "hlokit\n"
