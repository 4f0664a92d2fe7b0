// The kernels of send and recv between ranks of one host (transfers.h).
#pragma once

#include <memory>

#include "comm/local/collective_kernels.h"
#include "comm/local/host_rank.h"
#include "device/kernel.h"

namespace temper {

Lane LaneOfTransfer(Op op);

// What both ends of a transfer must agree on.
uint64_t TransferFingerprint(const KernelSpec& spec);

// `peer` is the rank's number on this host. `rank` and `traffic` must outlive the kernel.
std::unique_ptr<Kernel> MakeHostTransfer(HostRank& rank, int peer, const KernelSpec& spec, Traffic& traffic);

}  // namespace temper
