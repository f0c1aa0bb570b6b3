"""diagnose.stage: the function a runtime error names tells whether the model was running."""

import pytest

from kvstudio.diagnose.read import read_log

ERROR = (
    "Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)\n"
    "Exception caught at file:/app/ggml/src/ggml-sycl/ggml-sycl.cpp, line:5981, func:operator()\n"
    "SYCL error: CHECK_TRY_ERROR((stream)->memcpy(data, (const char *)tensor->data + offset, size)): "
    "Exception caught in this line of code.\n"
    "  in function {function} at /app/ggml/src/ggml-sycl/ggml-sycl.cpp:5981\n"
)
LOADING = "load_tensors: loading model tensors, this can take a while... (mmap = true)\n"
CACHE = "llama_kv_cache:      SYCL0 KV buffer size =   512.00 MiB\n"


@pytest.mark.parametrize(
    ("before", "function", "stage"),
    [
        ("", "ggml_backend_sycl_get_tensor_async", "decode"),
        (CACHE, "ggml_backend_sycl_get_tensor_async", "decode"),
        ("", "ggml_sycl_op_mul_mat", "decode"),
        ("", "ggml_backend_sycl_graph_compute_impl", "decode"),
        (LOADING, "ggml_backend_sycl_set_tensor_async", "weights"),
        (LOADING, "ggml_backend_sycl_buffer_set_tensor", "weights"),
        ("", "ggml_backend_sycl_buffer_set_tensor", None),
    ],
)
def test_of_a_sycl_exception(before: str, function: str, stage: str | None) -> None:
    found = read_log((before + ERROR.format(function=function)).encode()).diagnosis
    assert (found.memory_class, found.stage) == ("memory", stage)


def test_a_sycl_error_that_is_no_shortage_has_no_stage() -> None:
    text = ERROR.format(function="ggml_backend_sycl_get_tensor_async").replace(
        "39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)", "-999"
    )
    found = read_log(text.encode()).diagnosis
    assert (found.memory_class, found.stage) == ("not_memory", None)
