// TimedKernels: a table of kernels that counts their running time, with two clock reads per kernel. A rank's
// utilisation is computed from it (train/utilisation.h).
//
// Thread rule: as the kernels of the table below; any thread may read the counts.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "device/kernel.h"

namespace temper {

struct KernelTime {
  std::atomic<int64_t> nanoseconds{0};
  // For kernels that run beside those of the thread that made the table (runtime/background_queue.h).
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
