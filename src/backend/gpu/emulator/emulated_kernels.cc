#include "backend/gpu/emulator/emulated_kernels.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backend/gpu/emulator/host_products.h"
#include "backend/gpu/faults.h"
#include "backend/gpu/gpu_kernels.h"

namespace temper {
namespace {

using FaultWords = std::array<int64_t, gpu::kMaxFaults>;

// A kernel with what a device would keep for it.
class EmulatedKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec, const simt::Machine& machine,
                                              const EmulatedExchanges& exchanges, gpu::PackedAttention* packed) {
    auto made = std::make_unique<EmulatedKernel>(machine);
    TEMPER_ASSIGN_OR_RETURN(made->kernel_, gpu::MakeGpuKernel(spec, {.stream = &made->machine_,
                                                                     .copies = &HostStream(),
                                                                     .faults = &made->faults_,
                                                                     .products = &gpu::HostProducts(),
                                                                     .packed = packed,
                                                                     .exchange = exchanges}));
    return std::unique_ptr<Kernel>(std::move(made));
  }
  explicit EmulatedKernel(const simt::Machine& machine) : machine_(machine) {}

  Status Run(const KernelArgs& args) override {
    words_.fill(0);
    TEMPER_RETURN_IF_ERROR(kernel_->Run(args));
    return faults_.Check(words_);
  }
  bool replayable() const override { return kernel_->replayable(); }

 private:
  const simt::Machine machine_;
  FaultWords words_ = {};
  gpu::Faults faults_{words_.data()};
  std::unique_ptr<Kernel> kernel_;
};

class EmulatedKernels final : public KernelTable {
 public:
  EmulatedKernels(const simt::Machine& machine, const EmulatedExchanges& exchanges, gpu::PackedAttention* packed)
      : machine_(machine),
        exchanges_(exchanges),
        packed_(packed),
        name_("gpu emulator, warps of " + std::to_string(machine.warp_size)) {}
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    return EmulatedKernel::Make(spec, machine_, exchanges_, packed_);
  }

 private:
  const simt::Machine machine_;
  const EmulatedExchanges exchanges_;
  gpu::PackedAttention* const packed_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<KernelTable> MakeEmulatedGpuKernels(const simt::Machine& machine, const EmulatedExchanges& exchanges,
                                                    gpu::PackedAttention* packed) {
  return std::make_unique<EmulatedKernels>(machine, exchanges, packed);
}

}  // namespace temper
