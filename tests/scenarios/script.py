"""Scenario scripts: prose, then blocks of commands, `----`, and the output they must give.

    only: core            (a line of its own: what the script needs real processes cannot give)

    submit A prompt=96
    step
    ----
    step 1: decode 0; chunks A 0+32

Facts go out with the next step, which also settles binds and scrubs; so a script says the same about
the core alone and about real services.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

__all__ = ["Block", "Script", "World", "read", "run"]

DIVIDER = "----"


@dataclass(frozen=True)
class Block:
    """Commands and what they print."""

    commands: tuple[str, ...]
    output: str


@dataclass(frozen=True)
class Script:
    """A file: its prose is kept for --rewrite."""

    path: Path
    parts: tuple[str | Block, ...]

    @property
    def core_only(self) -> bool:
        """True if a line says so."""
        return any(isinstance(part, str) and "only: core" in part for part in self.parts)


class World(Protocol):
    """Where a script runs: the core, or real services. Names are sequence ids."""

    async def group(self, **settings: int | str) -> None: ...
    def submit(self, name: str, **fields: int | str) -> None: ...
    def finish(self, name: str) -> None: ...
    def cancel(self, name: str) -> None: ...
    def transfer(self, name: str, event: str) -> None: ...
    def suspend(self, name: str, suspended: bool) -> None: ...
    def let_go(self, name: str) -> None: ...
    async def restart(self, rank: int) -> None: ...
    def tick(self, ms: int) -> None: ...  # the core's clock only
    def drain(self) -> None: ...  # the core only
    async def step(self) -> str: ...
    async def show(self) -> str: ...
    async def why(self, name: str) -> str: ...


def read(path: Path) -> Script:
    """Paragraphs are separated by blank lines; one with a divider is a block."""
    parts: list[str | Block] = []
    for paragraph in path.read_text().strip().split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        if DIVIDER in lines:
            at = lines.index(DIVIDER)
            parts.append(Block(tuple(lines[:at]), "\n".join(lines[at + 1 :])))
        else:
            parts.append(paragraph)
    return Script(path, tuple(parts))


async def run(script: Script, world: World) -> list[str]:
    """The output of each block."""
    outputs = []
    for part in script.parts:
        if isinstance(part, Block):
            lines = [await _command(world, command) for command in part.commands]
            outputs.append("\n".join(line for line in lines if line))
    return outputs


async def _command(world: World, command: str) -> str:
    """One line; what it prints, empty for a fact."""
    verb, *words = command.split()
    fields = {
        k: int(v) if v.lstrip("-").isdigit() else v for k, v in (w.split("=") for w in words if "=" in w)
    }
    names = [w for w in words if "=" not in w]
    match verb:
        case "group":
            await world.group(**fields)
        case "submit":
            for name in names:
                world.submit(name, **fields)
        case "finish" | "cancel":
            for name in names:
                getattr(world, verb)(name)
        case "transfer":
            world.transfer(names[0], names[1])
        case "suspend" | "resume":
            world.suspend(names[0], verb == "suspend")
        case "let-go":
            world.let_go(names[0])
        case "restart":
            await world.restart(int(fields["rank"]))
        case "tick":
            world.tick(int(fields["ms"]))
        case "drain":
            world.drain()
        case "step":
            return await world.step()
        case "show":
            return await world.show()
        case "why":
            return await world.why(names[0])
        case _:
            raise ValueError(f"{command!r} is no command of a scenario script: see tests/scenarios/script.py")
    return ""


def rewritten(script: Script, outputs: list[str]) -> str:
    """The script with these outputs, for a change that is understood."""
    left = list(outputs)
    text = []
    for part in script.parts:
        if isinstance(part, Block):
            text.append("\n".join((*part.commands, DIVIDER, left.pop(0))).rstrip("\n"))
        else:
            text.append(part)
    return "\n\n".join(text) + "\n"
