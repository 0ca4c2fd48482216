"""Options and fixtures every test can use."""

from __future__ import annotations

from pathlib import Path

import pytest

DEFAULT_GOLDEN_ROOT = Path(__file__).parent / "golden" / "data"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-root",
        type=Path,
        default=DEFAULT_GOLDEN_ROOT,
        help="folder with one fixture folder a family (default: the project's own copy)",
    )


def pytest_configure(config: pytest.Config) -> None:
    import torch

    torch.set_num_threads(1)  # small tensors: a second thread only spins at barriers


@pytest.fixture(scope="session")
def golden_root(request: pytest.FixtureRequest) -> Path:
    root: Path = request.config.getoption("--golden-root")
    if not root.is_dir():
        raise pytest.UsageError(f"--golden-root {root} is not a folder")
    return root
