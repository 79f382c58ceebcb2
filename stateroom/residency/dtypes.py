"""Which dtype the states have, and who said so: flag, then config, then family, then the model's dtype.

Engines differ by 2x on one checkpoint here (scenario S12), so the source is part of every answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from stateroom.residency.config_fields import ConfigError, Fields
from stateroom.residency.layout import DTYPE_BYTES

__all__ = ["ConfigDtypes", "SourcedDtype", "choose_dtype", "dtype_name", "read_dtypes"]

_SHORT_NAMES = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp8": "float8_e4m3fn",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
}
_SSM_FIELDS = ("mamba_ssm_dtype", "mamba_ssm_cache_dtype")
_MODEL_FIELDS = ("dtype", "torch_dtype")


@dataclass(frozen=True, slots=True)
class SourcedDtype:
    """A dtype by torch's name; `source` is where it came from, as people would say it.

    `kernels_fix_it`: the family's kernels keep this one whatever a flag says elsewhere.
    """

    dtype: str
    source: str
    kernels_fix_it: bool = False

    @property
    def is_used(self) -> bool:
        """False where no layer of the model keeps such a state."""
        return self.dtype in DTYPE_BYTES

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class ConfigDtypes:
    """What the config and the family say, before any flag; None where nothing is said."""

    ssm: SourcedDtype | None
    model: SourcedDtype | None


def dtype_name(text: str, field: str) -> str:
    """Torch's name of a dtype: "bf16", "torch.bfloat16" and "bfloat16" are one; ConfigError else."""
    name = text.lower().removeprefix("torch.")
    name = _SHORT_NAMES.get(name, name)
    if name not in DTYPE_BYTES:
        raise ConfigError(field, text, "no such dtype is known", f"use one of {', '.join(DTYPE_BYTES)}")
    return name


def read_dtypes(fields: Fields, family_ssm: str | None, family: str) -> ConfigDtypes:
    """The config's own dtypes; "auto" says nothing."""
    model = _stated(fields, _MODEL_FIELDS)
    ssm = _stated(fields, _SSM_FIELDS)
    if ssm is None and family_ssm is not None:
        ssm = SourcedDtype(family_ssm, f"family default of {family}", kernels_fix_it=True)
    return ConfigDtypes(ssm, model)


def _stated(fields: Fields, names: tuple[str, ...]) -> SourcedDtype | None:
    for name in names:
        if fields.has(name) and fields.text(name) != "auto":
            return SourcedDtype(dtype_name(fields.text(name), name), f"config {name}")
    return None


def choose_dtype(
    flag_name: str, flag: str | None, stated: SourcedDtype | None, model: SourcedDtype | None
) -> tuple[SourcedDtype, tuple[str, ...]]:
    """The dtype by precedence, and one warning if the flag overrides a config that says otherwise.

    Errors: ConfigError if nobody says any dtype.
    """
    if flag is not None and flag != "auto":
        name = dtype_name(flag, flag_name)
        differs = stated is not None and stated.dtype != name
        warning = (
            f"{flag_name} {name} overrides {stated.dtype} ({stated.source})" if stated and differs else ""
        )
        return SourcedDtype(name, f"flag {flag_name}"), (warning,) if warning else ()
    if stated is not None:
        return stated, ()
    if model is not None:
        return SourcedDtype(model.dtype, f"model dtype ({model.source})"), ()
    raise ConfigError(
        "dtype",
        None,
        f"nothing says the dtype that {flag_name} would",
        f"add dtype to the config or give {flag_name}",
    )
