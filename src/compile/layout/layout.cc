#include "compile/layout/layout.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "graph/traffic_ops.h"
#include "program/program.h"

namespace temper {
namespace {

// Per node: the last node during which it may still run. The operands and scratch of a background node stay until the
// segment after its own has ended, or until a node waits for its result, if that is earlier. (A background node that
// reads the result of another also waits for it, even if a disk's lane runs two at once; see FindWaits, which goes by
// bytes.) All this within its part, whose memory the next part reuses.
std::vector<int> EndsOfNodes(const Timeline& timeline, const std::vector<PipelinePart>& parts) {
  const auto& nodes = timeline.nodes();
  std::vector<int> ends(nodes.size());
  std::iota(ends.begin(), ends.end(), 0);
  // From the last node backward: the end of each node's segment, and the next reader of each value.
  std::vector<size_t> segment_ends(nodes.size()), takers(static_cast<size_t>(timeline.num_values()), nodes.size());
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    for (size_t i = part->end; i-- > part->begin;) {
      const bool last =
          i + 1 == part->end || nodes[i + 1].phase != nodes[i].phase || nodes[i + 1].block != nodes[i].block;
      const size_t own = segment_ends[i] = last ? i + 1 : segment_ends[i + 1];
      // Kernels run one after the other.
      if (nodes[i].is_beside) {
        size_t end = own < part->end ? segment_ends[own] : own;
        for (const ValueId id : timeline.OutputsOf(nodes[i])) end = std::min(end, takers[static_cast<size_t>(id)]);
        ends[i] = static_cast<int>(end) - 1;
      }
      for (const ValueId id : timeline.InputsOf(nodes[i])) takers[static_cast<size_t>(id)] = i;
    }
  }
  return ends;
}

class LayoutMaker {
 public:
  LayoutMaker(const Timeline& timeline, const std::vector<PipelinePart>& parts, std::span<const ValueId> lasting,
              const PackingGoals& goals)
      : timeline_(timeline),
        nodes_(timeline.nodes()),
        parts_(parts),
        goals_(goals),
        ends_(EndsOfNodes(timeline, parts)),
        roots_(timeline.Roots()) {
    lasts_.assign(static_cast<size_t>(timeline.num_values()), false);
    for (const ValueId id : lasting) lasts_[At(id)] = true;
  }

  Layout Run() {
    layout_.home.resize(static_cast<size_t>(timeline_.num_values()));
    layout_.scratch.resize(nodes_.size());
    begin_.assign(static_cast<size_t>(timeline_.num_values()), -1);
    end_ = begin_;
    sent_.assign(begin_.size(), false);
    for (const PipelinePart& part : parts_) {
      for (size_t i = part.begin; i < part.end; ++i) part_of_.push_back(static_cast<int>(&part - parts_.data()));
    }
    TEMPER_CHECK(part_of_.size() == nodes_.size()) << "parts of " << part_of_.size() << " nodes";
    FindLifetimes();
    FindStaged();
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      PackTemporaries(tier);
      FindPeak(tier);
      PackSlots(tier);
    }
    return std::move(layout_);
  }

 private:
  static size_t At(ValueId id) { return static_cast<size_t>(id); }
  ValueId RootOf(ValueId id) const { return roots_[At(id)]; }
  const PipelinePart& PartAt(int node) const {
    return parts_[static_cast<size_t>(part_of_[static_cast<size_t>(node)])];
  }

