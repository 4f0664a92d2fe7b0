#!/bin/sh
# What a GPU has to show, on a machine that has CUDA's nvcc, a C++ compiler, CMake and Ninja, and need not have a network:
# builds, holds every kernel against its scalar twin, trains small models against the CPU, then measures. Ends with one
# table. About 10 minutes on 16 cores; results of the steps that failed are above it.
#   scripts/gpu_check.sh                     with the libraries of the machine
#   scripts/gpu_check.sh --packages FOLDER   with those of Debian's packages (*.deb) in FOLDER, unpacked, not installed
#   scripts/gpu_check.sh --fetch FOLDER      only downloads these packages, on a Debian 12 that has a network
# In the environment: GPU_CHECK_BUILD (build-gpu), GPU_CHECK_ARCH (90a-real), GPU_CHECK_ONLY (build, tests or speed; or
# peers, which the whole leaves out: the same steps by transformers and PEFT, where python3 has them).
set -eu
cd "$(dirname "$0")/.."

packages='libfmt-dev libfmt9 nlohmann-json3-dev libyaml-cpp-dev libyaml-cpp0.7 libxxhash-dev libxxhash0 libpcre2-dev libpcre2-8-0
  libutf8proc-dev libutf8proc2 libsentencepiece-dev libsentencepiece0 libprotobuf-lite32 libgtest-dev libgmock-dev
  pkgconf pkgconf-bin pkg-config libpkgconf3'
build=$PWD/${GPU_CHECK_BUILD:-build-gpu}
only=${GPU_CHECK_ONLY:-}
lib=''
case "${1:-}" in
  '') ;;
  --fetch)
    mkdir -p "$2"
    cd "$2"
    # shellcheck disable=SC2086  # a list of words
    exec apt-get download $packages
    ;;
  --packages)
    prefix=$build/packages
    mkdir -p "$prefix"
    for package in "$2"/*.deb; do dpkg-deb -x "$package" "$prefix"; done
    lib=$prefix/usr/lib/x86_64-linux-gnu
    PATH="$PATH:$prefix/usr/bin"
    LD_LIBRARY_PATH="$lib:${LD_LIBRARY_PATH:-}"
    PKG_CONFIG_SYSROOT_DIR=$prefix
    PKG_CONFIG_LIBDIR=$lib/pkgconfig:$prefix/usr/share/pkgconfig
    export PKG_CONFIG_SYSROOT_DIR PKG_CONFIG_LIBDIR
    set -- "-DCMAKE_PREFIX_PATH=$prefix/usr" "-DCMAKE_LIBRARY_PATH=$lib"
    ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
PATH="$PATH:/usr/local/cuda/bin"
# CUDA's libraries may be Python packages, where neither compiler nor loader looks.
for folder in /usr/local/cuda/lib64 "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null)"/nvidia/*/lib; do
  [ -d "$folder" ] && LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:$folder"
  include=${folder%/lib*}/include
  [ -f /usr/local/cuda/include/cublasLt.h ] || [ ! -f "$include/cublasLt.h" ] || export CPATH="${CPATH:-}:$include"
done
export PATH LD_LIBRARY_PATH

started=$(date +%s)
table=$build/table.txt
failed=''
note() { printf '%-34s %s\n' "$1" "$2" >>"$table"; }
# step NAME SECONDS COMMAND...: its output to NAME.log and the terminal; the table says how it ended.
step() {
  name=$1 limit=$2
  shift 2
  begun=$(date +%s)
  echo "== $name"
  if timeout "$limit" "$@" >"$build/$name.log" 2>&1; then how=ok; else how="FAILED ($?)" failed="$failed $name"; fi
  tail -n 12 "$build/$name.log"
  note "$name" "$how, $(($(date +%s) - begun)) s"
}

mkdir -p "$build"
: >"$table"
if [ -z "$only" ] || [ "$only" = build ]; then
  step configure 60 cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTEMPER_GPU=cuda \
    "-DCMAKE_CUDA_ARCHITECTURES=${GPU_CHECK_ARCH:-90a-real}" -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST "$@"
  step build 420 cmake --build "$build" --target temper gpu_kernels gpu_step temper_backend_gpu_tests \
    scenario_conformance scenario_equivalence scenario_parity
fi
if [ -z "$only" ] || [ "$only" = tests ]; then
  step doctor 60 "$build/temper" doctor
  step kernels 120 "$build/temper_backend_gpu_tests"
  step conformance 120 "$build/scenario_conformance" '--gtest_filter=-*Golden*'
  step equivalence 120 "$build/scenario_equivalence" '--gtest_filter=Gpu.*:Device.*'
  step parity 120 env TEMPER_TEST_DEVICE=gpu "$build/scenario_parity"
  # The same commands on both: the same answers but for rounding.
  commands='set -e; out=$2/run-$1
    $2/temper train examples/pirate.yaml --device $1 --dtype f32 --max_steps 20 --output_dir $out --overwrite true >&2
    $2/temper eval --model $out --data examples/plain/pirate_eval.jsonl --device $1 --dtype f32 2>$out.err
    $2/temper generate --model $out --prompt "The ship" --max_new_tokens 24 --device $1 --dtype f32 2>>$out.err'
  for device in cpu gpu; do
    step "commands_$device" 120 sh -c "$commands" commands "$device" "$build"
    note "  eval on the $device" "$(grep eval_loss "$build/commands_$device.log" | tail -n 1 | cut -c 1-90)"
  done
  if command -v compute-sanitizer >/dev/null; then
    step memcheck 60 compute-sanitizer --error-exitcode 9 "$build/temper_backend_gpu_tests" '--gtest_filter=GpuAttention*'
    step racecheck 60 compute-sanitizer --tool racecheck --error-exitcode 9 "$build/temper_backend_gpu_tests" \
      '--gtest_filter=GpuAttention*.MatchesTheScalarTwin'
  fi
fi
if [ -z "$only" ] || [ "$only" = speed ]; then
  step gpu_kernels 90 "$build/bench/gpu_kernels"
  llama=tests/prediction/configs/llama-3.1-8b.json
  small=bench/shapes/1.5b.json
  step lora_8b 90 "$build/bench/gpu_step" $llama lora 8 1
  step lora_8b_accumulated 60 "$build/bench/gpu_step" $llama lora 2 4
  step lora_8b_without_graphs 60 "$build/bench/gpu_step" $llama lora 2 4 none 8 plain
  step full_1.5b 60 "$build/bench/gpu_step" $small full 8 1
  grep -h 'TFLOP/s\|at least' "$build/gpu_kernels.log" >>"$table" || true
  for log in lora_8b lora_8b_accumulated lora_8b_without_graphs full_1.5b; do tail -n 1 "$build/$log.log" >>"$table"; done
fi
if [ "$only" = peers ]; then
  llama=tests/prediction/configs/llama-3.1-8b.json
  step peers_lora_8b 300 python3 bench/peers/torch_gpu.py $llama lora 8 1
  step peers_lora_8b_accumulated 300 python3 bench/peers/torch_gpu.py $llama lora 2 4
  grep -h tokens/s "$build"/peers_*.log >>"$table" || true
fi

echo
echo "== all in $(($(date +%s) - started)) s, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F)"
cat "$table"
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
