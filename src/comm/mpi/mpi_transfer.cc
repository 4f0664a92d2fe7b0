#include "comm/mpi/mpi_transfer.h"

#include <fmt/core.h>

#include <algorithm>

#include "comm/local/lane_kernel.h"
#include "comm/local/transfer_kernel.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

// A count of MPI is an int.
constexpr size_t kMostPerMessage = size_t{1} << 30;

class MpiTransfer final : public LaneKernel {
 public:
  MpiTransfer(const MpiContext& context, int peer, const KernelSpec& spec)
      : LaneKernel(context.host.control(), context.host.self(), LaneOfTransfer(spec.op)),
        link_(context.link(LaneOfTransfer(spec.op))),
        peer_(peer),
        sends_(spec.op == TrafficOp::kSend),
        bytes_(static_cast<size_t>((sends_ ? spec.inputs[0] : spec.outputs[0]).bytes().v)),
        fingerprint_(TransferFingerprint(spec)),
        traffic_(context.traffic) {
    messages_.Reserve(1 + (bytes_ + kMostPerMessage - 1) / kMostPerMessage);
  }

  // First what this is, then the value.
  Status Run(const KernelArgs& args) override {
    uint64_t print = fingerprint_;
    if (sends_) {
      TEMPER_RETURN_IF_ERROR(link_.Send(&print, sizeof print, peer_, &messages_));
      for (size_t at = 0; at < bytes_; at += kMostPerMessage) {
        TEMPER_RETURN_IF_ERROR(
            link_.Send(args.inputs[0] + at, std::min(bytes_ - at, kMostPerMessage), peer_, &messages_));
      }
      traffic_.sent.fetch_add(static_cast<int64_t>(bytes_), std::memory_order_relaxed);
      traffic_.moved.fetch_add(static_cast<int64_t>(bytes_), std::memory_order_relaxed);
      return link_.Wait(&messages_);
    }
    TEMPER_RETURN_IF_ERROR(link_.Receive(&print, sizeof print, peer_, &messages_));
    TEMPER_RETURN_IF_ERROR(link_.Wait(&messages_));
    if (print != fingerprint_) {
      return link_.Stop(InvalidArgument(fmt::format(
          "rank {} sends another value than rank {} is waiting for: ranks must run programs of one pipeline", peer_,
          link_.rank())));
    }
    for (size_t at = 0; at < bytes_; at += kMostPerMessage) {
      TEMPER_RETURN_IF_ERROR(
          link_.Receive(args.outputs[0] + at, std::min(bytes_ - at, kMostPerMessage), peer_, &messages_));
    }
    return link_.Wait(&messages_);
  }

 private:
  MpiLink& link_;
  const int peer_;
  const bool sends_;
  const size_t bytes_;
  const uint64_t fingerprint_;
  Traffic& traffic_;
  Messages messages_{Matter::kTransfer};
};

}  // namespace

std::unique_ptr<Kernel> MakeMpiTransfer(const MpiContext& context, int peer, const KernelSpec& spec) {
  return std::make_unique<MpiTransfer>(context, peer, spec);
}

}  // namespace temper
