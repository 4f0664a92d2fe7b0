// send and recv between ranks of two hosts: messages of their own kind, on two links of their own, so that they travel
// beside collectives.
#pragma once

#include <memory>

#include "comm/local/collective_kernels.h"
#include "comm/mpi/mpi_link.h"
#include "device/kernel.h"

namespace temper {

// `peer` is a rank of the run. `link` and `traffic` must outlive the kernel; `link` is that of sends or of receives.
std::unique_ptr<Kernel> MakeMpiTransfer(MpiLink& link, int peer, const KernelSpec& spec, Traffic& traffic);

}  // namespace temper
