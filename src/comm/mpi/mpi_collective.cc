#include "comm/mpi/mpi_collective.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/philox.h"
#include "comm/local/collective_loops.h"
#include "comm/local/lane_kernel.h"
#include "comm/local/peer_operands.h"
#include "comm/local/sum.h"
#include "comm/mpi/mpi_shift.h"
#include "comm/mpi/wire_plan.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

constexpr int64_t kWindow = 3;  // chunks of a stream on their way at once
constexpr int64_t kMostPerChunk = 1 << 20;

// So that a window of chunks fits into the staging memory of the busiest member; all members compute the same.
int64_t ChunkBytes(const GroupLayout& group) {
  const int64_t slots = (group.busiest() + 1) * kWindow;
  return std::clamp(Staging::kSize.v / slots / 64 * 64, int64_t{64}, kMostPerChunk);
}

Meeting MeetingOf(Op op) {
  if (op == TrafficOp::kAllGather) return Meeting::kAllGather;
  if (op == TrafficOp::kReduceScatter) return Meeting::kReduceScatter;
  TEMPER_CHECK(op == TrafficOp::kAllReduce) << "ranks of several hosts do not meet for " << ToString(op);
  return Meeting::kAllReduce;
}

class MpiCollective final : public LaneKernel {
 public:
  MpiCollective(const MpiContext& context, Lane lane, const GroupLayout& group, CollectivePlan plan)
      : LaneKernel(context.host.control(), context.host.self(), lane),
        link_(context.link(lane)),
        staging_(context.staging(lane)),
        traffic_(context.traffic),
        group_(group),
        plan_(std::move(plan)),
        peers_(context.host, lane, MembersHere(group, context.hosts), plan_.tensors.size(),
               plan_.op != TrafficOp::kReduceScatter),
        charges_(group.ChargesOf(group.index())),
        deputies_(group.DeputiesFor(group.index())) {
    const bool gathers = plan_.op != TrafficOp::kReduceScatter, sums = plan_.op != TrafficOp::kAllGather;
    for (const auto& members : group_.hosts()) wide_ = wide_ || (sums && members.size() > 1);
    for (size_t first = 0; first < plan_.tensors.size(); first += kTensorsPerMeeting) {
      const size_t count = std::min(plan_.tensors.size() - first, static_cast<size_t>(kTensorsPerMeeting));
      rounds_.push_back({first, count});
      if (gathers) parts_.emplace_back(plan_, first, count, false, ChunkBytes(group_));
      if (sums) terms_.emplace_back(plan_, first, count, wide_, ChunkBytes(group_));
    }
    for (auto* window : {&incoming_, &outgoing_}) {
      for (int64_t k = 0; k < kWindow; ++k) {
        window->emplace_back(MatterOf(lane)).Reserve(charges_.size() + deputies_.size());
      }
    }
  }

  Status Run(const KernelArgs& args) override {
    for (size_t r = 0; r < rounds_.size(); ++r) {
      const auto [first, count] = rounds_[r];
      TEMPER_RETURN_IF_ERROR(peers_.Open(MeetingOf(plan_.op), plan_, args, first, count));
      args_ = &args;
      first_ = first;
      count_ = count;
      if (plan_.op != TrafficOp::kAllGather) TEMPER_RETURN_IF_ERROR(SumBetweenHosts(terms_[r]));
      if (plan_.op != TrafficOp::kReduceScatter) {
        TEMPER_RETURN_IF_ERROR(GatherBetweenHosts(parts_[r]));
        TEMPER_RETURN_IF_ERROR(peers_.rendezvous().Arrive(peers_.group()));
        GatherHere();
      }
      TEMPER_RETURN_IF_ERROR(peers_.rendezvous().Depart(peers_.group()));
      if (plan_.forgets) peers_.Forget(plan_, first, count);  // while the others go on
    }
    traffic_.sent.fetch_add(plan_.sent.v, std::memory_order_relaxed);
    return OkStatus();
  }

