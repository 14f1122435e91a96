"""Fixtures of all tests. Needs nothing beyond the user's packages, so that the core runs without the front door's."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("fast", deadline=None, max_examples=50, derandomize=True)
settings.load_profile(os.environ.get("NETSIM_HYPOTHESIS_PROFILE", "fast"))


@pytest.fixture(scope="session")
def repository() -> Path:
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared(repository: Path) -> Path:
    """Return the folder of reference samples beside the checkout; tests that need it skip where it is absent."""
    folder = repository.parent / "shared"
    if not folder.is_dir():
        pytest.skip("the folder of samples is not beside the checkout")
    return folder
