#include "comm/local/collective_kernels.h"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstring>

#include "base/philox.h"
#include "comm/local/sum.h"

namespace temper {
namespace {

constexpr int64_t kCacheLine = 64;
// Below this much per thread a team costs more than it saves.
constexpr int64_t kTeamBytes = 256 << 10;
// Sums up to this size are shown in mailboxes and added up by everybody: one wait instead of three.
constexpr int64_t kSmallSum = 16 << 10;
static_assert(kSmallSum <= kMailboxBytes.v);

// Calls body(thread, team) on each thread of a team; alone where there is little to do.
template <class Body>
void ForTeam(int threads, Bytes bytes, const Body& body) {
  if (threads == 1 || bytes.v < kTeamBytes * threads) {
    body(0, 1);
    return;
  }
#pragma omp parallel num_threads(threads)
  body(omp_get_thread_num(), omp_get_num_threads());
}

// A thread's share of `n` things that come in indivisible runs of `grain`.
Part ShareOf(int64_t n, int64_t grain, int team, int thread) {
  const Part share = PartOf((n + grain - 1) / grain, team, thread);
  const int64_t begin = std::min(share.begin * grain, n);
  return {begin, std::min((share.begin + share.count) * grain, n) - begin};
}

// Calls body(o, begin, count) for this thread's share of `outer` rows of `row` elements: of the rows where there are
// many, of the one row else.
template <class Body>
void ForShare(int64_t outer, int64_t row, int64_t element_bytes, int team, int thread, const Body& body) {
  if (row == 0) return;
  if (outer == 1) {
    const Part share = ShareOf(row, kCacheLine / element_bytes, team, thread);
    if (share.count > 0) body(int64_t{0}, share.begin, share.count);
    return;
  }
  const Part share = PartOf(outer, team, thread);
  for (int64_t o = share.begin; o < share.begin + share.count; ++o) body(o, int64_t{0}, row);
}

Meeting MeetingOf(Op op) {
  switch (op) {
    case Op::kAllGather:
      return Meeting::kAllGather;
    case Op::kReduceScatter:
      return Meeting::kReduceScatter;
    default:
      return Meeting::kAllReduce;
  }
}

class HostCollective final : public Kernel {
 public:
  HostCollective(HostRank& rank, HostGroup group, CollectivePlan plan, Traffic& traffic)
      : rank_(rank), group_(std::move(group)), plan_(std::move(plan)), traffic_(traffic) {
    peers_.resize(static_cast<size_t>(group_.size()) * 2 * kTensorsPerMeeting);
  }

  Status Run(const KernelArgs& args) override {
    const bool small = plan_.op == Op::kAllReduce && plan_.bytes.v <= kSmallSum;
    const size_t tensors = plan_.tensors.size();
    for (size_t first = 0; first < tensors; first += kTensorsPerMeeting) {
      const size_t count = std::min(tensors - first, static_cast<size_t>(kTensorsPerMeeting));
      TEMPER_RETURN_IF_ERROR(small ? SmallSum(args, first, count) : Meet(args, first, count));
    }
    traffic_.sent.fetch_add(plan_.sent.v, std::memory_order_relaxed);
    return OkStatus();
  }

 private:
  int members() const { return group_.size(); }
  int index() const { return group_.index; }
  // Of tensor first + t of the meeting: member m's input, and its output where peers read that too.
  std::byte*& input(int m, size_t t) { return peers_[static_cast<size_t>(m) * 2 * kTensorsPerMeeting + 2 * t]; }
  std::byte*& output(int m, size_t t) { return peers_[static_cast<size_t>(m) * 2 * kTensorsPerMeeting + 2 * t + 1]; }

  Status Meet(const KernelArgs& args, size_t first, size_t count) {
    Rendezvous& meeting = rank_.rendezvous();
    TEMPER_RETURN_IF_ERROR(meeting.Publish(MeetingOf(plan_.op), plan_.fingerprint));
    const bool outputs = plan_.op == Op::kAllReduce;
    for (size_t t = 0; t < count; ++t) {
      const bool empty = plan_.tensors[first + t].bytes() == Bytes{};
      RankBlock& own = meeting.own();
      own.addresses[2 * t] = empty ? 0 : rank_.arenas().AddressOf(args.inputs[first + t]);
      if (outputs) own.addresses[2 * t + 1] = empty ? 0 : rank_.arenas().AddressOf(args.outputs[first + t]);
    }
    TEMPER_RETURN_IF_ERROR(meeting.Arrive(group_));
    TEMPER_RETURN_IF_ERROR(Resolve(args, first, count, outputs));
    if (plan_.op == Op::kAllGather) {
      Gather(args, first, count, /*from_outputs=*/false);
    } else {
      Reduce(args, first, count);
    }
    if (plan_.op == Op::kAllReduce) {
      // From here on the owners' outputs hold the sums of their parts, and nobody reads terms any more.
      TEMPER_RETURN_IF_ERROR(meeting.Arrive(group_));
      Gather(args, first, count, /*from_outputs=*/true);
    }
    return meeting.Depart(group_);
  }

