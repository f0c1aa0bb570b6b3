#!/bin/sh
# Runs every check of the project: format, lint, types, import order, all tests (also those that start the real
# llama-server), and the built program. Makes .venv and installs what is missing first.
#   sh packaging/test.sh            everything
#   sh packaging/test.sh --quick    without the real server and the bundle
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/packaging/env.sh"
extras=dev,rig,build
debs="$window_debs xvfb xdotool openbox imagemagick"
make_venv
cd "$root"
exec "$root/.venv/bin/python" packaging/check.py "$@"
