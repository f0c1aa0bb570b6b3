"""Names as the window writes them."""

from kvstudio.ui.text import device_names


def test_a_remote_device_is_called_without_its_server():
    names = ("CUDA0", "RPC0[192.168.1.20:50052]", "RPC1[192.168.1.20:50052]", "CUDA0")
    assert list(device_names(names).values()) == ["CUDA0", "RPC0", "RPC1"]


def test_remote_devices_of_one_name_are_called_by_their_servers():
    names = ("RPC[a:1]", "RPC[b:2]", "CPU")
    assert list(device_names(names).values()) == ["a:1", "b:2", "CPU"]
