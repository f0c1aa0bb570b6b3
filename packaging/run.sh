#!/bin/sh
# Opens kvstudio on the files given: sh packaging/run.sh [FILE...]
# Makes .venv and installs what is missing first: Python packages from PyPI, Debian packages where this user may.
# `--sample` opens the real Gemma model with a real llama-server on two software devices.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/packaging/env.sh"
extras=rig
debs="$window_debs"
make_venv
exec "$root/.venv/bin/kvstudio" "$@"
