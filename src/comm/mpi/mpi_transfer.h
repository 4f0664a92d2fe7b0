// send and recv between ranks of two hosts: messages of their own kind, on two links of their own, so that they travel
// beside collectives.
#pragma once

#include <memory>

#include "comm/mpi/mpi_context.h"
#include "device/kernel.h"

namespace temper {

// `peer` is a rank of the run. What `context` refers to must outlive the kernel.
std::unique_ptr<Kernel> MakeMpiTransfer(const MpiContext& context, int peer, const KernelSpec& spec);

}  // namespace temper