  Status Resolve(const KernelArgs& args, size_t first, size_t count, bool outputs) {
    for (int m = 0; m < members(); ++m) {
      const int peer = group_.members[static_cast<size_t>(m)];
      const RankBlock& block = rank_.rendezvous().of(group_, m);
      for (size_t t = 0; t < count; ++t) {
        if (plan_.tensors[first + t].bytes() == Bytes{}) continue;
        if (m == index()) {
          input(m, t) = args.inputs[first + t];
          output(m, t) = args.outputs[first + t];
          continue;
        }
        auto in = rank_.arenas().At(peer, block.addresses[2 * t]);
        if (!in.ok()) return rank_.rendezvous().Stop(in.status());
        input(m, t) = *in;
        if (!outputs) continue;
        auto out = rank_.arenas().At(peer, block.addresses[2 * t + 1]);
        if (!out.ok()) return rank_.rendezvous().Stop(out.status());
        output(m, t) = *out;
      }
    }
    return OkStatus();
  }

  // Copies every member's part into the own output: from its input, or from the same place of its output, where the own
  // part lies already.
  void Gather(const KernelArgs& args, size_t first, size_t count, bool from_outputs) {
    ForTeam(plan_.threads, plan_.bytes, [&](int thread, int team) {
      for (size_t t = 0; t < count; ++t) {
        const CollectiveTensor& tensor = plan_.tensors[first + t];
        const int64_t size = tensor.element_bytes();
        std::byte* const out = args.outputs[first + t];
        // Everybody begins with another member, so that not all read the same memory at once.
        for (int k = 0; k < members(); ++k) {
          const int m = (index() + k) % members();
          if (from_outputs && m == index()) continue;
          const std::byte* const from = from_outputs ? output(m, t) : input(m, t);
          ForShare(tensor.outer, tensor.row(m), size, team, thread, [&](int64_t o, int64_t begin, int64_t n) {
            const int64_t to = (tensor.row_begin(m, o) + begin) * size;
            const int64_t at = from_outputs ? to : (o * tensor.row(m) + begin) * size;
            std::memcpy(out + to, from + at, static_cast<size_t>(n * size));
          });
        }
      }
    });
    CountMoved(first, count, [&](const CollectiveTensor& tensor) { return tensor.whole - tensor.parts[Own()].count; });
  }

  // Adds up the own part of all members' terms, into the output: at its beginning where that is the part, in place
  // where
  // it is the whole.
  void Reduce(const KernelArgs& args, size_t first, size_t count) {
    const bool whole = plan_.op == Op::kAllReduce;
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
          for (int m = 0; m < members(); ++m) terms[m] = input(m, t) + at;
          Sum(tensor.dtype, terms, members(), acc ? acc + to : nullptr, out + to, n);
        });
      }
    });
    CountMoved(first, count,
               [&](const CollectiveTensor& tensor) { return (members() - 1) * tensor.parts[Own()].count; });
  }

  // All tensors of the node in one mailbox each: outputs may be their inputs, so the terms are shown as a copy.
  Status SmallSum(const KernelArgs& args, size_t first, size_t count) {
    Rendezvous& meeting = rank_.rendezvous();
    TEMPER_RETURN_IF_ERROR(meeting.Publish(Meeting::kAllReduce, plan_.fingerprint));
    const auto for_each = [&](const auto& body) {
      int64_t at = 0;
      for (size_t t = 0; t < count; ++t) {
        const CollectiveTensor& tensor = plan_.tensors[first + t];
        body(tensor, first + t, at);
        at += tensor.bytes().v;
      }
    };
    for_each([&](const CollectiveTensor& tensor, size_t t, int64_t at) {
      if (tensor.whole > 0)
        std::memcpy(meeting.own().mailbox + at, args.inputs[t], static_cast<size_t>(tensor.bytes().v));
    });
    TEMPER_RETURN_IF_ERROR(meeting.Arrive(group_));
    for_each([&](const CollectiveTensor& tensor, size_t t, int64_t at) {
      const std::byte* terms[kMaxHostRanks];
      for (int m = 0; m < members(); ++m) terms[m] = meeting.of(group_, m).mailbox + at;
      Sum(tensor.dtype, terms, members(), nullptr, args.outputs[t], tensor.whole);
    });
    meeting.Leave(group_);
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

  HostRank& rank_;
  const HostGroup group_;
  const CollectivePlan plan_;
  Traffic& traffic_;
  std::vector<std::byte*> peers_;
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
    return rank.rendezvous().Stop(InvalidArgument(fmt::format(
        "{} makes {}, but {} makes another collective: ranks must run the same program",
        rank.control().NameOf(rank.self()), DescribeCollective(spec), rank.control().NameOf(group.members[m]))));
  }
  const std::vector<int64_t> own = OwnPartSizes(spec);
  std::vector<int64_t> sizes(own.size() * members);
  TEMPER_RETURN_IF_ERROR(rank.AllGather(group, Meeting::kMakeKernel, std::as_bytes(std::span(own)),
                                        std::as_writable_bytes(std::span(sizes))));
  TEMPER_ASSIGN_OR_RETURN(CollectivePlan plan, PlanCollective(spec, group.size(), sizes));
  return std::unique_ptr<Kernel>(new HostCollective(rank, group, std::move(plan), traffic));
}

std::unique_ptr<Kernel> MakeBroadcast(const KernelSpec& spec) {
  return std::make_unique<BroadcastKernel>(spec.inputs[0].bytes());
}

}  // namespace temper
