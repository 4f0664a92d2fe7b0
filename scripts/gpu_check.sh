#!/bin/sh
# What a GPU has to show, on a machine that has CUDA's nvcc, a C++ compiler, CMake and Ninja, and need not have a network:
# builds, holds every kernel against its scalar twin, trains small models against the CPU, in memory tiers and, where
# there are two GPUs, on both, then measures. Ends with one table. About 10 minutes on 16 cores; results of the steps
# that failed are above it.
#   scripts/gpu_check.sh                     with the libraries of the machine
#   scripts/gpu_check.sh --rehearse          without a GPU, in the build of the CPU (build/): every step but compute-
#                                            sanitizer and the measurements, on the emulator and the tests' device
#   scripts/gpu_check.sh --packages FOLDER   with those of Debian's packages (*.deb) in FOLDER, unpacked, not installed
#   scripts/gpu_check.sh --fetch FOLDER      only downloads these packages, on a Debian 12 that has a network
# In the environment: GPU_CHECK_BUILD (build-gpu; rehearsed: build), GPU_CHECK_ARCH (that of the first card, as 90a-real), GPU_CHECK_ONLY
# (build, tests or speed; or peers, which the whole leaves out: the same steps by transformers and PEFT, where python3 has them).
set -eu
cd "$(dirname "$0")/.."

packages='libfmt-dev libfmt9 nlohmann-json3-dev libyaml-cpp-dev libyaml-cpp0.7 libxxhash-dev libxxhash0 libpcre2-dev libpcre2-8-0
  libutf8proc-dev libutf8proc2 libsentencepiece-dev libsentencepiece0 libprotobuf-lite32 libgtest-dev libgmock-dev
  pkgconf pkgconf-bin pkg-config libpkgconf3'
