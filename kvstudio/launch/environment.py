"""Variables of a child process: ours, repaired where a bundle changed them, plus the binary's and the settings' own."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvstudio.launch.binary import Binary

#: Search paths of the dynamic loader, which a bundle points at its own libraries.
LOADER_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "DYLD_FRAMEWORK_PATH", "LIBPATH")

#: Set by bundles for themselves; llama.cpp must not see them.
_OURS = ("_MEIPASS2", "_PYI_ARCHIVE_FILE", "_PYI_PARENT_PROCESS_LEVEL", "_PYI_APPLICATION_HOME_DIR")


def child_env(config_env: Iterable[tuple[str, str]], binary: "Binary | None") -> dict[str, str]:
    """The whole environment of a llama.cpp process.

    `LLAMA_ARG_*` that happen to be set around us are left out: the settings alone decide, and they hold their own.
    """
    return merge(os.environ, config_env, binary.env if binary else (), frozen=getattr(sys, "frozen", False))


def merge(
    base: Mapping[str, str],
    config_env: Iterable[tuple[str, str]],
    binary_env: Iterable[tuple[str, str]] = (),
    *,
    frozen: bool = False,
) -> dict[str, str]:
    """`base` without what a bundle or a shell put there, then the binary's folders, then the settings' variables."""
    env = {name: value for name, value in base.items() if not name.startswith("LLAMA_ARG_") and name not in _OURS}
    if frozen:
        _restore(env)
    for name, value in binary_env:
        env[name] = os.pathsep.join(filter(None, (value, env.get(name)))) if name in LOADER_PATHS else value
    env.update(config_env)
    return env


def _restore(env: dict[str, str]) -> None:
    """Loader paths as they were before the bundle started: else llama.cpp loads the bundle's libraries."""
    for name in LOADER_PATHS:
        original = env.pop(f"{name}_ORIG", None)
        if original is None:
            env.pop(name, None)
        else:
            env[name] = original


def windows_kernel() -> Any:
    """The calls of Windows' kernel32."""
    import ctypes

    # By name, since other systems' ctypes has no such loader.
    return getattr(ctypes, "WinDLL")("kernel32", use_last_error=True)  # noqa: B009


@contextmanager
def outside_bundle(kernel: Any = None) -> Iterator[None]:
    """While a child is started: without the folder of libraries a bundle has set on Windows, which children inherit."""
    bundle = getattr(sys, "_MEIPASS", None)
    if bundle is None or (kernel is None and sys.platform != "win32"):
        yield
        return
    kernel = kernel if kernel is not None else windows_kernel()
    kernel.SetDllDirectoryW(None)
    try:
        yield
    finally:
        kernel.SetDllDirectoryW(bundle)
