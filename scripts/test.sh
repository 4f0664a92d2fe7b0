#!/bin/sh
# The checks that a change must pass. Ends with the time of each part in seconds.
#   scripts/test.sh            release and inputs, as in CI
#   scripts/test.sh release    the sources are formatted, each layer includes only what it may, the tree builds
#                              (build/), every test passes, no more skip than tools/skips.txt allows, those that depend
#                              on the processor pass as on AVX2, too, the demo learns its voices, and a minute of attacks
#                              loses nothing
#   scripts/test.sh inputs     code that reads files passes its unit tests under AddressSanitizer and
#                              UndefinedBehaviorSanitizer, and its fuzz targets on the same inputs every time
#                              (build-sanitize/)
#   scripts/test.sh sanitize   every test passes under AddressSanitizer and UndefinedBehaviorSanitizer (build-sanitize/)
#   scripts/test.sh fuzz       each fuzz target runs for 10 seconds without a fault (build-sanitize/)
#   scripts/test.sh tidy       clang-tidy finds nothing in src/ (the checks of .clang-tidy)
#   scripts/test.sh cuda       the GPU backend and its tests compile and link with CUDA's nvcc (build-cuda/); they need a
#                              GPU to run
#   scripts/test.sh ptx        the kernels' PTX from nvcc runs on simulated GPUs with and without Hopper's units, and the
#                              program's runs agree there (build/); not in CI, which has the tests of one GPU of these
#   scripts/test.sh hip        the same with hipcc, for gfx90a (build-hip/); not in CI
#   scripts/test.sh gfx942     its kernels compile for gfx942 (MI300X) with clang-19 (build-gfx942/); not in CI
#   scripts/test.sh rocm       its sources agree with the headers of another ROCm, in $ROCM_INCLUDE, by clang-19; not in
#                              CI.
#                              PyPI's package triton has those of HIP 7.1: triton/backends/amd/include
#   scripts/test.sh all        release, inputs, sanitize, fuzz and tidy
#   scripts/test.sh tsan       code that starts threads passes under ThreadSanitizer (build-tsan/); not in CI
set -eu
cd "$(dirname "$0")/.."

times=''
started=0
begin() {
  echo "== $1"
  part=$1 started=$(date +%s)
}
end() {
  times="$times$(printf '%6d s  %s' $(($(date +%s) - started)) "$part")
"
}

build() { # build PRESET
  begin "build ($1)"
  cmake --preset "$1"
  cmake --build --preset "$1"
  end
}
tests() { # tests PRESET FOLDER [CTEST OPTION...]
  begin "tests ($1)"
  folder=$2
  shift 2
  # One more than the processors: some tests mostly wait for hanging ranks.
  ctest --test-dir "$folder" --output-on-failure --parallel "$(($(nproc) + 1))" "$@"
  end
}

