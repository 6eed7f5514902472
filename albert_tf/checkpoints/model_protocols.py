"""What loading and saving weights read of a model, which may be one of another program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from albert_tf.model.config import AlbertConfig

if TYPE_CHECKING:
    import tensorflow as tf

    from albert_tf.model.modeling import AlbertEncoder


class WithVariables(Protocol):
    """A Keras model or layer, whose variables have Google's names."""

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """All variables, those that are not trained too."""


@runtime_checkable
class WithConfig(Protocol):
    """A model that knows its config; with an `AlbertConfig`, it is compared with checkpoints."""

    @property
    def config(self) -> object:
        """The config, of any class."""


@runtime_checkable
class WithEncoder(Protocol):
    """A model with a head on an encoder, unlike the encoder itself."""

    @property
    def encoder(self) -> AlbertEncoder:
        """The encoder."""


@runtime_checkable
class WithOptionalPooler(Protocol):
    """A model that says whether it needs the pooler; others do."""

    @property
    def uses_pooler(self) -> bool:
        """Whether an output depends on the pooler of the encoder."""


@runtime_checkable
class WithSentenceHead(Protocol):
    """A model that was made for a sentence objective."""

    @property
    def sentence_objective(self) -> str:
        """Abbreviation of the objective."""


@runtime_checkable
class WithLabels(Protocol):
    """A model with an output for each of some labels."""

    @property
    def num_labels(self) -> int:
        """Number of labels."""


@runtime_checkable
class WithLabelNames(Protocol):
    """A model that knows the names of its labels."""

    @property
    def labels(self) -> Sequence[str]:
        """Names of the labels; empty if they have none."""


def config_of(model: object) -> AlbertConfig | None:
    """Returns the config of a model; None if it has none, or that of another library."""
    config = model.config if isinstance(model, WithConfig) else None
    return config if isinstance(config, AlbertConfig) else None


def encoder_of(model: AlbertEncoder | WithEncoder) -> AlbertEncoder:
    """Returns the encoder of a model, which may be one."""
    return model.encoder if isinstance(model, WithEncoder) else model
