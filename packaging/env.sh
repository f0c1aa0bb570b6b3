# Makes the environment the other scripts run in; sourced, not run. Says what it does, and is quick the second time.
# Expects: root (repository root), extras (extras of the project), debs (Debian packages).

say() { printf '%s\n' "kvstudio: $*" >&2; }

# Installs Debian packages that are missing, when this user may; otherwise names them.
need_debs() {
  command -v dpkg-query >/dev/null 2>&1 || return 0
  missing=""
  for deb in "$@"; do
    dpkg-query -W -f='${Status}' "$deb" 2>/dev/null | grep -q "ok installed" || missing="$missing $deb"
  done
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" = 0 ]; then
    sudo=""
  elif command -v sudo >/dev/null 2>&1 && sudo -n true 2>/dev/null; then
    sudo="sudo"
  else
    say "these Debian packages are missing and this user may not install them:$missing"
    say "  sudo apt-get install$missing"
    return 0
  fi
  say "installing Debian packages:$missing"
  $sudo apt-get update -qq >/dev/null 2>&1 || true
  # shellcheck disable=SC2086
  if ! DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    say "apt-get could not install them all; going on with what is there"
  fi
}

find_python() {
  for candidate in "${PYTHON:-}" python3.11 python3.12 python3.13 python3; do
    [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 || continue
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      printf '%s' "$candidate"
      return 0
    fi
  done
  return 1
}

make_venv() {
  venv="$root/.venv"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  # shellcheck disable=SC2086
  need_debs $debs
  if [ ! -x "$venv/bin/python" ]; then
    python=$(find_python) || { need_debs python3 && python=$(find_python); } || {
      say "Python 3.11 or newer is needed and was not found"
      exit 2
    }
    "$python" -c 'import ensurepip, venv' 2>/dev/null || need_debs python3-venv
    say "making an environment in .venv ($("$python" --version))"
    "$python" -m venv "$venv" || { say "python -m venv failed"; exit 2; }
  fi
  stamp="$venv/.kvstudio-$(printf '%s' "$extras" | tr ',' '-')"
  if [ ! -f "$stamp" ] || [ "$root/pyproject.toml" -nt "$stamp" ]; then
    say "installing kvstudio[$extras] and what it needs from PyPI (some minutes the first time)"
    if ! "$venv/bin/python" -m pip install --disable-pip-version-check -q -e "$root[$extras]" >"$log" 2>&1; then
      tail -n 20 "$log" >&2
      say "pip could not install everything; see above"
      exit 2
    fi
    touch "$stamp"
  fi
}

# What Qt's xcb plugin, a font and two software Vulkan devices need on a bare Debian.
window_debs="libegl1 libgl1 libglib2.0-0 libdbus-1-3 libfontconfig1 libxkbcommon-x11-0 libxcb-cursor0 libxcb-icccm4
  libxcb-keysyms1 libxcb-shape0 libxcb-xkb1 libxcb-render-util0 libxcb-image0 fonts-dejavu-core mesa-vulkan-drivers"