release() {
  begin 'format and layers'
  find src tests bench \( -name '*.h' -o -name '*.cc' -o -name '*.cu' \) -exec clang-format-14 --dry-run --Werror {} +
  python3 tools/check_layers.py src tools/layers.txt tests bench examples
  python3 tools/check_threads.py src
  python3 tools/check_one_definition.py src tests bench
  python3 tools/check_model_names.py .
  python3 tools/check_docs.py .
  python3 tools/check_sizes.py .
  python3 tools/check_ops.py src tests
  python3 tools/check_rebuilds.py src
  end
  build release
  begin 'objects of one instruction set'
  python3 tools/check_isa_objects.py build
  end
  tests release build
  begin 'skipped tests'
  python3 tools/check_skips.py build/Testing/Temporary/LastTest.log tools/skips.txt
  end
  # What depends on the processor beside the kernels, whose own tests go through all levels: types by default, layouts.
  export ONEDNN_MAX_CPU_ISA=AVX2
  tests 'release, AVX2' build -R '^(Rates|PackedOperands|PackedWeights|OnDevice|Plan|BaseDtype)$'
  unset ONEDNN_MAX_CPU_ISA
  begin 'demo (1 epoch)'
  scripts/demo.sh --temper build/temper --output_dir build/demo --epochs 1
  end
  begin 'attacks (1 minute)'
  scripts/torture.py 1
  end
  if ninja -C build -t query temper_cuda >/dev/null 2>&1; then # if nvcc was found
    begin 'GPU backend (nvcc, one architecture)'
    ninja -C build temper_cuda
    build/temper_cuda doctor | grep '^gpu'
    end
  fi
}
inputs() {
  begin 'build (inputs)'
  cmake --preset sanitize
  cmake --build --preset inputs
  end
  begin 'tests (inputs)'
  # Only on the tests' own data: with sanitizers the outside data would take minutes.
  # In parts, more than there are processors: tests are dealt out by their number and take different times.
  parts=$((3 * $(nproc)))
  for layer in data_tokenizer data data_template format tensor base program; do # the longest first
    seq 0 $((parts - 1)) | sed "s/^/$layer /"
  done | xargs -P "$(nproc)" -L 1 sh -c 'GTEST_TOTAL_SHARDS=$0 GTEST_SHARD_INDEX=$2 exec env -u TEMPER_TEST_DATA \
    "build-sanitize/temper_${1}_tests" --gtest_brief=1' "$parts"
  end
  begin 'fuzz targets (inputs)'
  scripts/fuzz.sh --same
  end
}
sanitize() {
  build sanitize
  tests sanitize build-sanitize
}
fuzz() {
  begin 'fuzz targets'
  scripts/fuzz.sh 10
  end
}
cuda() {
  begin 'build (cuda)'
  cmake --preset cuda
  # Including the runs of scripts/gpu_check.sh.
  cmake --build --preset cuda --target temper gpu_kernels gpu_step temper_backend_gpu_tests scenario_conformance \
    scenario_equivalence scenario_parity
  build-cuda/temper doctor | grep '^gpu'
  end
}
ptx() {
  build release
  for gpu in 9.0 8.0 12.0; do
    begin "tests (PTX, $gpu)"
    TEMPER_TEST_GPU=$gpu ctest --test-dir build --output-on-failure --parallel "$(nproc)" -R '^ptx\.'
    TEMPER_TEST_GPU=$gpu build/ptx_parity --gtest_filter='*ParityOfCurves*' --gtest_brief=1
    end
  done
  for runs in commands tiers ranks; do
    begin "runs (PTX, $runs)"
    TEMPER_TEST_GPU=9.0x2 scripts/gpu_runs.sh $runs build/temper_ptx build/ptx_runs
    end
  done
}
hip() {
  begin 'build (hip)'
  cmake --preset hip
  # Including the runs of scripts/gpu_check.sh.
  cmake --build --preset hip --target temper gpu_kernels gpu_step temper_backend_gpu_tests scenario_conformance \
    scenario_equivalence scenario_parity
  build-hip/temper doctor | grep '^gpu'
  end
}
gfx942() {
  begin 'GPU backend (clang-19, code for gfx942)'
  for program in clang++-19 lld-19 llvm-dis-19 llvm-as-19; do
    command -v $program >/dev/null || { echo "there is no $program: install clang-19, lld-19, llvm-19 and hipcc" >&2; exit 1; }
  done
  # Debian's device libraries end at gfx940; gfx942's only differs in its number.
  libraries=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode out=build-gfx942
  mkdir -p $out/bitcode
  cp $libraries/*.bc $out/bitcode
  llvm-dis-19 <$libraries/oclc_isa_version_940.bc | sed 's/9400/9402/' |
    llvm-as-19 -o $out/bitcode/oclc_isa_version_942.bc
  find src/backend/gpu -name '*.cu' | xargs -P "$(nproc)" -I {} sh -c 'clang++-19 -x hip --offload-arch=gfx942 \
    --cuda-device-only --no-gpu-bundle-output --rocm-device-lib-path='$out'/bitcode --hip-path=/usr -std=c++20 -O2 \
    -Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off -Isrc -c {} -o '$out'/$(basename {}).o'
  ls $out/*.o
  end
}
rocm() {
  begin "GPU backend (clang-19, headers of ${ROCM_INCLUDE:?names the folder of hip/hip_runtime.h})"
  rm -rf build-rocm
  mkdir -p build-rocm/bin
  ln -s "$(realpath "$ROCM_INCLUDE")" build-rocm/include
  sed -n 's/^#define \(HIP_VERSION_[A-Z]*\) \([0-9]*\)$/\1=\2/p' "$ROCM_INCLUDE/hip/hip_version.h" >build-rocm/bin/.hipVersion
  # The host's code, which the host's compiler compiles.
  for name in gpu_kernels products/linear hardware/gpu_device hardware/gpu_stream hardware/hip_products; do
    c++ -D__HIP_PLATFORM_AMD__ -isystem "$ROCM_INCLUDE" -std=c++20 -Wall -Wextra -Werror -Wno-missing-field-initializers \
      -fsyntax-only -Isrc "src/backend/gpu/$name.cc"
  done
  # SIDE SOURCE
  find src/backend/gpu -name '*.cu' -exec printf 'host\0%s\0device\0%s\0' {} {} \; |
    xargs -0 -n 2 -P "$(nproc)" sh -c 'exec clang++-19 -x hip --cuda-$0-only --offload-arch=gfx942 -nogpulib \
    --hip-path=build-rocm -std=c++20 -Wall -Wextra -Werror -Wno-missing-field-initializers -fsyntax-only -Isrc "$1"'
  end
}
tidy() {
  begin 'clang-tidy'
  # clang's compile_commands.json, without precompiled headers: this also shows that each file includes what it needs.
  cmake --preset sanitize -B build-tidy -D CMAKE_DISABLE_PRECOMPILE_HEADERS=ON -D TEMPER_UNITY=OFF >/dev/null
  find src -name '*.cc' | sort | xargs -n 8 -P "$(nproc)" clang-tidy-14 -p build-tidy --quiet --warnings-as-errors='*'
  end
}
tsan() {
  build tsan
  export TSAN_OPTIONS=ignore_noninstrumented_modules=1  # Open MPI
  # Without the emulator, which has one thread and switches stacks, and without tests of a process's memory.
  tests tsan build-tsan -E '^(Gpu|Simt)|^ArenaMemory'
}

scripts/setup.sh --checks
case "${1:-}" in
  '')
    release
    inputs
    ;;
  release | inputs | sanitize | fuzz | tidy | tsan | cuda | ptx | hip | gfx942 | rocm) "$1" ;;
  all)
    release
    inputs
    sanitize
    fuzz
    tidy
    ;;
  *)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0" >&2
    exit 2
    ;;
esac
printf '%s' "$times"
