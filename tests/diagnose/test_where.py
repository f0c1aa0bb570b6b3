"""diagnose.where: a backend that prints no number is on the device the log names, when it names one."""

import pytest

from kvstudio.diagnose.read import read_log

METAL = (
    "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n"
    "ggml_metal_graph_compute: command buffer 0 failed with status 5\n"
)
SYCL = (
    "Native API failed. Native API returns: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)\n"
    "Exception caught at file:/app/ggml/src/ggml-sycl/ggml-sycl.cpp, line:5981\n"
)
ARC = "| {n}| [level_zero:gpu:{n}]|    Intel Arc A770 Graphics|  12.55|    512|    1024|   32| 16225M|     1.6.33578|\n"
WORKING_SET = "ggml_metal_init: recommendedMaxWorkingSetSize  = 11453.25 MB\n"
USING = "llama_prepare_model_devices: using device {name} (Apple M1 Pro) (unknown id) - 10922 MiB free\n"


@pytest.mark.parametrize(
    ("named", "error", "device"),
    [
        ("", METAL, None),
        (WORKING_SET, METAL, "Metal"),
        (USING.format(name="MTL0"), METAL, "MTL0"),
        (WORKING_SET + USING.format(name="MTL0"), METAL, "MTL0"),
        (USING.format(name="MTL0") + USING.format(name="MTL1"), METAL, None),
        (USING.format(name="MTL0") + USING.format(name="RPC0[192.0.2.1:50052]"), METAL, "MTL0"),
        ("", SYCL, None),
        (ARC.format(n=0), SYCL, "SYCL0"),
        (ARC.format(n=0) + ARC.format(n=1), SYCL, None),
    ],
)
def test_the_only_device_of_a_backend(named: str, error: str, device: str | None) -> None:
    assert read_log((named + error).encode()).diagnosis.device == device
