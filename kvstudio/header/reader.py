"""A GGUF file, or any file of a split model -> Header; tensor data and vocabularies are never read."""

import os
from dataclasses import replace

from kvstudio.header.parse import parse_file
from kvstudio.header.shards import find_shards
from kvstudio.header.values import Header


def read(path: str | os.PathLike[str]) -> Header:
    """Read the header of a model; of a split model any shard will do, the others are looked for beside it.

    `metadata` is that of the first shard, `tensors` come in the order of the shards; a shard's index in
    `TensorInfo.shard` is that in `shards`. Data cut short is no error: see `Shard.complete`.

    Errors: HeaderError naming the file, the offset and what was expected.
    """
    found = find_shards(parse_file(os.fspath(path)))
    first = found.files[0]
    tensors = tuple(
        tensor if tensor.shard == index else replace(tensor, shard=index)
        for index, file in enumerate(found.files)
        for tensor in file.tensors
    )
    warnings = tuple(warning for file in found.files for warning in file.warnings) + found.warnings
    return Header(
        path=first.shard.path,
        version=first.version,
        metadata=first.metadata,
        tensors=tensors,
        shards=tuple(file.shard for file in found.files),
        missing_shards=found.missing,
        warnings=warnings,
    )
