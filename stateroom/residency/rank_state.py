"""What one rank holds of one sequence: the row of its pool, and its attention KV a token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from stateroom.residency.config_fields import ConfigError
from stateroom.residency.dtypes import SourcedDtype, choose_dtype
from stateroom.residency.layer_kinds import KvKind, LayerKind
from stateroom.residency.layout import RowLayout, TensorSpec, place
from stateroom.residency.model import ModelShape
from stateroom.residency.parallel import Parallel
from stateroom.residency.quantity import align_up
from stateroom.residency.state_tensors import Kind

__all__ = ["RankState", "SourcedDtype", "StateOptions", "rank_state"]


# LFM2 keeps no recurrent state, MiniMax no conv: their dtype is nobody's to say, and no error either.
_UNUSED: tuple[SourcedDtype, tuple[str, ...]] = (SourcedDtype("none", "no layer of this model keeps one"), ())


@dataclass(frozen=True, slots=True)
class StateOptions:
    """Flags that change a slot's bytes; None and "auto" leave a dtype to the config.

    `draft_layout` says what speculative decoding adds (scenario S14): `conv_window` one conv column a
    draft token, `extra_states` one more whole state a draft token.
    """

    ssm_dtype: str | None = None
    conv_dtype: str | None = None
    model_dtype: str | None = None
    kv_dtype: str | None = None
    draft_tokens: int = 0
    draft_layout: Literal["conv_window", "extra_states"] = "conv_window"

    def __post_init__(self) -> None:
        if self.draft_tokens < 0:
            raise ConfigError(
                "--draft-tokens", self.draft_tokens, "there are no fewer than 0", "give 0 or more"
            )


@dataclass(frozen=True, slots=True)
class RankState:
    """One rank's bytes a slot and a token. All counts are of this rank, after TP and PP."""

    layout: RowLayout
    layers: tuple[int, ...]
    recurrent_layers_count: int
    attention_layers_count: int
    ssm_dtype: SourcedDtype
    conv_dtype: SourcedDtype
    kv_dtype: SourcedDtype | None
    kv_full_token_bytes: int
    kv_window_token_bytes: int
    window_tokens: int | None
    kv_error: ConfigError | None
    warnings: tuple[str, ...]

    @property
    def slot_bytes(self) -> int:
        """Bytes of one row, padding included: the S of section 5."""
        return self.layout.row_stride_bytes

    @property
    def conv_bytes(self) -> int:
        """Conv windows (and token shifts) of a row, without padding."""
        return self.layout.bytes_of("conv")

    @property
    def recurrent_bytes(self) -> int:
        """Recurrent states of a row, without padding."""
        return self.layout.bytes_of("recurrent")

    @property
    def auxiliary_bytes(self) -> int:
        """Whole extra states of draft tokens in a row, without padding."""
        return self.slot_bytes - self.padding_bytes - self.conv_bytes - self.recurrent_bytes

    @property
    def padding_bytes(self) -> int:
        """What the alignment of rule C6 costs a row."""
        return self.layout.padding_bytes

    @property
    def kv_token_bytes(self) -> int:
        """KV of one token in all attention layers here. Errors: the ConfigError kept for this answer."""
        if self.kv_error is not None:
            raise self.kv_error
        return self.kv_full_token_bytes + self.kv_window_token_bytes

    def kv_sequence_bytes(self, tokens: int, page_tokens: int) -> int:
        """KV of one sequence of so many tokens, in whole pages; windowed layers keep their window only."""
        return sum(self.kv_sequence_parts(tokens, page_tokens))

    def kv_sequence_parts(self, tokens: int, page_tokens: int) -> tuple[int, int]:
        """The same, of the fully growing layers and of the windowed ones."""
        if self.kv_error is not None:
            raise self.kv_error
        kept = tokens if self.window_tokens is None else min(tokens, self.window_tokens)
        return (
            align_up(tokens, page_tokens) * self.kv_full_token_bytes,
            align_up(kept, page_tokens) * self.kv_window_token_bytes,
        )


