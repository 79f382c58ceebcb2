"""One image for all of these tests, and a compose project a test that leaves nothing behind."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.compose.engine import Compose, checkout_digest, why_no_engine

StartGroup = Callable[..., Compose]


@pytest.fixture(scope="session")
def image() -> None:
    """Of this checkout's sources; built where it is missing."""
    if (why := why_no_engine()) is not None:
        pytest.skip(why)
    project = Compose(f"stateroom-image-{os.getpid()}")
    try:
        if project.image_digest() != checkout_digest():
            pytest.skip(
                "the image holds other sources than this checkout: `docker-compose build`, or `make test-compose`"
            )
    finally:
        project("down", "--volumes")


@pytest.fixture
def start_group(image: None, request: pytest.FixtureRequest) -> Iterator[StartGroup]:
    """Starts everything and gives the project: the scheduler is ready and the executor runs."""
    started: list[Compose] = []

    def start(**variables: object) -> Compose:
        project = Compose(f"stateroom-{request.function.__name__[5:13]}-{os.getpid()}", **variables)
        started.append(project)
        project("up", "--detach", "--no-build")
        return project

    yield start
    for project in started:
        project("down", "--volumes", "--timeout", "5")
