"""Every check of the project in one command: format, lint, types, import order, tests, the built program."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def steps(quick: bool) -> list[tuple[str, list[str]]]:
    """Name and command of each check, quick ones first."""
    python = sys.executable
    tools = Path(python).parent
    listed = [
        ("format", [python, "-m", "ruff", "format", "--check", "."]),
        ("lint", [python, "-m", "ruff", "check", "."]),
        ("types", [python, "-m", "mypy"]),
        ("import order", [str(tools / "lint-imports"), "--no-cache"]),
    ]
    if not quick:
        listed.append(("bundle", [python, "packaging/build.py", "--check"]))
    listed.append(("tests", [python, "-m", "pytest", *(["-m", "not rig"] if quick else [])]))
    return listed


def run(name: str, command: list[str]) -> bool:
    """Run one check; its output is shown whole for the tests, and only when it fails for the others."""
    began = time.monotonic()
    loud = name == "tests"
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"PYTHONUNBUFFERED": "1"}, text=True, check=False,
                          stdout=None if loud else subprocess.PIPE, stderr=subprocess.STDOUT)  # fmt: skip
    if done.returncode and not loud:
        print(done.stdout)
    print(f"-- {name}: {'ok' if done.returncode == 0 else 'FAILED'} in {time.monotonic() - began:.1f} s", flush=True)
    return done.returncode == 0


def main() -> int:
    """Exit 0 when every check passed; later checks run even after one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="without the real llama-server and the bundle")
    args = parser.parse_args()
    passed = [run(name, command) for name, command in steps(args.quick)]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
