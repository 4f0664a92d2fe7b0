#!/bin/sh
# Builds the libFuzzer targets (*_fuzz.cc) and runs them, two at a time, from the tests'
# and examples' own files. Fails if one fails; its input is then in the build folder
# (NAME-crash-*, NAME-timeout-*, NAME-oom-*). Keep failed inputs in tests/fuzz/NAME/.
#   scripts/fuzz.sh [SECONDS [NAME...]]   each for SECONDS (default: 10), also from the corpus of earlier runs
#                                         (build-sanitize/corpus)
#   scripts/fuzz.sh --same                those that CI builds, on the same inputs every time
set -eu
cd "$(dirname "$0")/.."

if ! command -v clang++-14 >/dev/null; then
  echo "fuzz: libFuzzer comes with clang: run scripts/setup.sh --checks" >&2
  exit 1
fi
folder=build-sanitize
cmake --preset sanitize >/dev/null
if [ "${1:-}" = --same ]; then
  cmake --build --preset inputs
  # So that the first, third, ... take as long as the others.
  set -- tokenizer records yaml safetensors program jinja token_store parquet arrow torch_file gguf_file
  corpus=same
  # A timeout that is long enough for a busy machine.
  effort='-seed=1 -runs=10000 -timeout=120'
  rm -rf "$folder/same" "$folder/seeds"
else
  corpus=corpus
  effort="-max_total_time=${1:-10} -timeout=10"
  [ $# -eq 0 ] || shift
  cmake --build --preset sanitize --target fuzz
fi

# copy NAME PREFIX FILE...: the files, each after the bytes that choose how the target reads it
copy() {
  to=$folder/seeds/$1 prefix=$2
  shift 2
  for file; do
    # shellcheck disable=SC2059  # the prefix is written as printf's escapes
    { printf "$prefix"; head -c 60000 "$file"; } >"$to/$(echo "$file" | tr / _)"
  done
}
seeds() {
  mkdir -p "$folder/seeds/$1"
  [ ! -d "tests/fuzz/$1" ] || copy "$1" '' "tests/fuzz/$1"/*
  case $1 in
    safetensors) copy "$1" '' tests/format/golden.safetensors tests/parity/goldens/adapters/*/*.safetensors ;;
    torch_file) copy "$1" '' tests/format/torch/*.bin ;;
    gguf_file) copy "$1" '' tests/format/*.gguf ;;
    parquet) copy "$1" '' tests/format/columnar/*.parquet ;;
    arrow) copy "$1" '' tests/format/columnar/*.arrow ;;
    yaml | run_options) copy "$1" '' examples/*.yaml ;;
    tokenizer) # 0: tokenizer.json, 1: tokenizer.model, 3: tokenizer_config.json, 4: tiktoken's ranks, 5: spiece.model
      copy "$1" '\000' tests/tokenizer/*/tokenizer.json
      copy "$1" '\001' tests/tokenizer/*/tokenizer.model
      copy "$1" '\003' tests/tokenizer/*/tokenizer_config.json
      copy "$1" '\004' tests/tokenizer/*/tiktoken.model
      copy "$1" '\005' tests/tokenizer/*/spiece.model
      ;;
    records) # by the two lowest bits: JSON lines, a list, text, a table; any may be compressed
      copy "$1" '\360' examples/plain/pirate_eval.jsonl tests/data/dataset_goldens.json
      copy "$1" '\361' tests/data/dataset_goldens.json
      copy "$1" '\362' README.md
      printf '\363prompt,completion,weight\r\n"a ""b""\n, c",d,0.5\r\ne,,\n' >"$folder/seeds/$1/table"
      { printf '\360' && head -n 2 examples/plain/pirate_eval.jsonl | gzip -n; } >"$folder/seeds/$1/gzip"
      ;;
    jinja) # each template of the tests' cases becomes a file
      awk -v folder="$folder/seeds/$1" '/^"template": / {
        sub(/^"template": "/, ""); sub(/",?$/, "")
        gsub(/\\n/, "\n"); gsub(/\\"/, "\""); gsub(/\\\\/, "\\")
        file = folder "/case" ++n; printf "%s", $0 >file; close(file)
      }' tests/template/jinja_cases.json
      ;;
  esac
}
run() {
  mkdir -p "$corpus/$1"
  # Time goes with the length of an input, and with libFuzzer's weighing of rare features. What these read is rows and
  # lines, all of whose cases are short. The sanitizer keeps freed memory back to find late uses of it. An input of these
  # frees 10 to 40 KB: 256 KB hold several and stay in the processor's cache (8 to 12 % more inputs a second than 1 MB).
  case $1 in
    records | run_options)
      length='-max_len=1024 -entropic=0'
      quarantine=quarantine_size_mb=0:thread_local_quarantine_size_kb=256
      ;;
    *) length=-max_len=65536 quarantine=quarantine_size_mb=16 ;;
  esac
  # Short stacks of allocations: many small inputs are worth more than long reports. Not below 2: without its caller an
  # allocation counts as reachable, and no leak is found.
  # shellcheck disable=SC2086  # a list of options
  if ASAN_OPTIONS=malloc_context_size=2:$quarantine "./fuzz_$1" $effort -rss_limit_mb=2048 $length -print_final_stats=1 \
      -artifact_prefix="./$1-" "$corpus/$1" "seeds/$1" >"$1.log" 2>&1; then
    echo "fuzz: $1: $(sed -n 's/stat::number_of_executed_units: *//p' "$1.log") inputs, no fault"
  else
    tail -n 40 "$1.log" >&2
    echo "fuzz: $1 FAILED; the input is in $folder/$1-*, the whole output in $folder/$1.log;" \
      "$folder/fuzz_$1 INPUT also tells where memory was allocated" >&2
    return 1
  fi
}

[ $# -gt 0 ] || set -- $(cd "$folder" && ls | sed -n 's/^fuzz_//p')
for name; do seeds "$name"; done
cd "$folder"
run_all() { # run_all NAME...: one after the other
  failed=0
  for name; do run "$name" || failed=1; done
  return $failed
}
first='' second=''
while [ $# -gt 0 ]; do
  first="$first $1" second="$second ${2:-}"
  shift
  [ $# -eq 0 ] || shift
done
# shellcheck disable=SC2086  # lists of names
run_all $first & others=$!
# shellcheck disable=SC2086
run_all $second || { wait "$others" || true; exit 1; }
wait "$others"
