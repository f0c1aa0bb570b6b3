"""Small executables that stand in for llama.cpp's programs: one that answers, and each way not to."""

import stat
import sys
from pathlib import Path

VERSION = "version: 6345 (a1b2c3d4)\nbuilt with cc (Debian 12.2.0-14) 12.2.0 for x86_64-linux-gnu\n"
NEW_VERSION = "version: 0.6.0-dev (build 11434, commit 7e4c0a9)\nbuilt with GNU 12.2.0 for Linux x86_64\n"
HELP = """----- common params -----

-h,    --help, --usage                  print usage and exit
--version                               show version and build info
-c,    --ctx-size N                     size of the prompt context (default: 0, 0 = loaded from model)
                                        (env: LLAMA_ARG_CTX_SIZE)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to enable KV cache offloading (default: enabled)
-fitt, --fit-target MiB0,MiB1,MiB2,...
                                        target margin per device, default: 1024
--list-devices                          print list of available devices and exit
--draft, --draft-n, --draft-max N       the argument has been removed. use --spec-draft-n-max or
                                        --spec-ngram-mod-n-max
-ngl,  --gpu-layers, --n-gpu-layers N   max. number of layers to store in VRAM, either an exact number,
                                        'auto', or 'all' (default: auto)
"""
DEVICES = "Available devices:\n  CUDA0: NVIDIA GeForce RTX 4090 (24080 MiB, 23640 MiB free)\n"


def write_program(path: Path, body: str) -> str:
    """An executable of Python code that sees `arg`, its first word."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{sys.executable} -IS\nimport os, sys, time, signal\narg = sys.argv[1]\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def write_llama(path: Path, version: str = VERSION, helps: str = HELP, devices: str = DEVICES, log: str = "") -> str:
    """A program that answers as llama.cpp does; each question is added to the file `log`."""
    note = f"open({log!r}, 'a').write(arg + '\\n')" if log else ""
    body = (
        f"{note}\nif arg == '--version': sys.stderr.write({version!r})\nelif arg == '--help': print({helps!r})\n"
        f"elif arg == '--list-devices':\n    sys.stderr.write('ggml_cuda_init: noise\\n')\n    print({devices!r})\n"
        "else: sys.exit(1)"
    )
    return write_program(path, body)
