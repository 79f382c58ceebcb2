"""Where a rank stands in its group, and which layers it owns."""

from __future__ import annotations

from dataclasses import dataclass

from stateroom.residency.config_fields import ConfigError

__all__ = ["Parallel", "even_split"]


def even_split(layer_count: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage as even as can be, the first stages one more where it does not divide."""
    each, more = divmod(layer_count, stages)
    return tuple(each + (stage < more) for stage in range(stages))


@dataclass(frozen=True, slots=True)
class Parallel:
    """One rank of one group of tp x pp ranks.

    `pp_layers` is an explicit split, layers a stage. `dp_size` groups stand beside each other with
    attention data parallelism: each keeps whole states of its own sequences, and one more reserved slot
    for the dummy that an idle one runs. Context parallelism replicates states. Errors: ConfigError.
    """

    tp_size: int = 1
    tp_rank: int = 0
    pp_size: int = 1
    pp_rank: int = 0
    pp_layers: tuple[int, ...] | None = None
    dp_size: int = 1
    cp_size: int = 1

    def __post_init__(self) -> None:
        for flag, size in (("--tp", self.tp_size), ("--pp", self.pp_size), ("--dp", self.dp_size), ("--cp", self.cp_size)):  # fmt: skip
            if size < 1:
                raise ConfigError(flag, size, "a group has at least one rank of each kind", "give 1 or more")
        for flag, index, size in (("tp rank", self.tp_rank, self.tp_size), ("pp rank", self.pp_rank, self.pp_size)):  # fmt: skip
            if not 0 <= index < size:
                raise ConfigError(flag, index, f"ranks are 0 to {size - 1}", "correct the rank")
        if self.pp_layers is not None and len(self.pp_layers) != self.pp_size:
            raise ConfigError(
                "--pp-layers",
                ",".join(map(str, self.pp_layers)),
                f"it names {len(self.pp_layers)} stages and --pp is {self.pp_size}",
                "give one number of layers a stage",
            )
        if self.pp_layers is not None and min(self.pp_layers) < 0:
            raise ConfigError(
                "--pp-layers", min(self.pp_layers), "a stage has no fewer than 0 layers", "correct it"
            )

    @property
    def rank(self) -> int:
        """Number of the rank in its group."""
        return self.pp_rank * self.tp_size + self.tp_rank

    @property
    def extra_reserved_slots(self) -> int:
        """Rows reserved beside row 0: the dummy sequence of attention data parallelism."""
        return 1 if self.dp_size > 1 else 0

    def split(self, layer_count: int) -> tuple[int, ...]:
        """Layers of each stage; ConfigError if an explicit split does not add up."""
        if self.pp_layers is None:
            if layer_count < self.pp_size:
                raise ConfigError(
                    "--pp", self.pp_size, f"the model has {layer_count} layers", "use fewer stages"
                )
            return even_split(layer_count, self.pp_size)
        if sum(self.pp_layers) != layer_count:
            raise ConfigError(
                "--pp-layers",
                ",".join(map(str, self.pp_layers)),
                f"it adds up to {sum(self.pp_layers)} and the model has {layer_count} layers",
                "make the stages add up",
            )
        return self.pp_layers

    def layers_of(self, stage: int, layer_count: int) -> range:
        """The layers of a stage, counted from 0 in the whole model."""
        split = self.split(layer_count)
        first = sum(split[:stage])
        return range(first, first + split[stage])
