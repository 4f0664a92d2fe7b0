#include "compile/mesh/verify_agreement.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph/rule.h"
#include "graph/traffic_ops.h"
#include "program/waits.h"

namespace temper {
namespace {

// One collective of one rank.
struct Meeting {
  const std::vector<int>* group;  // ranks, ascending
  std::string what;               // description with its lane; must be the same on all of them
  std::vector<int64_t>
      parts;  // per tensor: rows that this rank contributes or receives; those of all ranks make up the whole
  std::vector<int64_t> wholes;
  const Segment* segment;
  int block, micro_batch;
};

// The transfers of a rank, by peer, in order. Each text must be the same at both ends.
struct Transfers {
  std::map<int, std::vector<std::string>> sent, received;
};

Transfers TransfersOf(const Mesh& mesh, int rank, const Program& program) {
  Transfers transfers;
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const Binding& binding = program.bindings[static_cast<size_t>(call.binding)];
    const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
    for (const Instruction& i : segment.instructions) {
      if (!IsTransfer(i.op)) continue;
      const bool sends = i.op == TrafficOp::kSend;
      const auto operand = static_cast<size_t>(sends ? i.inputs[0] : i.outputs[0]);
      const AxisSet axes = *AxisSet::Parse(i.attributes.String("axes"));
      const int peer = mesh.Group(axes, rank)[static_cast<size_t>(i.attributes.Int("peer"))];
      (sends ? transfers.sent : transfers.received)[peer].push_back(
          fmt::format("tag {}, {}", i.attributes.Int("tag"), segment.operands[operand].ToString()));
    }
  }
  return transfers;
}

Status CheckTransfers(const Mesh& mesh, std::span<const Program* const> ranks) {
  std::vector<Transfers> of;
  for (size_t r = 0; r < ranks.size(); ++r) of.push_back(TransfersOf(mesh, static_cast<int>(r), *ranks[r]));
  for (int from = 0; from < mesh.ranks(); ++from) {
    for (int to = 0; to < mesh.ranks(); ++to) {
      const auto& sent = of[static_cast<size_t>(from)].sent[to];
      const auto& received = of[static_cast<size_t>(to)].received[from];
      if (sent == received) continue;
      size_t k = 0;
      while (k < sent.size() && k < received.size() && sent[k] == received[k]) ++k;
      const auto at = [k](const std::vector<std::string>& list) { return k < list.size() ? list[k] : "nothing"; };
      return Corrupt(fmt::format("transfer {} from rank {} to rank {}: the first sends {}, the second takes {}", k + 1,
                                 from, to, at(sent), at(received)));
    }
  }
  return OkStatus();
}

// All collectives of a rank, in order.
class Itinerary {
 public:
  Itinerary(const Mesh& mesh, int rank, const Program& program) : mesh_(mesh), rank_(rank) {
    for (const Call& call : program.schedule) {
      if (call.kind != Call::Kind::kRun) continue;
      const Binding& binding = program.bindings[static_cast<size_t>(call.binding)];
      const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
      for (const Instruction& instruction : segment.instructions) {
        if (!Meets(instruction)) continue;
        Add(instruction, segment, binding, call.micro_batch);
      }
    }
  }
  bool done() const { return at_ == meetings_.size(); }
  const Meeting& next() const { return meetings_[at_]; }
  void Advance() { ++at_; }
  std::string Where() const {
    if (done()) return fmt::format("rank {} has finished", rank_);
    const Meeting& m = next();
    return fmt::format("rank {} reaches {} ({}, {}, micro-batch {})", rank_, m.what, m.segment->name,
                       NameOfBlock(m.block), m.micro_batch);
  }

 private:
  // A broadcast is no meeting: each rank copies its own value. CheckTransfers handles transfers.
  static bool Meets(const Instruction& i) {
    if (IsCollective(i.op)) return !IsTransfer(i.op) && i.op != TrafficOp::kBroadcast;
    return ExchangesInside(i.op) && i.attributes.Has("axes");
  }
  // Whether the kernel of an op itself sums outputs over the ranks of a group.
  static bool ExchangesInside(Op op) {
    const FlowRule* const flow = RuleOf(op).flow;
    return flow != nullptr &&
           std::any_of(flow->out.begin(), flow->out.end(), [](const FlowOutput& o) { return o.exchanged; });
  }

