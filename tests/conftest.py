"""Options shared by all tests."""

import os
import signal
import tempfile
from pathlib import Path

import pytest

_CACHE = pytest.StashKey[tempfile.TemporaryDirectory[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """A cache of compiled programs of this run alone, which its workers share. JAX, where it is a witness, on the CPU.

    Ctrl-C is heard even where a shell started the run in the background, which ignores it: tests send it.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("HLOKIT_TRACEBACK_FILTERING", "off")  # a test that fails shows where the package did
    if "PYTEST_XDIST_WORKER" not in os.environ:
        folder = config.stash[_CACHE] = tempfile.TemporaryDirectory(prefix="hlokit-tests-", ignore_cleanup_errors=True)
        os.environ["HLOKIT_CACHE_DIR"] = folder.name
    if where := config.getoption("--guarded-stack"):
        from tests.fuzz.guard import guarded_stack

        guarded = guarded_stack(where == "end")
        guarded.__enter__()
        config.add_cleanup(lambda: guarded.__exit__(None, None, None))


def pytest_unconfigure(config: pytest.Config) -> None:
    if _CACHE in config.stash:
        config.stash[_CACHE].cleanup()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--guarded-stack", choices=("end", "start"), help="forbidden pages at the ends of compiled functions' arrays"
    )
    parser.addoption("--golden", type=Path, metavar="FOLDER", help="run the golden_full tests on this folder of cases")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--golden") is not None:
        return
    skipped = [item for item in items if item.get_closest_marker("golden_full")]
    items[:] = [item for item in items if not item.get_closest_marker("golden_full")]
    config.hook.pytest_deselected(items=skipped)


@pytest.hookimpl(tryfirst=True)  # before pytest's own skip of a test parametrised over nothing
def pytest_runtest_setup(item: pytest.Item) -> None:
    folder: Path | None = item.config.getoption("--golden")
    if folder is None or not item.get_closest_marker("golden_full"):
        return
    if not any(folder.glob("*.jsonl")):
        pytest.fail(f"--golden {folder}: no such folder, or no *.jsonl in it", pytrace=False)


@pytest.fixture(scope="session")
def golden(request: pytest.FixtureRequest) -> Path:
    """The golden folder; for tests marked golden_full."""
    folder: Path | None = request.config.getoption("--golden")
    if folder is None:
        pytest.fail("the fixture `golden` needs the marker golden_full", pytrace=False)
    return folder
