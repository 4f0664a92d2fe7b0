// TimedKernels: a table of kernels that counts the time they run for, two looks at the clock a kernel. What a rank's
// utilisation is told from (train/utilisation.h).
//
// Thread rule: as the kernels of the table below; what is counted may be read by any thread.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "device/kernel.h"

namespace temper {

struct KernelTime {
  std::atomic<int64_t> nanoseconds{0};
  // Of kernels that run beside those of the thread that made the table (runtime/background_queue.h).
  std::atomic<int64_t> beside_nanoseconds{0};
};

class TimedKernels final : public KernelTable {
 public:
  // `time` must outlive the kernels.
  TimedKernels(std::unique_ptr<KernelTable> kernels, KernelTime* time);
  const std::string& name() const override { return kernels_->name(); }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override;

 private:
  const std::unique_ptr<KernelTable> kernels_;
  KernelTime* const time_;
  const std::thread::id own_ = std::this_thread::get_id();
};

}  // namespace temper