def rank_state(model: ModelShape, parallel: Parallel, options: StateOptions) -> RankState:
    """What the rank holds. Errors: ConfigError where TP or the layer split does not divide."""
    owned = tuple(parallel.layers_of(parallel.pp_rank, model.layer_count))
    kinds = [model.layers[layer] for layer in owned]
    model_dtype, model_warnings = _model_dtype(model, options)
    kept = {tensor.kind is Kind.RECURRENT for tensor in model.tensors}
    ssm, ssm_warnings = (
        choose_dtype("--ssm-dtype", options.ssm_dtype, model.dtypes.ssm, model_dtype)
        if True in kept
        else _UNUSED
    )
    conv, _ = (
        choose_dtype("--conv-dtype", options.conv_dtype, None, model_dtype) if False in kept else _UNUSED
    )
    specs = _specs(model, parallel, options, owned, ssm, conv)
    kv_dtype, full, window, error = _kv_bytes(model, parallel, options, kinds, model_dtype)
    return RankState(
        layout=place(specs),
        layers=owned,
        recurrent_layers_count=sum(kind.recurrent for kind in kinds),
        attention_layers_count=sum(kind.kv is not KvKind.NONE for kind in kinds),
        ssm_dtype=ssm,
        conv_dtype=conv,
        kv_dtype=kv_dtype,
        kv_full_token_bytes=full,
        kv_window_token_bytes=window,
        window_tokens=model.kv.window_tokens if model.kv is not None else None,
        kv_error=error,
        warnings=(*model.warnings, *model_warnings, *ssm_warnings),
    )


def _model_dtype(model: ModelShape, options: StateOptions) -> tuple[SourcedDtype | None, tuple[str, ...]]:
    if options.model_dtype is None:
        return model.dtypes.model, ()
    return choose_dtype("--model-dtype", options.model_dtype, model.dtypes.model, None)


def _specs(
    model: ModelShape,
    parallel: Parallel,
    options: StateOptions,
    owned: tuple[int, ...],
    ssm: SourcedDtype,
    conv: SourcedDtype,
) -> list[TensorSpec]:
    widened = options.draft_tokens if options.draft_layout == "conv_window" else 0
    extra = options.draft_tokens - widened
    specs: list[TensorSpec] = []
    for tensor in model.tensors:
        shape = tensor.shape_on_rank(parallel.tp_size, widened)
        dtype = (ssm if tensor.kind is Kind.RECURRENT else conv).dtype
        specs.append(TensorSpec(0, tensor.name, shape, dtype))
        if extra:
            specs.append(TensorSpec(0, f"draft_{tensor.name}", (extra, *shape), dtype))
    return [
        TensorSpec(layer, spec.name, spec.shape, spec.dtype)
        for layer in owned
        if model.layers[layer].recurrent
        for spec in specs
    ]


def _kv_bytes(
    model: ModelShape,
    parallel: Parallel,
    options: StateOptions,
    kinds: list[LayerKind],
    model_dtype: SourcedDtype | None,
) -> tuple[SourcedDtype | None, int, int, ConfigError | None]:
    if all(kind.kv is KvKind.NONE for kind in kinds):
        return None, 0, 0, None
    if model.kv is None:
        return None, 0, 0, model.kv_error
    try:
        dtype, _ = choose_dtype("--kv-dtype", options.kv_dtype, None, model_dtype)
        layer_bytes = model.kv.token_elements(parallel.tp_size) * dtype.element_bytes
    except ConfigError as error:
        return None, 0, 0, error
    full = sum(kind.kv is KvKind.FULL for kind in kinds)
    window = sum(kind.kv is KvKind.WINDOW for kind in kinds)
    return dtype, full * layer_bytes, window * layer_bytes, None
