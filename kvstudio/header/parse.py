"""One GGUF file's bytes -> its metadata, tensor table and the place of its data."""

import struct
from dataclasses import dataclass
from math import prod

from kvstudio.errors import HeaderError
from kvstudio.header.source import ByteSource
from kvstudio.header.types import ARRAY, NUMBER_FORMATS, REMOVED_TYPES, STRING, TENSOR_TYPES
from kvstudio.header.values import ArrayValue, MetadataValue, Scalar, Shard, TensorInfo

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32

#: Numbers kept of an array: enough for one per layer of any model, too few for a vocabulary's scores.
KEEP_NUMBERS = 4096
#: Strings kept of an array (tags, languages), and how much text altogether.
KEEP_STRINGS = 64
KEEP_STRINGS_BYTES = 64 * 1024
#: Text kept of one value (the longest are chat templates), and of all values together.
KEEP_TEXT_BYTES = 1024 * 1024
KEEP_ALL_TEXT_BYTES = 8 * 1024 * 1024

#: More than any model has (some have 50,000 tensors); a larger count is damage, not a model.
MAX_KEYS = 65_536
MAX_TENSORS = 262_144
MAX_KEY_BYTES = 65_535
MAX_ARRAY = 1024**3
MAX_ALIGNMENT = 1024**2
#: Source: `GGML_MAX_NAME` and `GGML_MAX_DIMS` in ggml.h.
MAX_NAME_BYTES = 63
MAX_DIMS = 4
_INT64_MAX = 2**63 - 1

_SMALLEST_KEY = 8 + 1 + 4 + 1
_SMALLEST_TENSOR = 8 + 4 + 4 + 8
_NUMBERS = {type_id: struct.Struct("<" + code) for type_id, code in NUMBER_FORMATS.items()}
_DIMS = tuple(struct.Struct(f"<{n}QIQ") for n in range(MAX_DIMS + 1))

_NOT_GGUF = (
    (b"ggml", "a GGML file from before GGUF", "Convert it or download a GGUF of the model."),
    (b"lmgg", "a GGML file from before GGUF", "Convert it or download a GGUF of the model."),
    (b"fmgg", "a GGML file from before GGUF", "Convert it or download a GGUF of the model."),
    (b"tjgg", "a GGML file from before GGUF", "Convert it or download a GGUF of the model."),
    (b"algg", "a GGML adapter from before GGUF", "Convert it or download a GGUF of the adapter."),
    (b"FUGG", "GGUF written backwards (big-endian)", "Convert it to little-endian with llama.cpp's conversion script."),
    (b"PK\x03\x04", "a zip archive or PyTorch checkpoint", "Unpack or convert it to GGUF first."),
    (b"\x1f\x8b", "a gzip archive", "Unpack it first."),
    (b"version https://git-lfs", "a Git LFS pointer", "Fetch the file itself: git lfs pull."),
    (b"<", "a web page or XML", "The download gave a page instead of the model; download it again."),
    (b"{", "JSON text", "The download gave a message instead of the model; download it again."),
)


@dataclass(frozen=True, slots=True)
class ParsedFile:
    """One file as it stands; the tensors carry the index of the shard they were read from."""

    version: int
    metadata: dict[str, MetadataValue]
    tensors: tuple[TensorInfo, ...]
    shard: Shard
    warnings: tuple[str, ...]


def parse_file(path: str) -> ParsedFile:
    """Read the header of one file; a data part shorter than the table says is not an error.

    Errors: HeaderError. Source: the format as `gguf_init_from_reader` in gguf.cpp reads it, build 11434.
    """
    with ByteSource(path) as source:
        try:
            return _Parser(source).parse()
        except OSError as problem:
            raise source.error(f"expected a header but reading failed: {problem.strerror or problem}") from problem


def parse_general(path: str) -> dict[str, MetadataValue]:
    """Only the metadata before the vocabulary, which is what takes time: name, architecture, type.

    Errors: HeaderError.
    """
    with ByteSource(path) as source:
        return _Parser(source).general()


