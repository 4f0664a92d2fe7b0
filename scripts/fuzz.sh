#!/bin/sh
# Builds the libFuzzer targets (*_fuzz.cc) and runs each for SECONDS (10 unless given), two at a time, from what it learnt
# before (build-fuzz/corpus). Fails where one fails; its input is then in build-fuzz/ (crash-*, timeout-*, oom-*).
#   scripts/fuzz.sh [SECONDS [NAME...]]
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-10}
[ $# -eq 0 ] || shift

clang=''
for name in clang++-14 clang++; do
  command -v "$name" >/dev/null && clang=$name && break
done
if [ -z "$clang" ]; then
  echo "fuzz: libFuzzer comes with clang: install the packages clang-14 and libclang-rt-14-dev" >&2
  exit 1
fi
cmake -S . -B build-fuzz -G Ninja -DCMAKE_CXX_COMPILER="$clang" -DTEMPER_FUZZ=ON -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build build-fuzz --target fuzz

cd build-fuzz
[ $# -gt 0 ] || set -- $(ls | sed -n 's/^fuzz_//p')
run() {
  mkdir -p "corpus/$1"
  if "./fuzz_$1" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
      -artifact_prefix="./$1-" "corpus/$1" >"$1.log" 2>&1; then
    echo "fuzz: $1: $(sed -n 's/stat::number_of_executed_units: *//p' "$1.log") inputs, no fault"
  else
    tail -n 40 "$1.log" >&2
    echo "fuzz: $1 FAILED; the input lies in build-fuzz/$1-*, all of the output in build-fuzz/$1.log" >&2
    return 1
  fi
}
failed=0
while [ $# -gt 0 ]; do
  run "$1" & first=$!
  second=''
  if [ $# -gt 1 ]; then
    run "$2" & second=$!
    shift
  fi
  shift
  wait "$first" || failed=1
  [ -z "$second" ] || wait "$second" || failed=1
done
exit $failed
