"""header.types: our small table says what the gguf package says, where both know a type."""

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFValueType

from kvstudio.header.types import ARRAY, BOOL, NUMBER_FORMATS, REMOVED_TYPES, STRING, TENSOR_TYPES, type_name


def test_block_sizes_are_those_of_the_gguf_package() -> None:
    assert len(GGML_QUANT_SIZES) > 30
    for kind, sizes in GGML_QUANT_SIZES.items():
        assert TENSOR_TYPES[kind.value][1:] == sizes
        assert TENSOR_TYPES[kind.value].name.lower() == kind.name.lower()


def test_removed_types_are_no_types() -> None:
    assert TENSOR_TYPES.keys().isdisjoint(REMOVED_TYPES)
    assert not {kind.value for kind in GGMLQuantizationType} & REMOVED_TYPES.keys()


def test_every_value_type_of_the_format_is_known() -> None:
    assert {kind.value for kind in GGUFValueType} == NUMBER_FORMATS.keys() | {STRING, ARRAY}
    assert (GGUFValueType.STRING, GGUFValueType.ARRAY, GGUFValueType.BOOL) == (STRING, ARRAY, BOOL)


def test_names() -> None:
    assert (type_name(12), type_name(31), type_name(99)) == ("q4_K", "q4_0_4_4", "type 99")
