// For tests: every way to compute attention on this processor, the emulated one of matrix units included.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "backend/cpu/attention.h"
#include "backend/cpu/emulator/emulated_amx.h"
#include "backend/cpu/kernel_twin.h"

namespace temper {

struct AttentionWay {
  std::string name;
  std::function<TestTensors(const TwinRun& run, int threads)> run;
};

class EmulatedAttention final : public KernelTable {
 public:
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    return MakeAttentionOf(spec, kAttentionBF16AmxEmulated);
  }

 private:
  const std::string name_ = "an emulated amx_bf16";
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
    ways.push_back({EmulatedAttention().name(), [](const TwinRun& run, int threads) {
                      EmulatedAttention amx;
                      TestTensors outputs = RunKernel(run, amx, /*fast=*/true, threads);
                      EXPECT_EQ(threads_with_emulated_tiles, 0) << "registers were not released";
                      return outputs;
                    }});
  }
  return ways;
}

}  // namespace temper
