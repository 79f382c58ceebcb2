"""--rewrite accepts the core's present output as the scripts' expected one."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite", action="store_true", help="Write the core's output into scenario scripts.")
