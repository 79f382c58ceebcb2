"""Typed access to the fields of a config.json, with an error that names the field when one is wrong.

A missing field is an error, never a class default taken silently (rule of section 5): two engines
that fill in different defaults plan different pools for one checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["ConfigError", "Fields"]


class ConfigError(ValueError):
    """A config that cannot be sized; `str()` is one sentence with the field, its value and the remedy.

    `field` is the name as it stands in config.json (dotted where nested), `value` what was found (None
    for a missing field).
    """

    def __init__(self, field: str, value: object, problem: str, remedy: str) -> None:
        found = "missing" if value is None else f"{_short(value)}"
        super().__init__(f"{field} is {found}: {problem}; {remedy}")
        self.field = field
        self.value = value
        self.remedy = remedy


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}... ({len(text)} characters)"


class Fields:
    """One object of a config.json; `path` is its dotted name, empty at the top."""

    def __init__(self, values: Mapping[str, object], path: str = "") -> None:
        self._values = values
        self._path = path

    def name_of(self, field: str) -> str:
        """The dotted name of a field, for errors."""
        return f"{self._path}.{field}" if self._path else field

    def has(self, field: str) -> bool:
        """Whether the field is there and not null."""
        return self._values.get(field) is not None

    def raw(self, field: str) -> object:
        """The value as it stands, or a ConfigError that names the missing field."""
        value = self._values.get(field)
        if value is None:
            raise ConfigError(
                self.name_of(field),
                None,
                "the size of this model's state depends on it",
                f"add {field} to the config as the model's own config.json has it",
            )
        return value

    def first_of(self, *fields: str) -> str:
        """The first of several spellings that is there; the first spelling if none is."""
        return next((field for field in fields if self.has(field)), fields[0])

    def integer(self, field: str, least: int = 1) -> int:
        """A whole number not below `least`; 2.0 counts as 2, true and "2" do not."""
        value = self.raw(field)
        whole = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(whole, bool) or not isinstance(whole, int) or whole < least:
            raise ConfigError(
                self.name_of(field),
                value,
                f"a whole number of at least {least} is needed",
                f"correct {field} in the config",
            )
        return whole

    def optional_integer(self, field: str) -> int | None:
        """The whole number, or None where the field is not there (it decides no state size)."""
        return self.integer(field) if self.has(field) else None

    def text(self, field: str) -> str:
        """A string."""
        value = self.raw(field)
        if not isinstance(value, str):
            raise ConfigError(
                self.name_of(field), value, "a string is needed", f"correct {field} in the config"
            )
        return value

    def sequence(self, field: str) -> Sequence[object]:
        """A list (not a string)."""
        value = self.raw(field)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise ConfigError(
                self.name_of(field), value, "a list is needed", f"correct {field} in the config"
            )
        return value

    def integers(self, field: str, least: int = 0) -> tuple[int, ...]:
        """A list of whole numbers not below `least`."""
        found = self.sequence(field)
        for value in found:
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(
                    self.name_of(field),
                    found,
                    f"its entry {value!r} is not a whole number of at least {least}",
                    f"correct {field} in the config",
                )
        return tuple(value for value in found if isinstance(value, int))

    def section(self, field: str) -> Fields:
        """A nested object."""
        value = self.raw(field)
        if not isinstance(value, Mapping):
            raise ConfigError(
                self.name_of(field), value, "an object is needed", f"correct {field} in the config"
            )
        return Fields(value, self.name_of(field))
