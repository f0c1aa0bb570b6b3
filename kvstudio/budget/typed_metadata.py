"""The model as a command line has it read: with the metadata that `--override-kv` replaces."""

from kvstudio.errors import HeaderError
from kvstudio.launch.config import LaunchConfig
from kvstudio.model.overrides import overridden, parse_overrides
from kvstudio.model.values import ModelInfo

_FLAG = "--override-kv"


def as_typed(model: ModelInfo, config: LaunchConfig) -> tuple[ModelInfo, tuple[str, ...]]:
    """The model with the typed metadata, and what llama.cpp refuses about it."""
    texts = [arg.tokens[1] for arg in config.layout if arg.tokens[:1] == (_FLAG,) and len(arg.tokens) > 1]
    if not texts:
        return model, ()
    values, errors = parse_overrides(texts)
    try:
        return overridden(model, values), errors
    except HeaderError as error:
        return model, (*errors, f"{_FLAG}: {error}")
