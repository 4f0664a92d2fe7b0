#include "comm/local/peer_operands.h"

#include <algorithm>

#include "graph/traffic_ops.h"

namespace temper {

PeerOperands::PeerOperands(HostRank& rank, Lane lane, HostGroup group, size_t tensors, bool outputs)
    : rendezvous_(rank.rendezvous(lane)),
      arenas_(rank.arenas()),
      group_(std::move(group)),
      stride_(std::min(tensors, static_cast<size_t>(kTensorsPerMeeting))),
      outputs_(outputs),
      addresses_(2 * static_cast<size_t>(group_.size()) * stride_, nullptr) {}

Status PeerOperands::Open(Meeting meeting, const CollectivePlan& plan, const KernelArgs& args, size_t first,
                          size_t count) {
  TEMPER_RETURN_IF_ERROR(rendezvous_.Publish(meeting, plan.fingerprint));
  const auto empty = [&](size_t t) { return plan.tensors[first + t].bytes() == Bytes{}; };
  Published& own = rendezvous_.own();
  for (size_t t = 0; t < count && group_.size() > 1; ++t) {
    own.addresses[2 * t] = empty(t) ? 0 : arenas_.AddressOf(args.inputs[first + t]);
    own.addresses[2 * t + 1] = empty(t) || !outputs_ ? 0 : arenas_.AddressOf(args.outputs[first + t]);
  }
  TEMPER_RETURN_IF_ERROR(rendezvous_.Arrive(group_));
  for (int i = 0; i < group_.size(); ++i) {
    const int peer = group_.members[static_cast<size_t>(i)];
    const Published& block = rendezvous_.of(group_, i);
    for (size_t t = 0; t < count; ++t) {
      std::byte** const to = &addresses_[Index(i, t)];
      if (i == group_.index) {
        to[0] = args.inputs[first + t];
        to[1] = args.outputs[first + t];
      }
      if (i == group_.index || empty(t)) continue;
      const CollectiveTensor& tensor = plan.tensors[first + t];
      const Bytes sizes[2] = {plan.op == TrafficOp::kAllGather ? tensor.part_bytes(i) : tensor.bytes(), tensor.bytes()};
      for (int k = 0; k < (outputs_ ? 2 : 1); ++k) {
        auto address = arenas_.At(peer, block.addresses[2 * t + static_cast<size_t>(k)], sizes[k]);
        if (!address.ok()) return rendezvous_.Stop(address.status());
        to[k] = *address;
      }
    }
  }
  return OkStatus();
}

void PeerOperands::Forget(const CollectivePlan& plan, size_t first, size_t count) const {
  for (int i = 0; i < group_.size(); ++i) {
    const int peer = group_.members[static_cast<size_t>(i)];
    for (size_t t = 0; t < count; ++t) {
      const CollectiveTensor& tensor = plan.tensors[first + t];
      if (tensor.bytes() == Bytes{}) continue;
      arenas_.Forget(peer, input(i, t), plan.op == TrafficOp::kAllGather ? tensor.largest_part() : tensor.bytes());
      if (outputs_) arenas_.Forget(peer, output(i, t), tensor.bytes());
    }
  }
}

}  // namespace temper
