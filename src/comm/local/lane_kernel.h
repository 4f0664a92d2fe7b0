// LaneKernel: a communicator's kernel, which runs in one lane. It shows other ranks when the thread that runs this
// rank's kernels waits for it.
#pragma once

#include "comm/local/control_block.h"
#include "device/kernel.h"

namespace temper {

class LaneKernel : public Kernel {
 public:
  // What `control` refers to must outlive the kernel. `self`: this rank's number on the host.
  LaneKernel(const ControlBlock& control, int self, Lane lane) : block_(control.rank(self)), lane_(lane) {}

  void NoteAwaited(bool awaited) final { block_.awaited.store(awaited ? static_cast<uint32_t>(lane_) + 1 : 0); }

 private:
  RankBlock& block_;
  const Lane lane_;
};

}  // namespace temper