  void FindLifetimes() {
    for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
      const Timeline::Node& node = nodes_[static_cast<size_t>(i)];
      // Values of transfers (in separate parts, or sent by a part that has ended) are in transit while other parts
      // run. An update has no other parts.
      const bool sends = IsTransfer(node.op) && node.phase != Phase::kUpdate;
      const auto touch = [&](ValueId id, int end) {
        const size_t root = At(RootOf(id));
        if (begin_[root] < 0) begin_[root] = i;
        end_[root] = std::max(end_[root], end);
        sent_[root] = sent_[root] || sends;
      };
      for (const ValueId id : timeline_.InputsOf(node)) touch(id, ends_[static_cast<size_t>(i)]);
      for (const ValueId id : timeline_.OutputsOf(node)) touch(id, i);
    }
    for (size_t root = 0; root < end_.size(); ++root) {
      if (lasts_[root]) end_[root] = static_cast<int>(nodes_.size()) - 1;
    }
  }

  // Marks copies of values, or parts of values, of other tiers, and values that will be written back.
  void FindStaged() {
    staged_.assign(begin_.size(), false);
    const auto lives = [&](ValueId root) {
      return timeline_.value(root).role != Role::kActivation || lasts_[At(root)];
    };
    for (const Timeline::Node& node : nodes_) {
      if (!IsMove(node.op)) continue;
      const ValueId from = RootOf(timeline_.InputsOf(node)[0]), to = RootOf(timeline_.OutputsOf(node)[0]);
      if (node.op == TrafficOp::kFetch || lives(from)) staged_[At(to)] = true;
      if (lives(to)) staged_[At(from)] = true;
    }
  }

  bool IsActivation(ValueId id) const {
    return RootOf(id) == id && timeline_.value(id).role == Role::kActivation && begin_[At(id)] >= 0;
  }
  bool IsTemporary(ValueId id) const { return !sent_[At(id)] && &PartAt(begin_[At(id)]) == &PartAt(end_[At(id)]); }
  Interval IntervalOf(ValueId id) const {
    return {begin_[At(id)], end_[At(id)], AlignUp(timeline_.value(id).bytes, kAlignment), {}};
  }

  // Parts never run at the same time, so one packing serves all.
  void PackTemporaries(Tier tier) {
    std::vector<Interval> intervals;
    std::vector<ValueId> owners;
    std::vector<size_t> nodes;  // with scratch: their intervals follow those of the owners
    for (auto* change : {&live_change_, &staged_change_, &lasting_change_, &scratch_change_})
      change->assign(nodes_.size() + 1, 0);
    const auto count = [&](std::vector<int64_t>* change) {
      (*change)[static_cast<size_t>(intervals.back().begin)] += intervals.back().size.v;
      (*change)[static_cast<size_t>(intervals.back().end) + 1] -= intervals.back().size.v;
    };
    for (ValueId id = 0; id < timeline_.num_values(); ++id) {
      if (!IsActivation(id) || !IsTemporary(id) || timeline_.value(id).tier != tier) continue;
      intervals.push_back(IntervalOf(id));
      owners.push_back(id);
      count(lasts_[At(id)] ? &lasting_change_ : staged_[At(id)] ? &staged_change_ : &live_change_);
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Bytes size = nodes_[i].tier == tier ? nodes_[i].scratch : Bytes{};
      if (size.v == 0) continue;
      intervals.push_back({static_cast<int>(i), ends_[i], AlignUp(size, kAlignment), {}});
      nodes.push_back(i);
      count(&scratch_change_);
    }
    const auto t = static_cast<size_t>(tier);
    layout_.tiers[t].span = PackIntervals(intervals, goals_[t]);
    for (size_t k = 0; k < owners.size(); ++k) layout_.home[At(owners[k])].offset = intervals[k].offset;
    for (size_t k = 0; k < nodes.size(); ++k) layout_.scratch[nodes[k]] = intervals[owners.size() + k].offset;
  }

  void PackSlots(Tier tier) {
    SlotSizes& sizes = layout_.tiers[static_cast<size_t>(tier)].slots;
    std::map<int, int> last;  // per chunk: its last node
    for (const PipelinePart& part : parts_) {
      if (part.begin < part.end) last[part.chunk] = static_cast<int>(part.end) - 1;
      sizes.resize(std::max(sizes.size(), static_cast<size_t>(part.chunk) + 1));
    }
    std::map<std::pair<int, SlotKind>, std::pair<std::vector<Interval>, std::vector<ValueId>>> groups;
    for (ValueId id = 0; id < timeline_.num_values(); ++id) {
      if (!IsActivation(id) || IsTemporary(id) || timeline_.value(id).tier != tier) continue;
      const PipelinePart& part = PartAt(begin_[At(id)]);
      const SlotKind kind = part.kind == PartKind::kReceiveForward    ? SlotKind::kReceivedForward
                            : part.kind == PartKind::kReceiveBackward ? SlotKind::kReceivedBackward
                                                                      : SlotKind::kKept;
      auto& [intervals, owners] = groups[{part.chunk, kind}];
      intervals.push_back(IntervalOf(id));
      if (sent_[At(id)]) intervals.back().end = last.at(part.chunk);
      owners.push_back(id);
      layout_.home[At(id)] = {part.chunk, kind, {}};
    }
    for (auto& [key, group] : groups) {
      auto& [intervals, owners] = group;
      sizes[static_cast<size_t>(key.first)][static_cast<size_t>(key.second)] = PackIntervals(intervals);
      for (size_t k = 0; k < owners.size(); ++k) layout_.home[At(owners[k])].offset = intervals[k].offset;
    }
  }

  void FindPeak(Tier tier) {
    TierLayout& layout = layout_.tiers[static_cast<size_t>(tier)];
    Bytes live{}, staged{}, lasting{}, scratch{};
    for (size_t i = 0; i < nodes_.size(); ++i) {
      live += Bytes{live_change_[i]};
      staged += Bytes{staged_change_[i]};
      lasting += Bytes{lasting_change_[i]};
      scratch += Bytes{scratch_change_[i]};
      if (live + staged + lasting + scratch > layout.peak_live) {
        layout.peak_live = live + staged + lasting + scratch;
        layout.peak_activations = live;
        layout.peak_staged = staged;
        layout.peak_gradients = lasting;
        layout.peak_node = i;
      }
    }
  }

  const Timeline& timeline_;
  const std::vector<Timeline::Node>& nodes_;
  const std::vector<PipelinePart>& parts_;
  const PackingGoals goals_;
  const std::vector<int> ends_;       // per node
  const std::vector<ValueId> roots_;  // per value
  Layout layout_;
  std::vector<int> part_of_;      // per node
  std::vector<int> begin_, end_;  // per root: the nodes that first and last touch it
  std::vector<bool> sent_;        // per root
  std::vector<bool> staged_;      // per root
  std::vector<bool> lasts_;       // per root
  // Per node, the change in bytes of a tier's temporaries: of values
  // that are no copies, of copies, of values that last, and of scratch.
  std::vector<int64_t> live_change_, staged_change_, lasting_change_, scratch_change_;
};

}  // namespace

bool IsPersistent(const Graph& graph, ValueId id) {
  return graph.value(graph.Root(id)).role != Role::kActivation;
}

std::vector<ValueId> RootsOf(const Graph& graph) {
  std::vector<ValueId> updates;
  updates.reserve(static_cast<size_t>(graph.num_values()));
  for (ValueId id = 0; id < graph.num_values(); ++id) updates.push_back(graph.value(id).updates);
  return RootsOf(updates);
}

Layout LayOut(const Timeline& timeline, const std::vector<PipelinePart>& parts, std::span<const ValueId> lasting,
              const PackingGoals& goals) {
  const std::vector<PipelinePart> whole = {{.begin = 0, .end = timeline.nodes().size()}};
  return LayoutMaker(timeline, parts.empty() ? whole : parts, lasting, goals).Run();
}

Layout LayOut(const Graph& graph, const std::vector<PipelinePart>& parts, int threads, const PackingGoals& goals) {
  Timeline timeline(threads);
  timeline.Append(graph);
  return LayOut(timeline, parts, {}, goals);
}

}  // namespace temper
