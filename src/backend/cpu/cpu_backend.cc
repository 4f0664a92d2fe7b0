#include "backend/cpu/cpu_backend.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "backend/cpu/kernels.h"
#include "backend/cpu/reference/reference.h"
#include "graph/op_table.h"

namespace temper {

#define TEMPER_CPU_KERNEL(op, maker) std::unique_ptr<Kernel> maker(const KernelSpec& spec, Isa isa);
#define TEMPER_CPU_EXCHANGING_KERNEL(op, maker) \
  std::unique_ptr<Kernel> maker(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&& exchange);
#include "backend/cpu/kernel_list.inc"

namespace {

using Maker = std::unique_ptr<Kernel> (*)(const KernelSpec&, Isa, std::unique_ptr<Exchange>&&);

// A maker whose kernels are of one rank, among those that exchange.
template <std::unique_ptr<Kernel> (*make)(const KernelSpec&, Isa)>
std::unique_ptr<Kernel> OfOneRank(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&&) {
  return make(spec, isa);
}

constexpr OpTable<Maker> kMakers = {
#define TEMPER_CPU_KERNEL(op, maker) {Op::k##op, OfOneRank<maker>},
#define TEMPER_CPU_EXCHANGING_KERNEL(op, maker) {Op::k##op, maker},
#include "backend/cpu/kernel_list.inc"
};

constexpr OpTable<bool> kExchanges = {
#define TEMPER_CPU_KERNEL(op, maker)
#define TEMPER_CPU_EXCHANGING_KERNEL(op, maker) {Op::k##op, true},
#include "backend/cpu/kernel_list.inc"
};

}  // namespace

std::unique_ptr<Kernel> MakeFastKernel(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&& exchange) {
  const Maker make = kMakers[spec.op];
  return isa == Isa::kScalar || make == nullptr ? nullptr : make(spec, isa, std::move(exchange));
}

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
    if (!kExchanges[spec.op] || !spec.attributes.Has("axes")) return std::unique_ptr<Exchange>();
    const std::string& text = spec.attributes.String("axes");
    if (options_.exchange == nullptr) {
      return Unsupported(fmt::format("{} over a vocabulary that ranks along {} share needs a communicator between them",
                                     ToString(spec.op), text));
    }
    TEMPER_ASSIGN_OR_RETURN(const AxisSet axes, AxisSet::Parse(text));
    TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Exchange> exchange, options_.exchange(axes));
    if (exchange->size() != spec.attributes.Int("ranks")) {
      return InvalidArgument(fmt::format("{} needs {} ranks along {}; there are {}", ToString(spec.op),
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
