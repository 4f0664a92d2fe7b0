#include "comm/mpi/mpi_shift.h"

#include <algorithm>

#include "comm/local/collective_loops.h"
#include "comm/local/lane_kernel.h"
#include "comm/local/peer_operands.h"

namespace temper {
namespace {

// Far below what fits MPI's int.
constexpr int64_t kMostPerShift = int64_t{1} << 26;

class MpiShift final : public LaneKernel {
 public:
  MpiShift(const MpiContext& context, Lane lane, const GroupLayout& group, CollectivePlan plan)
      : LaneKernel(context.host.control(), context.host.self(), lane),
        link_(context.link(lane)),
        traffic_(context.traffic),
        group_(group),
        plan_(std::move(plan)),
        peers_(context.host, lane, MembersHere(group, context.hosts), plan_.tensors.size(), /*outputs=*/false),
        before_((group.index() + group.size() - 1) % group.size()),
        behind_((group.index() + 1) % group.size()),
        messages_(MatterOf(lane)) {
    size_t messages = 0;
    for (const CollectiveTensor& t : plan_.tensors) {
      messages += static_cast<size_t>((t.bytes().v + kMostPerShift - 1) / kMostPerShift);
    }
    messages_.Reserve(2 * messages);
  }

  Status Run(const KernelArgs& args) override {
    for (size_t first = 0; first < plan_.tensors.size(); first += kTensorsPerMeeting) {
      const size_t count = std::min(plan_.tensors.size() - first, static_cast<size_t>(kTensorsPerMeeting));
      TEMPER_RETURN_IF_ERROR(peers_.Open(Meeting::kShift, plan_, args, first, count));
      TEMPER_RETURN_IF_ERROR(Post(args, first, count));
      if (IsHere(before_)) CopyFromBefore(args, first, count);
      TEMPER_RETURN_IF_ERROR(link_.Wait(&messages_));
      TEMPER_RETURN_IF_ERROR(peers_.rendezvous().Depart(peers_.group()));
    }
    traffic_.sent.fetch_add(plan_.sent.v, std::memory_order_relaxed);
    return OkStatus();
  }

 private:
  bool IsHere(int member) const { return group_.host_of(member) == group_.own_host(); }
  int RankOf(int member) const { return group_.ranks()[static_cast<size_t>(member)]; }

  Status Post(const KernelArgs& args, size_t first, size_t count) {
    for (size_t t = first; t < first + count; ++t) {
      const int64_t bytes = plan_.tensors[t].bytes().v;
      for (int64_t at = 0; at < bytes; at += kMostPerShift) {
        const auto n = static_cast<size_t>(std::min(bytes - at, kMostPerShift));
        if (!IsHere(before_)) {
          TEMPER_RETURN_IF_ERROR(link_.Receive(args.outputs[t] + at, n, RankOf(before_), &messages_));
        }
        if (IsHere(behind_)) continue;
        TEMPER_RETURN_IF_ERROR(link_.Send(args.inputs[t] + at, n, RankOf(behind_), &messages_));
        traffic_.moved.fetch_add(static_cast<int64_t>(n), std::memory_order_relaxed);
      }
    }
    return OkStatus();
  }

  void CopyFromBefore(const KernelArgs& args, size_t first, size_t count) {
    ForTeam(plan_.threads, plan_.bytes, [&](int thread, int team) {
      for (size_t t = 0; t < count; ++t) {
        CopyWhole(plan_.tensors[first + t], peers_.input(group_.place(before_), t), args.outputs[first + t],
                  plan_.bytes >= kStreamFrom, thread, team);
      }
    });
    int64_t bytes = 0;
    for (size_t t = first; t < first + count; ++t) bytes += plan_.tensors[t].bytes().v;
    traffic_.moved.fetch_add(bytes, std::memory_order_relaxed);
  }

  MpiLink& link_;
  Traffic& traffic_;
  const GroupLayout group_;
  const CollectivePlan plan_;
  PeerOperands peers_;
  const int before_, behind_;  // members
  Messages messages_;
};

}  // namespace

std::unique_ptr<Kernel> MakeMpiShift(const MpiContext& context, Lane lane, const GroupLayout& group,
                                     CollectivePlan plan) {
  return std::make_unique<MpiShift>(context, lane, group, std::move(plan));
}

}  // namespace temper
