// linear_cross_entropy whose vocabulary ranks share: kernels on the emulator, whose ranks are threads that take turns.
#include <gtest/gtest.h>

#include "backend/cpu/products/shared_vocabulary_runs.h"
#include "graph/named_ops.h"

#ifdef TEMPER_GPU_EMULATED
#include "backend/gpu/emulator/emulated_kernels.h"

namespace temper::shared_vocabulary_test {
namespace {

std::mutex emulator;  // which runs one thread at a time

// What a kernel exchanges through, letting others run meanwhile.
class Turns final : public DeviceExchange {
 public:
  explicit Turns(std::unique_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  int index() const override { return exchange_->index(); }
  int size() const override { return exchange_->size(); }
  Status AllGather(const std::byte* mine, std::byte* all, Bytes size) override {
    const auto floats = static_cast<size_t>(size.v / 4);
    emulator.unlock();
    const Status status =
        exchange_->AllGather({reinterpret_cast<const float*>(mine), floats},
                             {reinterpret_cast<float*>(all), floats * static_cast<size_t>(exchange_->size())});
    emulator.lock();
    return status;
  }

 private:
  const std::unique_ptr<Exchange> exchange_;
};

class InTurn final : public KernelTable {
 public:
  explicit InTurn(std::unique_ptr<KernelTable> table) : table_(std::move(table)) {}
  const std::string& name() const override { return table_->name(); }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    TEMPER_ASSIGN_OR_RETURN(auto kernel, table_->Make(spec));
    return std::unique_ptr<Kernel>(std::make_unique<Locked>(std::move(kernel)));
  }

 private:
  class Locked final : public Kernel {
   public:
    explicit Locked(std::unique_ptr<Kernel> kernel) : kernel_(std::move(kernel)) {}
    Status Run(const KernelArgs& args) override {
      const std::lock_guard lock(emulator);
      return kernel_->Run(args);
    }

   private:
    const std::unique_ptr<Kernel> kernel_;
  };
  const std::unique_ptr<KernelTable> table_;
};

void CheckSharedLoss(DType dtype, int warp_size) {
  for (const LossCase& c : kLossCases) {
    if (c.V < 4) continue;
    for (const std::vector<int64_t>& cuts : CutsOf(c.V)) {
      LossRun whole(c, dtype);
      AimAtEdges(cuts, &whole.inputs[2]);
      whole.bounds = LossBoundsOf(c, dtype, whole.inputs);
      const TestTensors want = RunReference({Op::kLinearCrossEntropy, whole.attributes, &whole.inputs});
      const auto table_of = [&](int rank, ExchangeGroup& group) -> std::unique_ptr<KernelTable> {
        return std::make_unique<InTurn>(MakeEmulatedGpuKernels({.warp_size = warp_size}, [&group, rank](AxisSet) {
          return Result<std::unique_ptr<DeviceExchange>>(std::make_unique<Turns>(group.Join(rank)));
        }));
      };
      const auto got = RunShared(
          whole, cuts, table_of, [](int) { return true; }, 1, /*in_place=*/false);
      ExpectTogether(whole, want, got,
                     std::string(c.name) + " " + std::string(ToString(dtype)) + " warps of " +
                         std::to_string(warp_size) + " of " + std::to_string(cuts.size() - 1) + " ranks");
    }
  }
}

TEST(GpuSharedVocabulary, HasTheLossAndGradientsOfTheWholeInF32) {
  CheckSharedLoss(DType::kF32, 32);
}
TEST(GpuSharedVocabulary, HasTheLossAndGradientsOfTheWholeInBF16) {
  CheckSharedLoss(DType::kBF16, 64);
}

}  // namespace
}  // namespace temper::shared_vocabulary_test
#endif