build=$PWD/${GPU_CHECK_BUILD:-build-gpu}
only=${GPU_CHECK_ONLY:-}
lib=''
rehearse=''
case "${1:-}" in
  '') ;;
  --rehearse)
    rehearse=yes
    build=$PWD/${GPU_CHECK_BUILD:-build}
    shift
    ;;
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
logs=$build/gpu_check
table=$logs/table.txt
temper=$build/temper device=gpu
[ -z "$rehearse" ] || temper="$build/scenario_device --temper" device=cpu
failed=''
note() { printf '%-34s %s\n' "$1" "$2" >>"$table"; }
# step NAME SECONDS COMMAND...: its output to NAME.log and the terminal; the table says how it ended.
step() {
  name=$1 limit=$2
  shift 2
  begun=$(date +%s)
  echo "== $name"
  if timeout "$limit" "$@" >"$logs/$name.log" 2>&1; then how=ok; else how="FAILED ($?)" failed="$failed $name"; fi
  tail -n 12 "$logs/$name.log"
  note "$name" "$how, $(($(date +%s) - begun)) s"
}
# runs WHAT SECONDS: a step of scripts/gpu_runs.sh, whose lines belong into the table.
runs() {
  step "$1" "$2" scripts/gpu_runs.sh "$1" "$temper" "$logs/runs_$1"
  sed 's/^/  /' "$logs/$1.log" | cut -c 1-130 >>"$table"
}
# sanitize NAME SECONDS TOOL TESTS FILTER: compute-sanitizer over tests of kernels. Of ours: a vendor's are many, and patched
# as they are loaded.
sanitize() {
  step "$1" "$2" compute-sanitizer --tool "$3" --kernel-name kns=temper --error-exitcode 9 "$build/$4" "--gtest_filter=$5"
}
# measure NAME SECONDS PROGRAM ARGUMENT...: a step whose last line belongs into the table. Rehearsed, what it needs is
# there.
measure() {
  if [ -n "$rehearse" ]; then
    name=$1 program=$3
    shift 3
    for file in "$program" "$@"; do
      case $file in */*) [ -e "$file" ] || { echo "$name: there is no $file" >&2; failed="$failed $name"; } ;; esac
    done
    note "$name" "left out"
    return
  fi
  step "$@"
  tail -n 1 "$logs/$1.log" >>"$table"
}

mkdir -p "$logs"
: >"$table"
arch=${GPU_CHECK_ARCH:-}
if [ -z "$arch" ]; then
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
  case $capability in
    '' | *[!0-9]* | 90) arch=90a-real ;;
    *) arch=$capability-real ;;
  esac
fi
programs='temper gpu_kernels gpu_step temper_backend_gpu_tests scenario_conformance scenario_equivalence scenario_parity'
if [ -z "$only" ] || [ "$only" = build ]; then
  if [ -n "$rehearse" ]; then
    programs="$programs scenario_device"
  else
    step configure 60 cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DTEMPER_GPU=cuda \
      "-DCMAKE_CUDA_ARCHITECTURES=$arch" -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST "$@"
  fi
  # shellcheck disable=SC2086  # a list of words
  step build 420 cmake --build "$build" --target $programs
fi
if [ -z "$only" ] || [ "$only" = tests ]; then
  # shellcheck disable=SC2086  # words
  step doctor 60 $temper doctor
  gpus=$(grep '^gpu [0-9].*compute capability' "$logs/doctor.log" | grep -vc 'cannot be used' || true)
  # Tests of kernels have nothing to say where there is no GPU, and so would pass.
  if [ "$gpus" -eq 0 ]; then
    echo "gpu_check: there is no GPU that can be used: $(grep '^gpu' "$logs/doctor.log" || tail -n 1 "$logs/doctor.log")" >&2
    exit 1
  fi
  step kernels 120 "$build/temper_backend_gpu_tests"
  step conformance 120 "$build/scenario_conformance" '--gtest_filter=-*Golden*'
  step equivalence 120 "$build/scenario_equivalence" '--gtest_filter=Gpu.*:Device.*'
  step parity 120 env "TEMPER_TEST_DEVICE=$device" "$build/scenario_parity"
  runs commands 90
  runs tiers 90
  if [ "$gpus" -ge 2 ]; then runs ranks 120; else note ranks "left out: one GPU"; fi
  if [ -z "$rehearse" ] && command -v compute-sanitizer >/dev/null; then
    sanitize memcheck 90 memcheck temper_backend_gpu_tests '*'
    sanitize memcheck_conformance 90 memcheck scenario_conformance '-*Golden*'
    sanitize racecheck 90 racecheck temper_backend_gpu_tests 'Gpu*.Matches*'
  elif [ -z "$rehearse" ]; then
    note sanitizers "left out: there is no compute-sanitizer"
  fi
fi
llama=tests/prediction/configs/llama-3.1-8b.json
small=bench/shapes/1.5b.json
if [ -z "$only" ] || [ "$only" = speed ]; then
  measure gpu_kernels 90 "$build/bench/gpu_kernels"
  [ -n "$rehearse" ] || grep -h 'TFLOP/s\|at least' "$logs/gpu_kernels.log" >>"$table" || true
  measure lora_8b 90 "$build/bench/gpu_step" $llama lora 8 1
  measure lora_8b_accumulated 60 "$build/bench/gpu_step" $llama lora 2 4
  measure lora_8b_without_graphs 60 "$build/bench/gpu_step" $llama lora 2 4 none 8 plain
  measure full_1.5b 60 "$build/bench/gpu_step" $small full 8 1
  # In tiers, beside their forecast: frozen weights from the host, and a good part of the states there.
  measure lora_8b_in_12GiB 60 "$build/bench/gpu_step" $llama lora 2 1 block 4 graphs 12GiB
  measure full_1.5b_in_16GiB 60 "$build/bench/gpu_step" $small full 2 1 block 4 graphs 16GiB
fi
if [ "$only" = peers ]; then
  step peers_lora_8b 300 python3 bench/peers/torch_gpu.py $llama lora 8 1
  step peers_lora_8b_accumulated 300 python3 bench/peers/torch_gpu.py $llama lora 2 4
  grep -h tokens/s "$logs"/peers_*.log >>"$table" || true
fi

echo
echo "== all in $(($(date +%s) - started)) s, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F)"
cat "$table"
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