 private:
  int RankOf(int m) const { return group_.ranks()[static_cast<size_t>(m)]; }
  bool reduces_whole() const { return plan_.op == TrafficOp::kAllReduce; }
  const CollectiveTensor& tensor(size_t t) const { return plan_.tensors[first_ + t]; }

  // Each stream in each direction has a slot of staging memory for every chunk of the window, and one more is for what
  // this host adds to a sum itself.
  std::byte* Slot(const WirePlan& wire, int64_t c, size_t stream) {
    const size_t streams = charges_.size() + deputies_.size() + 1;
    const size_t slot = static_cast<size_t>(c % kWindow) * streams + stream;
    return staging_.memory() + slot * static_cast<size_t>(wire.chunk_bytes());
  }

  // The exchange of streams in chunks. For each chunk: wait until the slots it takes are free, post(c), which sends and
  // receives, and for chunks that have come, take(c).
  template <class PostChunk, class TakeChunk>
  Status Stream(int64_t chunks, const PostChunk& post, const TakeChunk& take) {
    for (int64_t c = 0; c < chunks + kWindow - 1; ++c) {
      if (c < chunks) {
        TEMPER_RETURN_IF_ERROR(link_.Wait(&outgoing_[static_cast<size_t>(c % kWindow)]));
        TEMPER_RETURN_IF_ERROR(post(c));
      }
      if (const int64_t come = c - (kWindow - 1); come >= 0) {
        TEMPER_RETURN_IF_ERROR(link_.Wait(&incoming_[static_cast<size_t>(come % kWindow)]));
        take(come);
      }
    }
    for (Messages& m : outgoing_) TEMPER_RETURN_IF_ERROR(link_.Wait(&m));
    return OkStatus();
  }

  Status Send(const WirePlan& wire, int owner, int64_t c, const std::byte* data, int to) {
    const int64_t bytes = wire.bytes_of_chunk(owner, c);
    traffic_.moved.fetch_add(bytes, std::memory_order_relaxed);
    return link_.Send(data, static_cast<size_t>(bytes), RankOf(to), &outgoing_[static_cast<size_t>(c % kWindow)]);
  }
  Status Receive(const WirePlan& wire, int owner, int64_t c, std::byte* data, int from) {
    return link_.Receive(data, static_cast<size_t>(wire.bytes_of_chunk(owner, c)), RankOf(from),
                         &incoming_[static_cast<size_t>(c % kWindow)]);
  }

  // Each owner gets the sum of its part into its output.
  Status SumBetweenHosts(const WirePlan& wire) {
    const int me = group_.index();
    int64_t chunks = wire.chunks(me);
    for (const int owner : charges_) chunks = std::max(chunks, wire.chunks(owner));
    return Stream(
        chunks,
        [&](int64_t c) -> Status {
          for (size_t k = 0; k < deputies_.size() && c < wire.chunks(me); ++k) {
            TEMPER_RETURN_IF_ERROR(Receive(wire, me, c, Slot(wire, c, k), deputies_[k]));
          }
          for (size_t k = 0; k < charges_.size(); ++k) {
            const int owner = charges_[k];
            if (c >= wire.chunks(owner)) continue;
            const std::byte* const terms = TermsHere(wire, owner, c, Slot(wire, c, deputies_.size() + k));
            TEMPER_RETURN_IF_ERROR(Send(wire, owner, c, terms, owner));
          }
          return OkStatus();
        },
        [&](int64_t c) {
          if (c >= wire.chunks(me)) return;
          Finish(wire, c, TermsHere(wire, me, c, Slot(wire, c, deputies_.size() + charges_.size())));
        });
  }

