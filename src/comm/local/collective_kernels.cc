#include "comm/local/collective_kernels.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/philox.h"
#include "comm/local/collective_loops.h"
#include "comm/local/lane_kernel.h"
#include "comm/local/peer_operands.h"
#include "comm/local/sum.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

// Sums up to this size are shown in mailboxes and added up by everybody: one wait instead of three.
constexpr int64_t kSmallSum = 16 << 10;
constexpr int64_t kTermAlignment = 8;  // of a tensor in a mailbox: the widest element
static_assert(kSmallSum + kTermAlignment * kTensorsPerMeeting <= kMailboxBytes.v);

Meeting MeetingOf(Op op) {
  switch (op) {
    case TrafficOp::kAllGather:
      return Meeting::kAllGather;
    case TrafficOp::kReduceScatter:
      return Meeting::kReduceScatter;
    case TrafficOp::kShift:
      return Meeting::kShift;
    case TrafficOp::kAllReduce:
      return Meeting::kAllReduce;
    default:
      TEMPER_CHECK(false) << "ranks of a host do not meet for " << ToString(op);
      return Meeting::kAllReduce;
  }
}

class HostCollective final : public LaneKernel {
 public:
  HostCollective(HostRank& rank, Lane lane, const HostGroup& group, CollectivePlan plan, Traffic& traffic)
      : LaneKernel(rank.control(), rank.self(), lane),
        peers_(rank, lane, group, plan.tensors.size(), plan.op == TrafficOp::kAllReduce),
        plan_(std::move(plan)),
        traffic_(traffic) {}

  Status Run(const KernelArgs& args) override {
    const bool small = plan_.op == TrafficOp::kAllReduce && plan_.bytes.v <= kSmallSum;
    const size_t tensors = plan_.tensors.size();
    for (size_t first = 0; first < tensors; first += kTensorsPerMeeting) {
      const size_t count = std::min(tensors - first, static_cast<size_t>(kTensorsPerMeeting));
      TEMPER_RETURN_IF_ERROR(small ? SmallSum(args, first, count) : Meet(args, first, count));
    }
    traffic_.sent.fetch_add(plan_.sent.v, std::memory_order_relaxed);
    return OkStatus();
  }

 private:
  const HostGroup& group() const { return peers_.group(); }
  int members() const { return group().size(); }
  int index() const { return group().index; }

  Status Meet(const KernelArgs& args, size_t first, size_t count) {
    Rendezvous& rendezvous = peers_.rendezvous();
    TEMPER_RETURN_IF_ERROR(peers_.Open(MeetingOf(plan_.op), plan_, args, first, count));
    if (plan_.op == TrafficOp::kAllGather) {
      Gather(args, first, count, /*from_outputs=*/false);
    } else if (plan_.op == TrafficOp::kShift) {
      CopyFromBefore(args, first, count);
    } else {
      Reduce(args, first, count);
    }
    if (plan_.op == TrafficOp::kAllReduce) {
      // From here on the owners' outputs hold the sums of their parts, and no rank reads terms any more.
      TEMPER_RETURN_IF_ERROR(rendezvous.Arrive(group()));
      Gather(args, first, count, /*from_outputs=*/true);
    }
    TEMPER_RETURN_IF_ERROR(rendezvous.Depart(group()));
    if (plan_.forgets) peers_.Forget(plan_, first, count);  // while the others go on
    return OkStatus();
  }

  // Copies every member's part into the own output: from its input, or from the same place of its output, where the own
  // part lies already.
  void Gather(const KernelArgs& args, size_t first, size_t count, bool from_outputs) {
    ForTeam(plan_.threads, plan_.bytes, [&](int thread, int team) {
      for (size_t t = 0; t < count; ++t) {
        // Everybody begins with another member, so that not all read the same memory at once.
        for (int k = from_outputs ? 1 : 0; k < members(); ++k) {
          const int m = (index() + k) % members();
          CopyPart(plan_.tensors[first + t], m, from_outputs ? peers_.output(m, t) : peers_.input(m, t), from_outputs,
                   args.outputs[first + t], plan_.bytes >= kStreamFrom, thread, team);
        }
      }
    });
    CountMoved(first, count, [&](const CollectiveTensor& tensor) { return tensor.whole - tensor.parts[Own()].count; });
  }

  void CopyFromBefore(const KernelArgs& args, size_t first, size_t count) {
    const int before = (index() + members() - 1) % members();
    ForTeam(plan_.threads, plan_.bytes, [&](int thread, int team) {
      for (size_t t = 0; t < count; ++t) {
        CopyWhole(plan_.tensors[first + t], peers_.input(before, t), args.outputs[first + t],
                  plan_.bytes >= kStreamFrom, thread, team);
      }
    });
    CountMoved(first, count, [&](const CollectiveTensor& tensor) { return tensor.whole; });
  }

