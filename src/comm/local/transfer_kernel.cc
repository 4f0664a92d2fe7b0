#include "comm/local/transfer_kernel.h"

#include <fmt/core.h>

#include "base/philox.h"
#include "comm/local/lane_kernel.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

class HostTransfer final : public LaneKernel {
 public:
  HostTransfer(HostRank& rank, int peer, const KernelSpec& spec, Traffic& traffic)
      : LaneKernel(rank.control(), rank.self(), LaneOfTransfer(spec.op)),
        transfers_(rank.transfers()),
        peer_(peer),
        sends_(spec.op == TrafficOp::kSend),
        bytes_(sends_ ? spec.inputs[0].bytes() : spec.outputs[0].bytes()),
        fingerprint_(TransferFingerprint(spec)),
        traffic_(traffic) {}

  Status Run(const KernelArgs& args) override {
    if (sends_) {
      traffic_.sent.fetch_add(bytes_.v, std::memory_order_relaxed);
      return transfers_.Send(peer_, args.inputs[0], fingerprint_);
    }
    traffic_.moved.fetch_add(bytes_.v, std::memory_order_relaxed);
    return transfers_.Receive(peer_, args.outputs[0], bytes_, fingerprint_);
  }

 private:
  Transfers& transfers_;
  const int peer_;
  const bool sends_;
  const Bytes bytes_;
  const uint64_t fingerprint_;
  Traffic& traffic_;
};

}  // namespace

Lane LaneOfTransfer(Op op) {
  return op == TrafficOp::kSend ? Lane::kSends : Lane::kReceives;
}

uint64_t TransferFingerprint(const KernelSpec& spec) {
  const TensorType& type = spec.op == TrafficOp::kSend ? spec.inputs[0] : spec.outputs[0];
  return HashName(fmt::format("transfer {} {}", spec.attributes.Int("tag"), type.ToString()));
}

std::unique_ptr<Kernel> MakeHostTransfer(HostRank& rank, int peer, const KernelSpec& spec, Traffic& traffic) {
  return std::make_unique<HostTransfer>(rank, peer, spec, traffic);
}

}  // namespace temper