  // What this host's members add to the owner's part, as it goes over the wire.
  void SumHere(const WirePlan& wire, int owner, int64_t c, std::byte* to) {
    const int here = peers_.group().size();
    wire.ForChunk(owner, c, [&](size_t t, int64_t begin, int64_t n, int64_t at) {
      const int64_t size = tensor(t).element_bytes();
      const int64_t wire_size = Widened(t) ? SizeOf(DType::kF32) : size;
      ForTeam(plan_.threads, {n * size}, [&](int thread, int team) {
        ForShare(1, n, size, team, thread, [&](int64_t, int64_t share, int64_t share_n) {
          ForStretches(tensor(t), owner, begin + share, share_n, [&](int64_t from, int64_t i, int64_t count) {
            const std::byte* terms[kMaxHostRanks];
            for (int m = 0; m < here; ++m) terms[m] = peers_.input(m, t) + from * size;
            std::byte* const out = to + at + (share + i) * wire_size;
            if (Widened(t)) {
              FastestSumKernels().bf16_to_f32(reinterpret_cast<const uint16_t* const*>(terms), here, nullptr,
                                              reinterpret_cast<float*>(out), count);
            } else {
              Sum(tensor(t).dtype, terms, here, nullptr, out, count);
            }
          });
        });
      });
    });
    if (here > 1) traffic_.moved.fetch_add(BytesHere(wire, owner, c) * (here - 1), std::memory_order_relaxed);
  }

  int64_t BytesHere(const WirePlan& wire, int owner, int64_t c) const {
    int64_t bytes = 0;
    wire.ForChunk(owner, c, [&](size_t t, int64_t, int64_t n, int64_t) { bytes += n * tensor(t).element_bytes(); });
    return bytes;
  }

  bool Widened(size_t t) const { return wide_ && tensor(t).dtype == DType::kBF16; }

  // Adds up what the hosts gave, in their order.
  void Finish(const WirePlan& wire, int64_t c, const std::byte* own) {
    const int me = group_.index(), hosts = static_cast<int>(group_.hosts().size());
    wire.ForChunk(me, c, [&](size_t t, int64_t begin, int64_t n, int64_t at) {
      const int64_t size = tensor(t).element_bytes();
      std::vector<const std::byte*>& from = host_terms_;
      from.assign(static_cast<size_t>(hosts), own + at);
      size_t k = 0;
      for (int host = 0; host < hosts; ++host) {
        if (host != group_.own_host()) from[static_cast<size_t>(host)] = Slot(wire, c, k++) + at;
      }
      const int64_t place = reduces_whole() ? tensor(t).row_begin(me, 0) + begin : begin;
      std::byte* const out = args_->outputs[first_ + t] + place * size;
      const std::byte* const acc =
          plan_.acc ? args_->inputs[plan_.tensors.size() + first_ + t] + place * size : nullptr;
      if (Widened(t)) {
        FastestSumKernels().f32_to_bf16(reinterpret_cast<const float* const*>(from.data()), hosts,
                                        reinterpret_cast<const uint16_t*>(acc), reinterpret_cast<uint16_t*>(out), n);
      } else {
        Sum(tensor(t).dtype, from.data(), hosts, acc, out, n);
      }
    });
  }

  // Each deputy gets the parts of its charges into their places of its output.
  Status GatherBetweenHosts(const WirePlan& wire) {
    const int me = group_.index();
    int64_t chunks = wire.chunks(me);
    for (const int owner : charges_) chunks = std::max(chunks, wire.chunks(owner));
    return Stream(
        chunks,
        [&](int64_t c) -> Status {
          for (size_t k = 0; k < charges_.size(); ++k) {
            const int owner = charges_[k];
            if (c >= wire.chunks(owner)) continue;
            std::byte* const in_place = InPlace(wire, owner, c);
            TEMPER_RETURN_IF_ERROR(Receive(wire, owner, c, in_place ? in_place : Slot(wire, c, k), owner));
          }
          if (c >= wire.chunks(me)) return OkStatus();
          const std::byte* data = OwnInPlace(wire, c);
          if (data == nullptr) {
            std::byte* const slot = Slot(wire, c, charges_.size());
            Pack(wire, c, slot);
            data = slot;
          }
          for (const int deputy : deputies_) TEMPER_RETURN_IF_ERROR(Send(wire, me, c, data, deputy));
          return OkStatus();
        },
        [&](int64_t c) {
          for (size_t k = 0; k < charges_.size(); ++k) {
            const int owner = charges_[k];
            if (c < wire.chunks(owner) && InPlace(wire, owner, c) == nullptr) Unpack(wire, owner, c, Slot(wire, c, k));
          }
        });
  }

