#include "runtime/timed_kernels.h"

#include <chrono>

namespace temper {
namespace {

class TimedKernel final : public Kernel {
 public:
  TimedKernel(std::unique_ptr<Kernel> kernel, KernelTime* time, std::thread::id own)
      : kernel_(std::move(kernel)), time_(time), own_(own) {}

  Status Run(const KernelArgs& args) override {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point begin = Clock::now();
    Status status = kernel_->Run(args);
    const int64_t took = std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - begin).count();
    std::atomic<int64_t>& sum = std::this_thread::get_id() == own_ ? time_->nanoseconds : time_->beside_nanoseconds;
    sum.fetch_add(took, std::memory_order_relaxed);
    return status;
  }
  bool replayable() const override { return kernel_->replayable(); }
  void NoteAwaited(bool awaited) override { kernel_->NoteAwaited(awaited); }

 private:
  const std::unique_ptr<Kernel> kernel_;
  KernelTime* const time_;
  const std::thread::id own_;
};

}  // namespace

TimedKernels::TimedKernels(std::unique_ptr<KernelTable> kernels, KernelTime* time)
    : kernels_(std::move(kernels)), time_(time) {}

Result<std::unique_ptr<Kernel>> TimedKernels::Make(const KernelSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> kernel, kernels_->Make(spec));
  return std::unique_ptr<Kernel>(new TimedKernel(std::move(kernel), time_, own_));
}

}  // namespace temper