  // Adds up the own part of all members' terms into the output: at its beginning where that is the part, in place where
  // it is the whole.
  void Reduce(const KernelArgs& args, size_t first, size_t count) {
    const bool whole = plan_.op == TrafficOp::kAllReduce;
    ForTeam(plan_.threads, plan_.bytes, [&](int thread, int team) {
      const std::byte* terms[kMaxHostRanks];
      for (size_t t = 0; t < count; ++t) {
        const CollectiveTensor& tensor = plan_.tensors[first + t];
        const int64_t size = tensor.element_bytes(), row = tensor.row(index());
        std::byte* const out = args.outputs[first + t];
        const std::byte* const acc = plan_.acc ? args.inputs[plan_.tensors.size() + first + t] : nullptr;
        ForShare(tensor.outer, row, size, team, thread, [&](int64_t o, int64_t begin, int64_t n) {
          const int64_t at = (tensor.row_begin(index(), o) + begin) * size;
          const int64_t to = whole ? at : (o * row + begin) * size;
          for (int m = 0; m < members(); ++m) terms[m] = peers_.input(m, t) + at;
          Sum(tensor.dtype, terms, members(), acc ? acc + to : nullptr, out + to, n);
        });
      }
    });
    CountMoved(first, count,
               [&](const CollectiveTensor& tensor) { return (members() - 1) * tensor.parts[Own()].count; });
  }

  // All tensors of the node in one mailbox each: outputs may be their inputs, so the terms are shown as a copy.
  Status SmallSum(const KernelArgs& args, size_t first, size_t count) {
    Rendezvous& meeting = peers_.rendezvous();
    TEMPER_RETURN_IF_ERROR(meeting.Publish(Meeting::kAllReduce, plan_.fingerprint));
    const auto for_each = [&](const auto& body) {
      int64_t at = 0;
      for (size_t t = 0; t < count; ++t) {
        const CollectiveTensor& tensor = plan_.tensors[first + t];
        body(tensor, first + t, at);
        at = AlignUp(Bytes{at} + tensor.bytes(), kTermAlignment).v;
      }
    };
    for_each([&](const CollectiveTensor& tensor, size_t t, int64_t at) {
      if (tensor.whole > 0)
        std::memcpy(meeting.own().mailbox + at, args.inputs[t], static_cast<size_t>(tensor.bytes().v));
    });
    TEMPER_RETURN_IF_ERROR(meeting.Arrive(group()));
    for_each([&](const CollectiveTensor& tensor, size_t t, int64_t at) {
      const std::byte* terms[kMaxHostRanks];
      for (int m = 0; m < members(); ++m) terms[m] = meeting.of(group(), m).mailbox + at;
      Sum(tensor.dtype, terms, members(), nullptr, args.outputs[t], tensor.whole);
    });
    meeting.Leave(group());
    CountMoved(first, count, [&](const CollectiveTensor& tensor) { return (members() - 1) * tensor.whole; });
    return OkStatus();
  }

  size_t Own() const { return static_cast<size_t>(index()); }
  template <class PerRow>
  void CountMoved(size_t first, size_t count, const PerRow& per_row) {
    int64_t moved = 0;
    for (size_t t = first; t < first + count; ++t) {
      const CollectiveTensor& tensor = plan_.tensors[t];
      moved += per_row(tensor) * tensor.outer * tensor.inner * tensor.element_bytes();
    }
    traffic_.moved.fetch_add(moved, std::memory_order_relaxed);
  }

  PeerOperands peers_;
  const CollectivePlan plan_;
  Traffic& traffic_;
};

class BroadcastKernel final : public Kernel {
 public:
  explicit BroadcastKernel(Bytes bytes) : bytes_(bytes) {}
  Status Run(const KernelArgs& args) override {
    if (args.outputs[0] != args.inputs[0] && bytes_.v > 0) {
      std::memcpy(args.outputs[0], args.inputs[0], static_cast<size_t>(bytes_.v));
    }
    return OkStatus();
  }

 private:
  const Bytes bytes_;
};

}  // namespace

Lane MeetingLane(const KernelSpec& spec) {
  if (!spec.attributes.Flag("background")) return Lane::kInline;
  return spec.attributes.Flag("soon") ? Lane::kSoon : Lane::kBackground;
}

Result<std::unique_ptr<Kernel>> MakeHostCollective(HostRank& rank, const HostGroup& group, const KernelSpec& spec,
                                                   Traffic& traffic) {
  // Members first find out that they make the same kernel, then what parts they have.
  const uint64_t mine = HashName(DescribeCollective(spec));
  const auto members = static_cast<size_t>(group.size());
  std::vector<uint64_t> prints(members);
  TEMPER_RETURN_IF_ERROR(rank.AllGather(group, Meeting::kMakeKernel, std::as_bytes(std::span(&mine, 1)),
                                        std::as_writable_bytes(std::span(prints))));
  for (size_t m = 0; m < members; ++m) {
    if (prints[m] == mine) continue;
    return rank.rendezvous(Lane::kInline)
        .Stop(InvalidArgument(fmt::format(
            "{} makes {}, but {} makes another collective: ranks must run the same program",
            rank.control().NameOf(rank.self()), DescribeCollective(spec), rank.control().NameOf(group.members[m]))));
  }
  const std::vector<int64_t> own = OwnPartSizes(spec);
  std::vector<int64_t> sizes(own.size() * members);
  TEMPER_RETURN_IF_ERROR(rank.AllGather(group, Meeting::kMakeKernel, std::as_bytes(std::span(own)),
                                        std::as_writable_bytes(std::span(sizes))));
  TEMPER_ASSIGN_OR_RETURN(CollectivePlan plan, PlanCollective(spec, group.size(), sizes));
  return std::unique_ptr<Kernel>(new HostCollective(rank, MeetingLane(spec), group, std::move(plan), traffic));
}

std::unique_ptr<Kernel> MakeBroadcast(const KernelSpec& spec) {
  return std::make_unique<BroadcastKernel>(spec.inputs[0].bytes());
}

}  // namespace temper