  // Where the chunk lies in whole tensors that begin at base(t), if it is one stretch there; else nullptr.
  template <class Base>
  std::byte* Stretch(const WirePlan& wire, int owner, int64_t c, const Base& base) const {
    std::byte* place = nullptr;
    int stretches = 0;
    wire.ForChunk(owner, c, [&](size_t t, int64_t begin, int64_t n, int64_t) {
      const int64_t row = tensor(t).row(owner), size = tensor(t).element_bytes();
      const bool within_a_row = begin / row == (begin + n - 1) / row;
      // The stream may be padded behind a tensor: its last chunk is then longer than what lies there.
      const bool all = n * size == wire.bytes_of_chunk(owner, c);
      stretches += within_a_row && all ? 1 : 2;
      if (stretches == 1) place = base(t) + (tensor(t).row_begin(owner, begin / row) + begin % row) * size;
    });
    return stretches == 1 ? place : nullptr;
  }
  std::byte* InPlace(const WirePlan& wire, int owner, int64_t c) const {
    return Stretch(wire, owner, c, [&](size_t t) { return args_->outputs[first_ + t]; });
  }
  // This host's terms of the owner's part: where they lie, if they are one rank's and go as they are, else in the slot.
  const std::byte* TermsHere(const WirePlan& wire, int owner, int64_t c, std::byte* slot) {
    if (peers_.group().size() == 1 && !wide_) {
      const std::byte* const place = Stretch(wire, owner, c, [&](size_t t) { return peers_.input(0, t); });
      if (place != nullptr) return place;
    }
    SumHere(wire, owner, c, slot);
    return slot;
  }

  // This rank's own part lies packed: in its input, and where there was a sum before in its output.
  const std::byte* OwnPart(size_t t, int64_t begin) const {
    const int64_t size = tensor(t).element_bytes();
    if (!reduces_whole()) return args_->inputs[first_ + t] + begin * size;
    return args_->outputs[first_ + t] + (tensor(t).row_begin(group_.index(), 0) + begin) * size;
  }
  const std::byte* OwnInPlace(const WirePlan& wire, int64_t c) const {
    const std::byte* place = nullptr;
    int pieces = 0;
    wire.ForChunk(group_.index(), c, [&](size_t t, int64_t begin, int64_t n, int64_t) {
      ++pieces;
      place = OwnPart(t, begin);
      if (n * tensor(t).element_bytes() != wire.bytes_of_chunk(group_.index(), c)) ++pieces;
    });
    return pieces == 1 ? place : nullptr;
  }
  void Pack(const WirePlan& wire, int64_t c, std::byte* to) const {
    wire.ForChunk(group_.index(), c, [&](size_t t, int64_t begin, int64_t n, int64_t at) {
      std::memcpy(to + at, OwnPart(t, begin), static_cast<size_t>(n * tensor(t).element_bytes()));
    });
  }
  void Unpack(const WirePlan& wire, int owner, int64_t c, const std::byte* from) const {
    wire.ForChunk(owner, c, [&](size_t t, int64_t begin, int64_t n, int64_t at) {
      const int64_t size = tensor(t).element_bytes();
      ForStretches(tensor(t), owner, begin, n, [&](int64_t place, int64_t i, int64_t count) {
        std::memcpy(args_->outputs[first_ + t] + place * size, from + at + i * size, static_cast<size_t>(count * size));
      });
    });
  }

