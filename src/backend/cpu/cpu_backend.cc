#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <string>

#include "backend/cpu/kernels.h"
#include "backend/cpu/reference/reference.h"

namespace temper {
namespace {

// The one place that says which op has a fast kernel. nullptr: the reference kernel serves.
std::unique_ptr<Kernel> MakeFast(const KernelSpec& spec, Isa isa) {
  if (isa == Isa::kScalar) return nullptr;
  switch (spec.op) {
    case Op::kLinear:
      return MakeLinear(spec, isa);
    case Op::kLinearDx:
      return MakeLinearDx(spec, isa);
    case Op::kLinearDw:
      return MakeLinearDw(spec, isa);
    case Op::kLinearCrossEntropy:
      return MakeLinearCrossEntropy(spec, isa);
    case Op::kAttention:
      return MakeAttention(spec, isa);
    case Op::kAttentionBackward:
      return MakeAttentionBackward(spec, isa);
    case Op::kAttentionCached:
      return MakeAttentionCached(spec, isa);
    default:
      return nullptr;
  }
}

class CpuKernels final : public KernelTable {
 public:
  explicit CpuKernels(const CpuOptions& options)
      : options_(options), name_("cpu " + std::string(ToString(options.isa))) {
    TEMPER_CHECK(options.threads >= 1) << options.threads;
    TEMPER_CHECK(options.isa <= DetectIsa()) << ToString(options.isa) << " asked of " << ToString(DetectIsa());
  }

  const std::string& name() const override { return name_; }

  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    KernelSpec mine = spec;
    mine.threads = std::min(spec.threads, options_.threads);
    if (auto kernel = MakeFast(mine, options_.isa)) return kernel;
    return ReferenceKernels().Make(mine);
  }

 private:
  const CpuOptions options_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<KernelTable> MakeCpuKernels(const CpuOptions& options) {
  return std::make_unique<CpuKernels>(options);
}

}  // namespace temper
