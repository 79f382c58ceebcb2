"""docs/RULES.md knows every rule that the code cites, and every reason to wait."""

from __future__ import annotations

import re
from pathlib import Path

from stateroom.residency.reasons import WaitReason

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "RULES.md").read_text(encoding="utf-8")
CITING = ("stateroom", "stateroom_ops", "scheduler_svc", "cache_svc", "protos", "tests", "docs")
# "rule C1", "rules D1, D6", "rules B1-B8": the words after it are not a part
CITED = re.compile(r"\brules? ((?:[A-D]\d{1,2}(?:, | and |-|/)?)+)")


def _cited() -> dict[str, str]:
    found: dict[str, str] = {}
    for folder in CITING:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".proto", ".md"):
                for numbers in CITED.findall(path.read_text(encoding="utf-8")):
                    for rule in re.findall(r"[A-D]\d+", numbers):
                        found.setdefault(rule, str(path.relative_to(ROOT)))
    return found


def test_every_cited_rule_is_on_the_page() -> None:
    stated = set(re.findall(r"^- \*\*([A-D]\d+)\*\*", PAGE, re.MULTILINE))
    cited = _cited()
    assert len(stated) == 11 + 8 + 10 + 8
    assert len(cited) > 20, "the pattern finds no citations"
    assert not {rule: where for rule, where in cited.items() if rule not in stated}


def test_every_reason_to_wait_is_on_the_page() -> None:
    assert not [reason.value for reason in WaitReason if f"`{reason.value}`" not in PAGE]