  void Add(const Instruction& instruction, const Segment& segment, const Binding& binding, int micro_batch) {
    const Attributes& a = instruction.attributes;
    const AxisSet axes = *AxisSet::Parse(a.String("axes"));
    auto group = groups_.find(axes);
    if (group == groups_.end()) group = groups_.emplace(axes, mesh_.Group(axes, rank_)).first;
    Meeting m{.group = &group->second,
              .what = fmt::format("{} over {}", ToString(instruction.op), axes.ToString()),
              .segment = &segment,
              .block = binding.block,
              .micro_batch = micro_batch};
    if (a.Flag("background")) m.what += fmt::format(" in lane '{}'", kQueueOfLane[LaneOf(instruction, binding)]);
    const auto type = [&](int k) { return segment.operands[static_cast<size_t>(k)]; };
    if (!IsCollective(instruction.op)) {
      m.what += " " + type(instruction.inputs[0]).ToString();
    } else {
      const bool cut = a.Has("dim");
      const bool gathers = instruction.op == TrafficOp::kAllGather;
      if (cut) m.what += fmt::format(" along dim {}", a.Int("dim"));
      for (size_t i = 0; i < instruction.outputs.size(); ++i) {
        const TensorType in = type(instruction.inputs[i]), out = type(instruction.outputs[i]);
        const TensorType whole = gathers ? out : in;
        m.what += " " + whole.ToString();
        if (!cut) continue;
        const int dim = static_cast<int>(a.Int("dim"));
        m.parts.push_back((gathers ? in : out).shape[dim]);
        m.wholes.push_back(whole.shape[dim]);
      }
    }
    meetings_.push_back(std::move(m));
  }

  const Mesh& mesh_;
  const int rank_;
  std::map<AxisSet, std::vector<int>> groups_;
  std::vector<Meeting> meetings_;
  size_t at_ = 0;
};

class Walk {
 public:
  Walk(const Mesh& mesh, std::span<const Program* const> ranks) {
    TEMPER_CHECK(static_cast<int>(ranks.size()) == mesh.ranks()) << ranks.size() << " programs";
    at_.reserve(ranks.size());
    for (size_t r = 0; r < ranks.size(); ++r) at_.emplace_back(mesh, static_cast<int>(r), *ranks[r]);
  }

  // Completes every meeting that all ranks of the group have reached, until all ranks have ended or none can continue.
  Status Run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Itinerary& rank : at_) {
        while (!rank.done() && AllHere(rank.next())) {
          TEMPER_RETURN_IF_ERROR(CheckParts(rank.next()));
          const std::vector<int>& group = *rank.next().group;
          for (const int m : group) Of(m).Advance();
          moved = true;
        }
      }
    }
    for (const Itinerary& rank : at_) {
      if (!rank.done()) return Stuck(rank.next());
    }
    return OkStatus();
  }

 private:
  Itinerary& Of(int rank) { return at_[static_cast<size_t>(rank)]; }

  bool AllHere(const Meeting& meeting) {
    for (const int m : *meeting.group) {
      const bool here = !Of(m).done() && Of(m).next().what == meeting.what && *Of(m).next().group == *meeting.group;
      if (!here) return false;
    }
    return true;
  }

  Status CheckParts(const Meeting& meeting) {
    for (size_t t = 0; t < meeting.wholes.size(); ++t) {
      int64_t sum = 0;
      for (const int m : *meeting.group) sum += Of(m).next().parts[t];
      if (sum == meeting.wholes[t]) continue;
      std::string parts;
      for (const int m : *meeting.group) parts += fmt::format(" rank {} has {};", m, Of(m).next().parts[t]);
      return Corrupt(fmt::format("the parts of tensor {} do not make its {} rows:{} {}", t, meeting.wholes[t], parts,
                                 Of(meeting.group->front()).Where()));
    }
    return OkStatus();
  }

  Status Stuck(const Meeting& meeting) {
    for (const int m : *meeting.group) {
      if (!Of(m).done() && Of(m).next().what == meeting.what) continue;
      return Corrupt(fmt::format("ranks do not meet: {}, while {}", Of(m).Where(), WhoIsAt(meeting)));
    }
    return Corrupt("ranks do not meet: they wait for each other in different groups: " + WhoIsAt(meeting));
  }
  std::string WhoIsAt(const Meeting& meeting) {
    for (const int m : *meeting.group) {
      if (!Of(m).done() && &Of(m).next() == &meeting) return Of(m).Where();
    }
    return meeting.what;
  }

  std::vector<Itinerary> at_;
};

}  // namespace

Status VerifyAgreement(const Mesh& mesh, std::span<const Program* const> ranks) {
  TEMPER_RETURN_IF_ERROR(Walk(mesh, ranks).Run());
  return CheckTransfers(mesh, ranks);
}

}  // namespace temper
