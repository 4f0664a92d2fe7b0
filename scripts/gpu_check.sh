#!/bin/sh
# Run this first on a GPU. It needs CUDA's nvcc or HIP's hipcc, a C++ compiler, CMake and Ninja, and no network. It
# builds, compares every kernel with its scalar twin, trains small models and compares them with the CPU's, in memory
# tiers and, if there are two GPUs, on both, measures, and runs compute-sanitizer. It ends with one table, always in less
# than ten minutes:
# a step that fails or times out does not stop the following ones, the most informative steps come first, and a second
# call with GPU_CHECK_ONLY=rest runs the steps that the first did not reach or pass.
#   scripts/gpu_check.sh                     with the libraries of the machine
#   scripts/gpu_check.sh --rehearse          without a GPU, in the build of the CPU (build/): every step but compute-
#                                            sanitizer and bench/gpu_kernels, on the emulator and the tests' device;
#                                            measured steps are enqueued, not computed, on simulated cards of 80 and
#                                            24 GiB, where nvcc has built ptx_step
#   scripts/gpu_check.sh --packages FOLDER   with those of Debian's packages (*.deb) in FOLDER, unpacked, not installed
#   scripts/gpu_check.sh --fetch FOLDER      only downloads these packages, on a Debian 12 that has a network
# In the environment:
#   GPU_CHECK_ONLY     names of steps or of groups of them: build, tests, speed, sanitizers, peers (the same steps by
#                      transformers and PEFT, if python3 has them; not part of the whole); or rest
#   GPU_CHECK_SECONDS  its time limit (570)
#   GPU_CHECK_BUILD    the build's folder (build-gpu; rehearsed: build)
#   GPU_CHECK_LOGS     folder for the output of steps (BUILD/gpu_check)
#   GPU_CHECK_ARCH     architecture to compile for, such as 90a-real or gfx942 (default: the first card's)
#   GPU_CHECK_VENDOR   cuda or hip (default: hip where only hipcc is found, else cuda)
# Steps that are measured take as many rows as fit on the card, and PyTorch's take the same.
set -eu
cd "$(dirname "$0")/.."
deadline=$(($(date +%s) + ${GPU_CHECK_SECONDS:-570}))
started=$(date +%s)

packages='libfmt-dev libfmt9 nlohmann-json3-dev libyaml-cpp-dev libyaml-cpp0.7 libxxhash-dev libxxhash0 libpcre2-dev libpcre2-8-0
  libutf8proc-dev libutf8proc2 libsentencepiece-dev libsentencepiece0 libprotobuf-lite32 zlib1g-dev libzstd-dev libgtest-dev libgmock-dev
  libsnappy-dev libsnappy1v5 liblz4-dev liblz4-1 libbrotli-dev libbrotli1 pkgconf pkgconf-bin pkg-config libpkgconf3'
build=$PWD/${GPU_CHECK_BUILD:-build-gpu}
only=${GPU_CHECK_ONLY:-}
users_library_path=${LD_LIBRARY_PATH:-}
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
PATH="$PATH:/usr/local/cuda/bin:/opt/rocm/bin"
vendor=${GPU_CHECK_VENDOR:-}
if [ -z "$vendor" ]; then
  vendor=cuda
  command -v nvcc >/dev/null || ! command -v hipcc >/dev/null || vendor=hip
