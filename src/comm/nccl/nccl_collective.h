// The kernels of collectives and transfers between GPUs. They enqueue on one of the device's streams.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <vector>

#include "comm/nccl/nccl_groups.h"
#include "device/device.h"
#include "device/kernel.h"

namespace temper {

// The device's memory for what NCCL does not do itself: parts that are not contiguous, sums that are added to
// something. One range per stream, as large as the largest collective there needs. Thread rule: the thread that makes
// kernels.
class NcclScratch {
 public:
  explicit NcclScratch(Device& device) : device_(device) {}
  ~NcclScratch();
  NcclScratch(const NcclScratch&) = delete;
  NcclScratch& operator=(const NcclScratch&) = delete;
  // At least this much from now on. Waits for the device if there was less.
  Status Reserve(StreamUse use, Bytes size);
  std::byte* At(StreamUse use) const { return memory_[static_cast<size_t>(use)].data(); }

 private:
  Device& device_;
  std::array<std::span<std::byte>, kNumStreamUses> memory_;
};

// Where in that memory a collective's kernel keeps its data. Per tensor: all parts side by side, each contiguous, if
// they are not in the whole (`packed`); the sum that is added to something (`sum`). -1: not needed.
struct NcclScratchLayout {
  std::vector<int64_t> packed, sum;
  Bytes size;
};
NcclScratchLayout NcclScratchOf(const KernelSpec& spec);

// The stream on which the kernel of `spec` is enqueued.
StreamUse StreamOfCollective(const KernelSpec& spec);

// Surroundings of kernels; all of it outlives them.
struct NcclContext {
  Device& device;
  NcclGroups& groups;
  NcclScratch& scratch;
  std::atomic<int64_t>& sent;  // bytes, by the cost rules of graph/ops
};

// Collective over the group, except for transfers.
Result<std::unique_ptr<Kernel>> MakeNcclKernel(const KernelSpec& spec, const NcclContext& context);

}  // namespace temper
