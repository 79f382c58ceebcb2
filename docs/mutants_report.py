"""Writes docs/MUTANTS.md from a finished `make mutants`: python docs/mutants_report.py [MUTANTS_DIR]

A survivor whose only change lies in the text of a sentence is counted, not listed: sentences are tested
by their numbers and remedies, not by the letter. Every other survivor is listed with its changed line.
"""

from __future__ import annotations

import ast
import difflib
import json
import sys
import time
from collections import Counter
from pathlib import Path

SURVIVED, NO_TESTS = 0, 33


def _functions(tree: ast.Module) -> dict[str, ast.AST]:
    found: dict[str, ast.AST] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found[node.name] = node
    return found


class _NoText(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return ast.Constant("") if isinstance(node.value, str) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.JoinedStr([self.visit(v) for v in node.values if not isinstance(v, ast.Constant)])


def _without_text(node: ast.AST) -> str:
    copy = ast.parse(ast.unparse(node))
    for inner in ast.walk(copy):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef)):
            inner.name = "f"
    return ast.dump(_NoText().visit(copy))


def _changed_line(original: ast.AST, mutant: ast.AST) -> str:
    before, after = ast.unparse(original).splitlines()[1:], ast.unparse(mutant).splitlines()[1:]
    lines = [line for line in difflib.ndiff(before, after) if line[:2] in ("- ", "+ ")]
    return " -> ".join(line[2:].strip() for line in lines[:2])


def main(folder: Path) -> str:
    """The page."""
    counts: Counter[str] = Counter()
    rows: list[tuple[str, Counter[str]]] = []
    listed: dict[str, list[str]] = {}
    for meta in sorted(folder.glob("scheduler_svc/core/*.meta")):
        module = meta.name.removesuffix(".py.meta")
        functions = _functions(ast.parse(meta.with_name(f"{module}.py").read_text()))
        here: Counter[str] = Counter()
        for key, code in json.loads(meta.read_text())["exit_code_by_key"].items():
            name = key.rpartition(".")[2]
            kind = "survived" if code == SURVIVED else "no test" if code == NO_TESTS else "killed"
            if code is None:
                kind = "not run"
            if kind == "survived":
                original = functions[name.rpartition("__mutmut_")[0] + "__mutmut_orig"]
                mutant = functions[name]
                if _without_text(original) == _without_text(mutant):
                    kind = "text"
                else:
                    function = name.rpartition("__mutmut_")[0].removeprefix("x").strip("_ǁ").replace("ǁ", ".")
                    listed.setdefault(module, []).append(f"`{function}`: `{_changed_line(original, mutant)}`")
            here[kind] += 1
        counts.update(here)
        rows.append((module, here))
    return _page(counts, rows, listed)


def _page(counts: Counter[str], rows: list[tuple[str, Counter[str]]], listed: dict[str, list[str]]) -> str:
    kinds = ("killed", "text", "survived", "no test", "not run")
    lines = [
        "# Mutants of the admission core",
        "",
        f"{time.strftime('%Y-%m-%d')}, `make mutants` (mutmut) with the fast scheduler tests; the naive model, the",
        "exhaustive search and the real services are not among them. *text*: only the words of a sentence changed.",
        "",
        "| module | " + " | ".join(kinds) + " |",
        "|---|" + "---|" * len(kinds),
    ]
    for module, here in [*rows, ("**all**", counts)]:
        lines.append(f"| {module} | " + " | ".join(str(here[kind]) for kind in kinds) + " |")
    lines += ["", "## Survivors", ""]
    for module, survivors in listed.items():
        lines += [f"### {module}", "", *(f"- {line}" for line in survivors), ""]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("mutants")
    Path(__file__).with_name("MUTANTS.md").write_text(main(source))
