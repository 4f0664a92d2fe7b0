// For tests: every way to compute attention on this processor, the emulated one of matrix units included.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "backend/cpu/attention/attention.h"
#include "backend/cpu/emulator/emulated_amx.h"
#include "backend/cpu/kernel_twin.h"

namespace temper {

struct AttentionWay {
  std::string name;
  std::function<TestTensors(const TwinRun& run, int threads)> run;
};

inline std::vector<AttentionWay> AttentionWaysOf(DType dtype) {
  std::vector<AttentionWay> ways;
  const std::vector<Isa> isas = RunnableIsas();
  for (Isa isa : isas) {
    if (isa == Isa::kScalar) continue;
    ways.push_back(
        {std::string(ToString(isa)), [isa](const TwinRun& run, int threads) { return RunFast(run, isa, threads); }});
  }
  if (dtype == DType::kBF16 && std::find(isas.begin(), isas.end(), Isa::kAvx512Bf16Dot) != isas.end()) {
    const auto make = [](const KernelSpec& spec) { return MakeAttentionOf(spec, kAttentionBF16AmxEmulated); };
    ways.push_back({EmulatedAmx(make).name(), [make](const TwinRun& run, int threads) {
                      EmulatedAmx amx(make);
                      TestTensors outputs = RunKernel(run, amx, /*fast=*/true, threads);
                      EXPECT_EQ(threads_with_emulated_tiles, 0) << "registers were not released";
                      return outputs;
                    }});
  }
  return ways;
}

}  // namespace temper