fi
# cards: a line per GPU, by its driver.
cards() {
  if [ "$vendor" = hip ]; then
    rocm-smi --showproductname 2>/dev/null | grep '^GPU\[[0-9]*\].*Card [Ss]eries' || true
  else
    nvidia-smi -L 2>/dev/null | grep '^GPU' || true
  fi
}
# CUDA's libraries may be Python packages, which neither compiler nor loader searches. The program does (doctor).
for folder in /usr/local/cuda/lib64 "$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))' 2>/dev/null)"/nvidia/*/lib; do
  [ -d "$folder" ] && LD_LIBRARY_PATH="${LD_LIBRARY_PATH:-}:$folder"
  include=${folder%/lib*}/include
  [ -f /usr/local/cuda/include/cublasLt.h ] || [ ! -f "$include/cublasLt.h" ] || export CPATH="${CPATH:-}:$include"
done
export PATH LD_LIBRARY_PATH

logs=${GPU_CHECK_LOGS:-$build/gpu_check}
table=$logs/table.txt
passed=$build/gpu_check.passed
temper=$build/temper device=gpu
[ -z "$rehearse" ] || temper="$build/scenario_device --temper" device=cpu
# Without a GPU, tests of kernels fail instead of skipping.
export TEMPER_TEST_DEVICE=$device
failed='' group=''
note() { printf '%-34s %s\n' "$1" "$2" >>"$table"; }
finish() {
  echo
  echo "== all in $(($(date +%s) - started)) s, commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown), $(date -u +%F)"
  cat "$table"
  [ -z "$failed" ] || { echo "failed or left out:$failed" >&2; exit 1; }
  exit 0
}
# wanted NAME: whether to run this step of $group.
wanted() {
  set -- "${1%.on_*_GiB}"
  case " $only " in
    '  ') [ "$group" != peers ] ;;
    ' rest ') [ "$group" != peers ] && ! grep -qxF "$1" "$passed" 2>/dev/null ;;
    *" $1 "* | *" $group "*) ;;
    *) return 1 ;;
  esac
}
# step NAME SECONDS COMMAND...: its output to NAME.log and the terminal; the table shows the result. Sets $how: ok,
# skipped, or the error.
step() {
  name=$1 limit=$2 how=skipped
  shift 2
  wanted "$name" || return 0
  begun=$(date +%s)
  { grep -vxF "$name" "$passed" || true; } >"$passed.others" 2>/dev/null
  mv "$passed.others" "$passed"
  [ "$limit" -le $((deadline - begun)) ] || limit=$((deadline - begun))
  if [ "$limit" -lt 5 ]; then
    how='left out: no time'
  else
    echo "== $name"
    timeout -k 5 "$limit" "$@" >"$logs/$name.log" 2>&1 </dev/null && how=ok || how="FAILED ($?)"
    case $how in 'FAILED (124)' | 'FAILED (137)') how="NOT DONE within $limit s" ;; esac
    tail -n 12 "$logs/$name.log"
  fi
  if [ "$how" = ok ]; then echo "$name" >>"$passed"; else failed="$failed $name"; fi
  note "$name" "$how, $(($(date +%s) - begun)) s"
}
# tests NAME SECONDS PROGRAM FILTER: a step of tests. A failed kernel makes the GPU unusable for the rest of its
# process: tests that did not pass are run again, each in its own process, and the first that fails there in memcheck.
tests() {
  program=$3 filter=$4
  step "$1" "$2" "$3" "--gtest_filter=$4"
  case $how in FAILED* | NOT*) ;; *) return 0 ;; esac
  [ -x "$program" ] || return 0
  timeout 60 "$program" --gtest_list_tests "--gtest_filter=$filter" </dev/null 2>/dev/null |
    awk '/^[^ ]/ { suite = $1 } /^  / { print suite $1 }' >"$logs/$name.all"
  sed -n 's/^\[ *\(OK\|SKIPPED\) *\] \([^ ,]*\).*/\2/p' "$logs/$name.log" >"$logs/$name.fine"
  grep -vxFf "$logs/$name.fine" "$logs/$name.all" >"$logs/$name.again" || return 0
  until=$(($(date +%s) + 60)) tried=0 fine=0 bad=''
  while read -r test && [ "$(date +%s)" -lt $until ] && [ $((deadline - $(date +%s))) -gt 20 ]; do
    tried=$((tried + 1))
    if timeout -k 5 20 "$program" "--gtest_filter=$test" </dev/null >"$logs/alone.log" 2>&1; then
      fine=$((fine + 1))
    else
      [ -n "$bad" ] || first=$test
      bad="$bad $test"
      tail -n 8 "$logs/alone.log"
    fi
    cat "$logs/alone.log" >>"$logs/$name.alone.log"
  done <"$logs/$name.again"
  note "  each alone" "$tried of $(wc -l <"$logs/$name.again") tried, $fine pass${bad:+, not$bad}"
  if [ -n "$bad" ] && [ -z "$rehearse" ] && command -v compute-sanitizer >/dev/null; then
    timeout -k 5 30 compute-sanitizer "$program" "--gtest_filter=$first" </dev/null >"$logs/$name.memcheck.log" 2>&1 || true
    grep '^=========' "$logs/$name.memcheck.log" | head -n 8 | cut -c 1-120 | tee -a "$table"
  fi
}
# runs WHAT SECONDS: a step of scripts/gpu_runs.sh, whose lines go into the table.
runs() {
  step "$1" "$2" scripts/gpu_runs.sh "$1" "$temper" "$logs/runs_$1"
  case $how in skipped | left*) ;; *) sed 's/^/  /' "$logs/$1.log" | cut -c 1-130 >>"$table" ;; esac
}
# sanitize NAME SECONDS TOOL TESTS FILTER: compute-sanitizer over tests of our kernels. A vendor's kernels are many, and
# are patched while they are loaded.
sanitize() {
  step "$1" "$2" compute-sanitizer --tool "$3" --kernel-name kns=temper --error-exitcode 9 "$build/$4" "--gtest_filter=$5"
}
# measure NAME SECONDS PROGRAM ARGUMENT...: a step whose last line
# goes into the table. A rehearsal only checks that its files exist.
measure() {
  # With nothing computed the loss is missed, which counts for nothing here. Steps in tiers would fill the host's memory.
  if [ -n "$rehearse" ] && [ "${3##*/}" = gpu_step ] && [ -x "$build/ptx_step" ] && [ $# -lt 11 ]; then
    line=$1
    shift 3
    for gib in 80 24; do
      step "$line.on_${gib}_GiB" 300 env TEMPER_TEST_GPU_DRY=1 "TEMPER_TEST_GPU_MEMORY=$((gib * 1024 * 1024 * 1024))" \
        "LD_LIBRARY_PATH=$build/test_cublaslt" \
        sh -c '"$@" 2>&1 | tee /dev/stderr | grep -q "tokens/s, MFU\|: left out,"' dry "$build/ptx_step" "$@"
      case $how in
        skipped | left*) ;;
        *) grep 'tokens/s, MFU\|: left out,' "$logs/$name.log" | sed 's/: [0-9]* tokens.*step.*, arena/, arena/' | cut -c 1-300 >>"$table" ;;
      esac
    done
    return
  fi
  if [ -n "$rehearse" ]; then
    name=$1 program=$3
    shift 3
    wanted "$name" || return 0
    for file in "$program" "$@"; do
      case $file in */*) [ -e "$file" ] || { echo "$name: there is no $file" >&2; failed="$failed $name"; } ;; esac
    done
    note "$name" "left out"
    return
  fi
  step "$@"
  case $how in skipped | left*) ;; *) tail -n 2 "$logs/$1.log" | cut -c 1-300 >>"$table" ;; esac
}
# The environment of the table's figures.
facts() {
  if [ "$vendor" = hip ]; then
    rocm-smi --showproductname --showdriverversion --showmeminfo vram --showmaxpower | grep '^GPU\|^Driver' ||
      echo 'there is no rocm-smi'
    hipcc --version | head -n 1 || echo 'no hipcc'
  else
    nvidia-smi --query-gpu=name,driver_version,memory.total,memory.used,clocks.max.sm,power.limit --format=csv,noheader ||
      echo 'there is no nvidia-smi'
    nvcc --version | grep -o 'release.*' || echo 'no nvcc'
  fi
  echo "$(nproc) processors, $(awk '/^MemTotal/ { t = $2 } /^MemAvailable/ { print int(t / 2^20) " GiB, " int($2 / 2^20) " available" }' /proc/meminfo), Linux $(uname -r)"
  echo "$(c++ --version | head -n 1), $(ldd --version | head -n 1)"
  cmake --version | head -n 1
  python3 -c 'from importlib.metadata import version; print("torch", version("torch"))' || true
}

mkdir -p "$logs"
: >"$table"
[ -n "$only" ] || rm -f "$passed"
trap 'failed="$failed (ended from outside)"; finish' TERM INT
facts 2>/dev/null | tee -a "$table"

group=build
arch=${GPU_CHECK_ARCH:-} architectures=CMAKE_CUDA_ARCHITECTURES
[ "$vendor" = cuda ] || architectures=TEMPER_HIP_ARCHITECTURES
if [ -z "$arch" ] && [ "$vendor" = hip ]; then
  arch=$(rocminfo 2>/dev/null | sed -n 's/^ *Name: *\(gfx[0-9a-f]*\) *$/\1/p' | head -n 1)
  arch=${arch:-gfx90a}
elif [ -z "$arch" ]; then
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d '. ')
  case $capability in
    '' | *[!0-9]* | 90) arch=90a-real ;;
    *) arch=$capability-real ;;
  esac
fi
programs='temper temper_backend_gpu_tests gpu_step gpu_kernels'
if [ -n "$rehearse" ]; then
  programs="$programs scenario_device"
else
  step configure 120 cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release "-DTEMPER_GPU=$vendor" \
    "-D$architectures=$arch" -DCMAKE_GTEST_DISCOVER_TESTS_DISCOVERY_MODE=PRE_TEST "$@"
fi
# Needed by the first steps.
# shellcheck disable=SC2086  # a list of words
step build 420 cmake --build "$build" --target $programs

group=tests
# Like a user.
# shellcheck disable=SC2086  # words
step doctor 90 env "LD_LIBRARY_PATH=$users_library_path" $temper doctor
if [ "$how" != skipped ]; then
  gpus=$(grep '^gpu [0-9].*compute capability' "$logs/doctor.log" | grep -vc 'cannot be used' || true)
  [ -n "$rehearse" ] || grep '^gpu\|^between' "$logs/doctor.log" | cut -c 1-150 >>"$table" || true
else
  gpus=$(cards | grep -c . || true)
fi
if [ -z "$rehearse" ] && [ "$gpus" -eq 0 ] && [ -z "$(cards)" ]; then
  echo "gpu_check: there is no usable GPU: $(grep -s '^gpu' "$logs/doctor.log" || tail -n 1 "$logs/doctor.log")" >&2
  failed="$failed (no GPU)"
  finish
fi
tests kernels 120 "$build/temper_backend_gpu_tests" '*'

group=speed
llama=tests/prediction/configs/llama-3.1-8b.json
small=bench/shapes/1.5b.json
measure lora_8b 90 "$build/bench/gpu_step" $llama lora 8 1 fit
measure gpu_kernels 90 "$build/bench/gpu_kernels"
[ -n "$rehearse" ] || [ "$how" = skipped ] || grep -h 'TFLOP/s\|bf16  product\|at least' "$logs/gpu_kernels.log" >>"$table" || true

group=build
step build_scenarios 300 cmake --build "$build" --target scenario_conformance scenario_equivalence scenario_parity
group=tests
runs commands 90
tests conformance 120 "$build/scenario_conformance" '-*Golden*'
group=speed
measure full_1.5b 60 "$build/bench/gpu_step" $small full 8 1 fit
measure lora_8b_accumulated 60 "$build/bench/gpu_step" $llama lora 2 4 fit
group=tests
tests equivalence 120 "$build/scenario_equivalence" 'Gpu.*'
runs tiers 90
if [ "$gpus" -ge 2 ]; then runs ranks 120; elif wanted ranks; then note ranks "left out: one GPU"; fi
tests parity 120 "$build/scenario_parity" '*'
group=speed
measure lora_8b_nf4 60 "$build/bench/gpu_step" $llama nf4 8 1 fit
measure lora_8b_without_graphs 60 "$build/bench/gpu_step" $llama lora 2 4 fit 8 plain
# In tiers, with their forecast: frozen weights come from the host, and many of the states live there.
measure lora_8b_in_12GiB 60 "$build/bench/gpu_step" $llama lora 2 1 block 4 graphs 12GiB
measure full_1.5b_in_16GiB 60 "$build/bench/gpu_step" $small full 2 1 block 4 graphs 16GiB

group=sanitizers
if [ -z "$rehearse" ] && command -v compute-sanitizer >/dev/null; then
  sanitize memcheck 120 memcheck temper_backend_gpu_tests '*'
  sanitize racecheck 120 racecheck temper_backend_gpu_tests 'Gpu*.Matches*'
  sanitize memcheck_conformance 120 memcheck scenario_conformance '-*Golden*'
elif [ -z "$rehearse" ] && wanted sanitizers; then
  note sanitizers "left out: there is no compute-sanitizer"
fi

group=peers
# peer STEP CONFIG METHOD: the shape that STEP ran with on this card, with PyTorch's own libraries, which those above
# would override.
peer() {
  wanted "peers_$1" || return 0
  shape=$(sed -n 's/^.*, \([0-9]*\) x \([0-9]*\) rows of 2048\(, recompute\)\{0,1\}.*tokens\/s.*$/\2 \1\3/p' "$logs/$1.log" 2>/dev/null || true)
  case $shape in *recompute) shape="${shape%, recompute} --checkpointing" ;; esac
  if [ -z "$shape" ]; then
    note "peers_$1" "left out: run $1 first, which finds the rows that fit"
    return 0
  fi
  # shellcheck disable=SC2086  # words
  step "peers_$1" 300 env "LD_LIBRARY_PATH=$users_library_path" python3 bench/peers/torch_gpu.py "$2" "$3" $shape
}
peer lora_8b $llama lora
peer full_1.5b $small full
peer lora_8b_accumulated $llama lora
! wanted peers || grep -hs tokens/s "$logs"/peers_*.log >>"$table" || true
finish
