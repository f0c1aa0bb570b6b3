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
if [ "$(uname -s)" = Linux ] && [ -z "${DISPLAY:-}${WAYLAND_DISPLAY:-}${QT_QPA_PLATFORM:-}" ]; then
  say "there is no screen here (neither DISPLAY nor WAYLAND_DISPLAY is set). Two ways on:"
  say "  in a terminal:    .venv/bin/kvstudio-cli --help"
  say "  a virtual screen: apt-get install xvfb && xvfb-run -s '-screen 0 1280x820x24' sh packaging/run.sh ${*:-}"
  exit 2
fi
exec "$root/.venv/bin/kvstudio" "$@"
