"""Any file of a split model -> all its files, with what is missing, mixed or renamed."""

import os
import re
from dataclasses import dataclass

from kvstudio.errors import HeaderError
from kvstudio.header.parse import MAGIC, ParsedFile, parse_file

_SHARD_NAME = re.compile(r"(.+)-([0-9]{5})-of-([0-9]{5})\.gguf", re.DOTALL)

#: A model of 1024 files would be far beyond any that exists.
MAX_SHARDS = 1024
#: Files of a folder that are looked into for a shard whose name does not say what it is.
MAX_LOOKED_AT = 200


@dataclass(frozen=True, slots=True)
class ShardSet:
    """The files found, in order of their number; `missing` names those that are not there."""

    files: tuple[ParsedFile, ...]
    missing: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def shard_path(prefix: str, index: int, count: int) -> str:
    """The name llama.cpp gives to shard `index` (from 0). Source: `llama_split_path` in llama.cpp, build 11434."""
    return f"{prefix}-{index + 1:05d}-of-{count:05d}.gguf"


def find_shards(opened: ParsedFile) -> ShardSet:
    """Find and read the other files of the model that `opened` is part of.

    Errors: HeaderError when the first shard is not there, or when a file under a shard's name is of another model.
    """
    count = _split_number(opened, "split.count")
    if count is None or count <= 1:
        return ShardSet((opened,))
    index = _split_number(opened, "split.no")
    if index is None or index >= count or count > MAX_SHARDS:
        says = (
            f"split.no is {index} of split.count {count}, expected a number below the count, and at most {MAX_SHARDS}"
        )
        raise _error(opened, says, "Download the files again.")
    return _collect(opened, index, count)


def _error(file: ParsedFile, says: str, hint: str) -> HeaderError:
    return HeaderError(f"{file.shard.path}: in the header before byte {file.shard.data_offset}, {says}.", hint)


def _split_number(file: ParsedFile, key: str) -> int | None:
    value = file.metadata.get(key)
    return value if type(value) is int and value >= 0 else None


def _collect(opened: ParsedFile, index: int, count: int) -> ShardSet:
    prefix, warnings = _prefix(opened, index, count)
    found: dict[int, ParsedFile] = {index: opened}
    for other in range(count):
        path = shard_path(prefix, other, count)
        if other != index and os.path.isfile(path):
            found[other] = _check_same(parse_file(path), opened, other, count)
    missing = [other for other in range(count) if other not in found]
    if missing:
        renamed = _find_renamed(opened, missing, count)
        found |= renamed
        warnings += [_renamed(file.shard.path, shard_path(prefix, other, count)) for other, file in renamed.items()]
    missing_paths = tuple(shard_path(prefix, other, count) for other in range(count) if other not in found)
    if 0 not in found:
        says = f"this is file {index + 1} of {count}; expected the first one, {missing_paths[0]}, beside it, found none"
        raise _error(opened, says, "Only the first file says what the model is: download it too.")
    files = tuple(found[other] for other in sorted(found))
    _check_whole(files, count)
    return ShardSet(files, missing_paths, tuple(warnings))


def _prefix(opened: ParsedFile, index: int, count: int) -> tuple[str, list[str]]:
    """The part of the path that all shards share, and a warning when the opened file's name is not the one inside."""
    path = opened.shard.path
    match = _SHARD_NAME.fullmatch(path)
    if match is None:
        prefix = path.removesuffix(".gguf")
        return prefix, [_renamed(path, shard_path(prefix, index, count))]
    prefix = match[1]
    expected = shard_path(prefix, index, count)
    return prefix, [] if path == expected else [_renamed(path, expected)]


def _renamed(path: str, expected: str) -> str:
    return f"{path} was renamed: llama.cpp looks for {os.path.basename(expected)}"


def _check_same(file: ParsedFile, opened: ParsedFile, index: int, count: int) -> ParsedFile:
    has = (_split_number(file, "split.no"), _split_number(file, "split.count"))
    if has != (index, count):
        number = "no number" if has[0] is None else f"number {has[0] + 1} of {has[1]}"
        says = f"expected file {index + 1} of {count}, found {number} inside; the files are mixed up"
        raise _error(file, says, "Download the files of one model into one folder.")
    totals = {_split_number(each, "split.tensors.count") for each in (file, opened)} - {None}
    if len(totals) > 1:
        says = f"expected a part of the same model as {opened.shard.path}, found one of another"
        raise _error(file, says, "Download the files of one model into one folder.")
    return file


def _find_renamed(opened: ParsedFile, missing: list[int], count: int) -> dict[int, ParsedFile]:
    """Files beside the opened one that say inside that they are a missing shard."""
    folder = os.path.dirname(opened.shard.path)
    total = _split_number(opened, "split.tensors.count")
    known = {tensor.name for tensor in opened.tensors}
    found: dict[int, ParsedFile] = {}
    for path in _candidates(folder):
        if len(found) == len(missing):
            break
        try:
            if os.path.samefile(path, opened.shard.path):
                continue
            file = parse_file(path)
        except (HeaderError, OSError):
            continue
        index = _split_number(file, "split.no")
        same = (_split_number(file, "split.count"), _split_number(file, "split.tensors.count")) == (count, total)
        if same and index in missing and index not in found and known.isdisjoint(each.name for each in file.tensors):
            found[index] = file
    return found


def _candidates(folder: str) -> list[str]:
    """GGUF files of a folder whose names are no shard names, a bounded number of them."""
    paths: list[str] = []
    try:
        names = sorted(os.listdir(folder or "."))
    except OSError:
        return []
    for name in names:
        path = os.path.join(folder, name)
        if len(paths) < MAX_LOOKED_AT and _SHARD_NAME.fullmatch(name) is None and _starts_as_gguf(path):
            paths.append(path)
    return paths


def _starts_as_gguf(path: str) -> bool:
    try:
        if not os.path.isfile(path):
            return False
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def _check_whole(files: tuple[ParsedFile, ...], count: int) -> None:
    """No tensor twice, and as many as the first file promises."""
    owner: dict[str, str] = {}
    for file in files:
        for tensor in file.tensors:
            if tensor.name in owner:
                says = (
                    f"tensor {tensor.name!r} is also in {owner[tensor.name]}, expected it once; the files are mixed up"
                )
                raise _error(file, says, "Download the files of one model again.")
            owner[tensor.name] = file.shard.path
    total = _split_number(files[0], "split.tensors.count")
    if total is not None and len(files) == count and total != len(owner):
        path = files[0].shard.path
        says = (
            f"{path}: at byte {files[0].shard.data_offset}, split.tensors.count is {total}, found {len(owner)} tensors"
        )
        raise HeaderError(f"{says} in {count} files; the files are mixed up.", "Download the files of one model again.")