class _Parser:
    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self.metadata: dict[str, MetadataValue] = {}
        self.warnings: list[str] = []
        self.text_left = KEEP_ALL_TEXT_BYTES

    def parse(self) -> ParsedFile:
        version = self._version()
        n_tensors = self._count("the tensor count", MAX_TENSORS, _SMALLEST_TENSOR)
        n_keys = self._count("the metadata count", MAX_KEYS, _SMALLEST_KEY)
        for index in range(n_keys):
            self._pair(index)
        alignment = self._alignment()
        shard_index = self.metadata.get("split.no")
        tensors = self._tensors(n_tensors, shard_index if type(shard_index) is int else 0)
        shard = self._shard(tensors, alignment)
        self._check_offsets(tensors, alignment)
        return ParsedFile(version, self.metadata, tensors, shard, tuple(self.warnings))

    def general(self) -> dict[str, MetadataValue]:
        self._version()
        self._count("the tensor count", MAX_TENSORS, _SMALLEST_TENSOR)
        for index in range(self._count("the metadata count", MAX_KEYS, _SMALLEST_KEY)):
            self._pair(index)
            if next(reversed(self.metadata)).startswith("tokenizer."):
                break
        return self.metadata

    def _version(self) -> int:
        source = self.source
        if source.size == 0:
            raise source.error(
                "expected a GGUF file, found an empty one", "The download did not start; download it again."
            )
        start = source.take(min(source.size, 64), "the magic")
        if start[:4] != MAGIC:
            raise self._not_gguf(start)
        if len(start) < 24:
            says = f"expected a GGUF header of at least 24 bytes, found the end of the file after {len(start)}"
            raise source.error(says, "The file is cut short; download it again.", len(start))
        version = int.from_bytes(start[4:8], "little")
        if version & 0xFFFF == 0 and version:
            says = f"expected a little-endian GGUF, found big-endian (version {int.from_bytes(start[4:8], 'big')})"
            raise source.error(says, "Convert it to little-endian with llama.cpp's conversion script.", 4)
        if version not in (2, 3):
            newer = "Update the program." if version > 3 else "Convert the model again; version 1 is no longer read."
            raise source.error(f"expected GGUF version 2 or 3, found version {version}", newer, 4)
        source.rewind(8)
        return version

    def _not_gguf(self, start: bytes) -> HeaderError:
        hint = "Choose a file in the GGUF format."
        found = "the bytes " + start[:4].hex(" ")
        if not start.strip(b"\0"):
            found, hint = "zeros", "The download reserved the space but did not fill it; download it again."
        for magic, what, advice in _NOT_GGUF:
            if start.startswith(magic):
                found, hint = what, advice
        if start[8:10] == b'{"':
            found, hint = "a safetensors file", "Convert it to GGUF with llama.cpp's conversion script."
        return self.source.error(f"expected the letters GGUF, found {found}", hint, 0)

    def _count(self, what: str, most: int, smallest: int) -> int:
        offset = self.source.offset
        count = self.source.u64(what)
        if count > most or count * smallest > self.source.left:
            fits = min(most, self.source.left // smallest)
            raise self.source.error(f"{what} is {count:,} where at most {fits:,} are possible", offset=offset)
        return count

    def _string(self, what: str, most: int) -> str:
        """A string that has to be short: a key or a name."""
        offset = self.source.offset
        length = self.source.u64(f"the length of {what}")
        if length > most:
            raise self.source.error(
                f"{what} is {length:,} bytes long where at most {most:,} were expected", offset=offset
            )
        return self.source.take(length, what).decode("utf-8", "replace")

    def _pair(self, index: int) -> None:
        source, offset = self.source, self.source.offset
        key = self._string(f"metadata key {index}", MAX_KEY_BYTES)
        if not key:
            raise source.error(f"metadata key {index} is empty", offset=offset)
        if key in self.metadata:
            raise source.error(f"expected a new metadata key, found {key!r} a second time", offset=offset)
        type_id = source.u32(f"the type of {key!r}")
        self.metadata[key] = self._array(key) if type_id == ARRAY else self._scalar(key, type_id)

    def _scalar(self, key: str, type_id: int) -> Scalar:
        what = f"the value of {key!r}"
        if type_id == STRING:
            return self._text(key, what)
        return self.source.unpack(self._number(key, type_id), what)[0]

    def _text(self, key: str, what: str) -> str:
        length = self.source.u64(f"the length of {key!r}")
        self.source.check(length, what)
        kept = min(length, KEEP_TEXT_BYTES, self.text_left)
        self.text_left -= kept
        text = self.source.take(kept, what).decode("utf-8", "replace")
        if kept < length:
            self.source.skip(length - kept, what)
            self.warnings.append(f"{key} is {length:,} bytes of text; only the first {kept:,} were kept")
        return text

    def _number(self, key: str, type_id: int) -> struct.Struct:
        packed = _NUMBERS.get(type_id)
        if packed is None:
            raise self.source.error(
                f"{key!r} has the value type {type_id}, expected 0 to 12", offset=self.source.offset - 4
            )
        return packed

    def _array(self, key: str) -> ArrayValue:
        source, what = self.source, f"the array {key!r}"
        type_id = source.u32(f"the element type of {key!r}")
        if type_id == ARRAY:
            raise source.error(f"{key!r} is an array of arrays, expected numbers or strings", offset=source.offset - 4)
        packed = None if type_id == STRING else self._number(key, type_id)
        offset = source.offset
        count = source.u64(f"the length of {key!r}")
        need = count * (packed.size if packed else 8)
        if count > MAX_ARRAY or need > source.left:
            says = f"{what} has {count:,} elements ({need:,} bytes or more) but only {source.left:,} bytes can follow"
            raise source.error(says, "The file is cut short or damaged; download it again.", offset)
        if packed is None:
            return ArrayValue(type_id, count, self._strings(count, what))
        if count > KEEP_NUMBERS:
            source.skip(need, what)
            return ArrayValue(type_id, count, None)
        values = source.unpack(struct.Struct(f"<{count}{NUMBER_FORMATS[type_id]}"), what)
        return ArrayValue(type_id, count, values)

    def _strings(self, count: int, what: str) -> tuple[str, ...] | None:
        source = self.source
        if count > KEEP_STRINGS:
            source.skip_strings(count, what)
            return None
        kept, room = [], min(KEEP_STRINGS_BYTES, self.text_left)
        for index in range(count):
            length = source.u64(what)
            if length > room:
                source.skip(length, what)
                source.skip_strings(count - index - 1, what)
                return None
            room -= length
            self.text_left -= length
            kept.append(source.take(length, what).decode("utf-8", "replace"))
        return tuple(kept)

    def _alignment(self) -> int:
        value = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(value) is not int or not 0 < value <= MAX_ALIGNMENT or value & (value - 1):
            shown = "an array" if isinstance(value, ArrayValue) else repr(value)
            raise self.source.error(f"general.alignment is {shown}, expected a power of two up to {MAX_ALIGNMENT:,}")
        return value

    def _tensors(self, count: int, shard: int) -> tuple[TensorInfo, ...]:
        source, seen, tensors = self.source, set[str](), []
        for index in range(count):
            offset = source.offset
            name = self._string(f"the name of tensor {index}", MAX_NAME_BYTES)
            if name in seen:
                raise source.error(f"expected a new tensor, found {name!r} a second time", offset=offset)
            seen.add(name)
            tensors.append(self._tensor(name, shard))
        return tuple(tensors)

    def _tensor(self, name: str, shard: int) -> TensorInfo:
        source = self.source
        n_dims = source.u32(f"the dimensions of tensor {name!r}")
        if n_dims > MAX_DIMS:
            says = f"tensor {name!r} has {n_dims:,} dimensions where at most {MAX_DIMS} are possible"
            raise source.error(says, offset=source.offset - 4)
        offset = source.offset
        row = source.unpack(_DIMS[n_dims], f"the entry of tensor {name!r}")
        numbers = tuple(int(value) for value in row)
        shape, type_id, data_offset = numbers[:n_dims], numbers[n_dims], numbers[n_dims + 1]
        return TensorInfo(name, shape, type_id, data_offset, self._tensor_bytes(name, shape, type_id, offset), shard)

    def _tensor_bytes(self, name: str, shape: tuple[int, ...], type_id: int, offset: int) -> int:
        kind = TENSOR_TYPES.get(type_id)
        if kind is None:
            old = REMOVED_TYPES.get(type_id)
            hint = (
                "Download a newer quantization of the model."
                if old
                else "Update the program, or download the file again."
            )
            found = f"{old}, which llama.cpp has removed" if old else f"number {type_id}"
            raise self.source.error(f"tensor {name!r} has an unknown type: {found}", hint, offset)
        n_row = shape[0] if shape else 1
        if n_row % kind.block:
            says = f"tensor {name!r} has rows of {n_row:,} values, expected a multiple of {kind.block} for {kind.name}"
            raise self.source.error(says, offset=offset)
        n_bytes = prod(shape) // kind.block * kind.block_bytes
        if max(prod(shape), n_bytes) > _INT64_MAX:
            raise self.source.error(f"tensor {name!r} has an impossible shape: {shape}", offset=offset)
        return n_bytes

    def _shard(self, tensors: tuple[TensorInfo, ...], alignment: int) -> Shard:
        source, end = self.source, self.source.offset
        data_offset = _pad(end, alignment) if tensors else end
        need = max((data_offset + tensor.offset + tensor.n_bytes for tensor in tensors), default=end)
        return Shard(source.path, source.size, data_offset, alignment, len(tensors), need)

    def _check_offsets(self, tensors: tuple[TensorInfo, ...], alignment: int) -> None:
        expected = 0
        for tensor in tensors:
            if tensor.offset != expected:
                self.warnings.append(
                    f"{self.source.path}: tensor {tensor.name} starts at {tensor.offset:,} of the data,"
                    f" expected {expected:,}; llama.cpp will refuse the file"
                )
                return
            expected += _pad(tensor.n_bytes, alignment)


def _pad(n_bytes: int, alignment: int) -> int:
    return (n_bytes + alignment - 1) // alignment * alignment