  // The parts of members of this host, and from deputies those of all others.
  void GatherHere() {
    const int me = group_.index();
    int64_t moved = 0;
    for (int k = reduces_whole() ? 1 : 0; k < group_.size(); ++k) {
      const int m = (me + k) % group_.size();
      const bool here = group_.host_of(m) == group_.own_host();
      const int source = here ? m : group_.Deputy(m, group_.own_host());
      if (!here && source == me) continue;
      const bool from_output = !here || reduces_whole();
      const int place = group_.place(source);
      ForTeam(plan_.threads, {plan_.bytes.v / group_.size()}, [&](int thread, int team) {
        for (size_t t = 0; t < count_; ++t) {
          CopyPart(tensor(t), m, from_output ? peers_.output(place, t) : peers_.input(place, t), from_output,
                   args_->outputs[first_ + t], plan_.bytes >= kStreamFrom, thread, team);
        }
      });
      for (size_t t = 0; t < count_ && m != me; ++t) {
        moved += tensor(t).outer * tensor(t).row(m) * tensor(t).element_bytes();
      }
    }
    traffic_.moved.fetch_add(moved, std::memory_order_relaxed);
  }

  MpiLink& link_;
  Staging& staging_;
  Traffic& traffic_;
  const GroupLayout group_;
  const CollectivePlan plan_;
  PeerOperands peers_;
  const std::vector<int> charges_, deputies_;
  bool wide_ = false;
  std::vector<std::pair<size_t, size_t>> rounds_;
  std::vector<WirePlan> parts_, terms_;  // per round
  std::vector<Messages> incoming_, outgoing_;
  std::vector<const std::byte*> host_terms_;

  // Of the round in progress.
  const KernelArgs* args_ = nullptr;
  size_t first_ = 0, count_ = 0;
};

}  // namespace

GroupGather::GroupGather(MpiLink& link, GroupLayout group) : link_(link), group_(std::move(group)) {
  messages_.Reserve(2 * group_.ranks().size());
}

Status GroupGather::Gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  TEMPER_CHECK(all.size() == mine.size() * group_.ranks().size()) << all.size() << " of " << mine.size();
  for (int m = 0; m < group_.size(); ++m) {
    std::byte* const place = all.data() + static_cast<size_t>(m) * mine.size();
    if (m == group_.index()) {
      if (!mine.empty()) std::memcpy(place, mine.data(), mine.size());
      continue;
    }
    const int peer = group_.ranks()[static_cast<size_t>(m)];
    TEMPER_RETURN_IF_ERROR(link_.Receive(place, mine.size(), peer, &messages_));
    TEMPER_RETURN_IF_ERROR(link_.Send(mine.data(), mine.size(), peer, &messages_));
  }
  return link_.Wait(&messages_);
}

Result<std::unique_ptr<Kernel>> MakeMpiCollective(const MpiContext& context, const GroupLayout& group,
                                                  const KernelSpec& spec) {
  TEMPER_CHECK(!group.one_host()) << "a group of one host";
  // Members first find out that they make the same kernel, then what parts they have.
  const std::string description = DescribeCollective(spec);
  const uint64_t mine = HashName(description);
  const auto members = static_cast<size_t>(group.size());
  MpiLink& link = context.link(Lane::kInline);
  GroupGather gather(link, group);
  std::vector<uint64_t> prints(members);
  TEMPER_RETURN_IF_ERROR(gather.Gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(prints))));
  for (size_t m = 0; m < members; ++m) {
    if (prints[m] == mine) continue;
    return link.Stop(InvalidArgument(
        fmt::format("rank {} makes {}, but rank {} makes another collective: ranks must run the same program",
                    link.rank(), description, group.ranks()[m])));
  }
  const std::vector<int64_t> own = OwnPartSizes(spec);
  std::vector<int64_t> sizes(own.size() * members);
  TEMPER_RETURN_IF_ERROR(gather.Gather(std::as_bytes(std::span(own)), std::as_writable_bytes(std::span(sizes))));
  TEMPER_ASSIGN_OR_RETURN(CollectivePlan plan, PlanCollective(spec, group.size(), sizes));
  if (spec.op == TrafficOp::kShift) return MakeMpiShift(context, MeetingLane(spec), group, std::move(plan));
  return std::unique_ptr<Kernel>(new MpiCollective(context, MeetingLane(spec), group, std::move(plan)));
}

}  // namespace temper
