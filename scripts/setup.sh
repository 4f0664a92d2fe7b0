#!/bin/sh
# Installs the packages to build and run Temper on Debian 12, as root or with sudo. Asks no questions, prints little,
# and does nothing if everything is installed.
#   scripts/setup.sh            packages for `cmake -S . -B build && cmake --build build`
#   scripts/setup.sh --checks   also the tools of scripts/test.sh
#   scripts/setup.sh --hip      also hipcc, for the preset `hip`
set -eu

packages='
  g++ cmake ninja-build pkg-config ccache mold
  libfmt-dev nlohmann-json3-dev libyaml-cpp-dev libxxhash-dev
  libpcre2-dev libutf8proc-dev libsentencepiece-dev zlib1g-dev libzstd-dev libedit-dev
  libsnappy-dev liblz4-dev libbrotli-dev
  libopenmpi-dev openmpi-bin
  libgtest-dev libboost-context-dev'
case "${1:-}" in
  '') ;;
  --checks)
    packages="$packages clang-format-14 python3-minimal clang-14 clang-tidy-14 libclang-rt-14-dev
      slurm-wlm munge iproute2 chromium"
    ;;
  --hip) packages="$packages hipcc libamdhip64-dev" ;;
  *)
    echo "usage: scripts/setup.sh [--checks | --hip]" >&2
    exit 2
    ;;
esac

if ! command -v apt-get >/dev/null; then
  echo "setup: there is no apt-get here; install these packages (names of Debian 12):$packages" >&2
  exit 1
fi

missing=''
for package in $packages; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

as_root=''
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: installing packages needs root: run this as root, or install sudo. Missing:$missing" >&2
    exit 1
  fi
  as_root='sudo'
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" </dev/null >>"$log" 2>&1
}

echo "setup: installing$missing" >&2
# A machine's package lists may be outdated, so they are updated first; if
# that fails (no network, but a full cache) the installation is tried anyway.
apt update || true
# shellcheck disable=SC2086  # a list of words
if ! apt install --no-install-recommends $missing; then
  tail -n 20 "$log" >&2
  echo "setup: apt-get could not install these; its last lines are above" >&2
  exit 1
fi
