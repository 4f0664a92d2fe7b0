#include "backend/cpu/cpu_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "backend/cpu/kernels.h"
#include "backend/cpu/reference/reference.h"

namespace temper {
// clang-format off
std::unique_ptr<Kernel> MakeFastKernel(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&& exchange) {
  if (isa == Isa::kScalar) return nullptr;
  switch (spec.op) {
    case Op::kLinear:
    case Op::kLinearDx:
    case Op::kLinearDw: return MakeLinear(spec, isa);
    case Op::kLinearCrossEntropy: return MakeLinearCrossEntropy(spec, isa, std::move(exchange));
    case Op::kAttention: return MakeAttention(spec, isa);
    case Op::kAttentionBackward: return MakeAttentionBackward(spec, isa);
    case Op::kAttentionCached: return MakeAttentionCached(spec, isa);
    case Op::kAttentionStep: return MakeAttentionStep(spec, isa);
    case Op::kAttentionStepBackward: return MakeAttentionStepBackward(spec, isa);
    case Op::kEmbedding: return MakeEmbedding(spec, isa);
    case Op::kEmbeddingBackward: return MakeEmbeddingBackward(spec, isa);
    case Op::kAdd: return MakeAdd(spec, isa);
    case Op::kCast: return MakeCast(spec, isa);
    case Op::kSliceRows: return MakeSliceRows(spec, isa);
    case Op::kRmsNorm: return MakeRmsNorm(spec, isa);
    case Op::kRmsNormBackward: return MakeRmsNormBackward(spec, isa);
    case Op::kLayerNorm: return MakeLayerNorm(spec, isa);
    case Op::kLayerNormBackward: return MakeLayerNormBackward(spec, isa);
    case Op::kRopeTable: return MakeRopeTable(spec, isa);
    case Op::kRope: return MakeRope(spec, isa);
    case Op::kDropout: return MakeDropout(spec, isa);
    case Op::kSumRows: return MakeSumRows(spec, isa);
    case Op::kSumSquares: return MakeSumSquares(spec, isa);
    case Op::kAdamw: return MakeAdamw(spec, isa);
    case Op::kSgd: return MakeSgd(spec, isa);
    case Op::kSwiglu:
    case Op::kSwigluBackward:
    case Op::kRelu:
    case Op::kReluBackward:
    case Op::kGelu:
    case Op::kGeluBackward: return MakeActivation(spec, isa);
    default: return nullptr;
  }
}
// clang-format on

namespace {

class CpuKernels final : public KernelTable {
 public:
  explicit CpuKernels(const CpuOptions& options)
      : options_(options), name_("cpu " + std::string(ToString(options.isa))) {
    TEMPER_CHECK(options.threads >= 1) << options.threads;
    TEMPER_CHECK(options.isa <= RunnableIsas().back())
        << ToString(options.isa) << " asked of " << ToString(RunnableIsas().back());
  }

  const std::string& name() const override { return name_; }

  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    KernelSpec mine = spec;
    mine.threads = std::min(spec.threads, options_.threads);
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Exchange> exchange, ExchangeFor(spec));
    if (auto kernel = MakeFastKernel(mine, options_.isa, std::move(exchange))) return kernel;
    return MakeReferenceKernel(mine, std::move(exchange));
  }

 private:
  // nullptr where the instruction needs none.
  Result<std::unique_ptr<Exchange>> ExchangeFor(const KernelSpec& spec) const {
    if (spec.op != Op::kLinearCrossEntropy || !spec.attributes.Has("axes")) return std::unique_ptr<Exchange>();
    const std::string& text = spec.attributes.String("axes");
    if (options_.exchange == nullptr) {
      return Unsupported(fmt::format("{} over a vocabulary that ranks along {} share needs a communicator between them",
                                     ToString(spec.op), text));
    }
    TEMPER_ASSIGN_OR_RETURN(const AxisSet axes, AxisSet::Parse(text));
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Exchange> exchange, options_.exchange(axes));
    if (exchange->size() != spec.attributes.Int("ranks")) {
      return InvalidArgument(fmt::format("{} is meant for {} ranks along {}; there are {}", ToString(spec.op),
                                         spec.attributes.Int("ranks"), text, exchange->size()));
    }
    return exchange;
  }

  const CpuOptions options_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<KernelTable> MakeCpuKernels(const CpuOptions& options) {
  return std::make_unique<CpuKernels>(options);
}

}  // namespace temper
