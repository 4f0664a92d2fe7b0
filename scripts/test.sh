#!/bin/sh
# Everything that must hold before a change goes in: the sources are formatted, each layer includes only what it may,
# the tree builds, and every test passes.
#   scripts/test.sh            optimised build, in build/
#   scripts/test.sh sanitize   under AddressSanitizer and UndefinedBehaviorSanitizer, in build-sanitize/
set -eu
cd "$(dirname "$0")/.."

preset=${1:-release}
case "$preset" in
  release) folder=build ;;
  sanitize) folder=build-sanitize ;;
  *)
    echo "usage: scripts/test.sh [release | sanitize]" >&2
    exit 2
    ;;
esac

scripts/setup.sh --checks

echo "== format"
find src tests bench \( -name '*.h' -o -name '*.cc' \) -exec clang-format-14 --dry-run --Werror {} +

echo "== layers"
python3 tools/check_layers.py src tools/layers.txt

echo "== build ($preset)"
cmake --preset "$preset"
cmake --build --preset "$preset"

echo "== tests"
ctest --test-dir "$folder" --output-on-failure --parallel "$(nproc)"
