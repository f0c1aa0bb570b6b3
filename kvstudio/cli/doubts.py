"""What of a command line will not do what was meant: misspelt options, a wrong number of shares, forgotten servers."""

from kvstudio.budget.device_list import choose
from kvstudio.devices.values import Device
from kvstudio.launch.binary import Binary
from kvstudio.launch.config import LaunchConfig
from kvstudio.launch.unknown import unknown_options

#: Options of ours that no program of llama.cpp has, and that are easily put after the `--`.
_OURS = frozenset({"--json", "--devices", "--cpu-only", "--build", "--repeat", "--yes", "--dry-run", "--want", "--for"})


def doubts(config: LaunchConfig, devices: tuple[Device, ...], binary: Binary | None, *, typed: bool) -> tuple[str, ...]:
    """A sentence each; `typed` where the devices were typed, so that a server of --rpc can only be one of those."""
    ours = tuple(word for arg in config.layout for word in arg.tokens[:1] if word in _OURS)
    unknown = unknown_options(config, binary)
    return (
        *(f"{word} is an option of kvstudio-cli: put it before the --." for word in ours),
        *(said for said in unknown if said.partition(" ")[0] not in ours),
        *_shares(config, len(choose(devices, config)[0])),
        *(_servers(config, devices) if typed else ()),
    )


def _shares(config: LaunchConfig, n_devices: int) -> tuple[str, ...]:
    n_shares = len(config.tensor_split or ())
    if not n_shares or not n_devices or n_shares == n_devices or config.split_mode == "none":
        return ()
    shares = "1 share" if n_shares == 1 else f"{n_shares} shares"
    places = "1 device" if n_devices == 1 else f"{n_devices} devices"
    rest = "those past the last device do nothing" if n_shares > n_devices else "the devices past the last share get 0"
    return (f"-ts has {shares} for {places}: {rest}.",)


def _servers(config: LaunchConfig, devices: tuple[Device, ...]) -> tuple[str, ...]:
    servers = config.rpc or ()
    n_typed = sum(device.backend == "RPC" for device in devices)
    if len(servers) <= n_typed:
        return ()
    left = servers[n_typed]
    more = f" and {len(servers) - n_typed - 1} more" if len(servers) - n_typed > 1 else ""
    example = f"--device 'RPC{n_typed}[{left}]=24GiB'"
    return (f"--rpc {left}{more}: no typed device stands for it, so it is left out. Add it like {example}.",)
