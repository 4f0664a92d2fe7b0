#include "compile/residency.h"

#include <algorithm>

#include "compile/eviction.h"
#include "compile/fuse.h"
#include "compile/layout.h"
#include "graph/rule.h"
#include "program/program.h"

namespace temper {
namespace {

// Fetches are issued ahead by this many times what they and those before them take: estimates err.
constexpr double kAhead = 1.5;

// A node that reads or writes a value. Of nodes that do so twice, both.
struct Touch {
  int node = 0;
  bool reads = false, writes = false;
};

// A stretch of touches that one copy serves.
struct Window {
  ValueId root = kNoValue;
  Tier on = Tier::kDevice;
  int first = 0, last = 0;  // touches' nodes
  bool reads = false;       // what is at home is needed
  bool writes = false;
  bool writes_back = false;
  bool holds = false;  // room is there while what is written back is on its way
  int earliest = 0;    // node before which a fetch may stand at the earliest
  int issue = 0;       // and where it stands
};

class Residency {
 public:
  Residency(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec)
      : graph_(graph), parts_(parts), spec_(spec), part_begin_(graph.nodes().size(), 0), part_end_(part_begin_) {
    std::fill(part_end_.begin(), part_end_.end(), num_nodes());
    for (const PipelinePart& part : parts_) {
      for (size_t i = part.begin; i < part.end; ++i) {
        part_begin_[i] = static_cast<int>(part.begin);
        part_end_[i] = static_cast<int>(part.end);
      }
    }
    FindProcessors();
    FindTouches();
    FindHomes();
  }

  LeastBytes Least() {
    MeasureWorkingSets();
    LeastBytes least;
    const std::vector<Bytes>& used = used_[0];
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i] > least.bytes) least = {used[i], i};
    }
    return least;
  }

  PipelinedGraph Run() {
    MeasureWorkingSets();
    MakeWindows();
    IssueFetches();
    Rewrite();
    return {std::move(result_), std::move(result_parts_)};
  }

 private:
  static size_t At(ValueId id) { return static_cast<size_t>(id); }
  const Node& NodeAt(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  int num_nodes() const { return static_cast<int>(graph_.nodes().size()); }
  Bytes SizeOf(ValueId id) const { return AlignUp(graph_.value(id).type.bytes(), kAlignment); }

  Tier HomeByName(ValueId id) const {
    const auto it = spec_.homes->find(graph_.value(graph_.Root(id)).name);
    return it == spec_.homes->end() ? Tier::kDevice : it->second;
  }

  // States are updated where they are, by the host where that is not the device; so are sums over what lies there.
  void FindProcessors() {
    processor_.assign(graph_.nodes().size(), Tier::kDevice);
    bool all_on_host = true, sums_only = true;
    int clip = -1;
    std::vector<bool> is_sum(static_cast<size_t>(graph_.num_values()), false);
    for (int i = 0; i < num_nodes(); ++i) {
      const Node& node = NodeAt(i);
      if (node.op != Op::kAdamw && node.op != Op::kSumSquares && node.op != Op::kClip) continue;
      constexpr int kMoment = 2;  // of adamw's inputs
      if (node.op == Op::kClip) {
        clip = i;
        for (size_t k = 0; k + 1 < node.inputs.size(); ++k) sums_only &= is_sum[At(node.inputs[k])];
        continue;
      }
      const Tier home = HomeByName(node.inputs[node.op == Op::kAdamw ? kMoment : 0]);
      if (home != Tier::kDevice) processor_[static_cast<size_t>(i)] = Tier::kHost;
      if (node.op == Op::kAdamw) all_on_host &= home != Tier::kDevice;
      if (node.op == Op::kSumSquares) is_sum[At(node.outputs[0])] = true;
    }
    if (clip >= 0 && all_on_host && sums_only) processor_[static_cast<size_t>(clip)] = Tier::kHost;
  }

  void FindTouches() {
    touches_.resize(static_cast<size_t>(graph_.num_values()));
    for (int i = 0; i < num_nodes(); ++i) {
      const auto touch = [&](ValueId id, bool writes) {
        std::vector<Touch>& list = touches_[At(graph_.Root(id))];
        if (list.empty() || list.back().node != i) list.push_back({i});
        (writes ? list.back().writes : list.back().reads) = true;
      };
      for (ValueId id : NodeAt(i).inputs) touch(id, false);
      for (ValueId id : NodeAt(i).outputs) touch(id, true);
    }
  }

  Tier ProcessorOf(const Touch& touch) const { return processor_[static_cast<size_t>(touch.node)]; }

  void FindHomes() {
    home_.assign(touches_.size(), Tier::kDevice);
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      const std::vector<Touch>& touches = touches_[At(id)];
      if (graph_.Root(id) != id) continue;
      switch (graph_.value(id).role) {
        case Role::kWeight:
        case Role::kAdapter:
        case Role::kGradient:
        case Role::kOptimizerState:
          home_[At(id)] = HomeByName(id);
          break;
        case Role::kActivation:
        case Role::kOutput:
          if (!touches.empty()) home_[At(id)] = ProcessorOf(touches[0]);
          break;
        case Role::kInput:
        case Role::kConstant:
        case Role::kCache:
          if (!touches.empty() && std::all_of(touches.begin(), touches.end(),
                                              [&](const Touch& t) { return ProcessorOf(t) == Tier::kHost; }))
            home_[At(id)] = Tier::kHost;
          break;
      }
      if (!touches.empty() && Leaves(id)) home_[At(id)] = Tier::kHost;
    }
  }

  bool SamePart(int a, int b) const {
    return part_begin_[static_cast<size_t>(a)] == part_begin_[static_cast<size_t>(b)];
  }
  // An activation that lies in a slot, if it is on the device: it is there from one part to another, or is on its way
  // between stages beside other parts.
  bool IsInSlot(ValueId id) const {
    const std::vector<Touch>& touches = touches_[At(id)];
    return !SamePart(touches.front().node, touches.back().node) || IsTransferred(id);
  }
  bool IsTransferred(ValueId id) const {
    const std::vector<Touch>& touches = touches_[At(id)];
    return std::any_of(touches.begin(), touches.end(), [&](const Touch& t) {
      return IsTransfer(NodeAt(t.node).op) && NodeAt(t.node).phase != Phase::kUpdate;
    });
  }

  // An activation that the backward pass comes back to. What stages give each other stays where it is received.
  bool Leaves(ValueId id) const {
    if (spec_.activations == Tier::kDevice || graph_.value(id).role != Role::kActivation || IsTransferred(id)) {
      return false;
    }
    const std::vector<Touch>& touches = touches_[At(id)];
    const auto phase = [&](const Touch& t) { return NodeAt(t.node).phase; };
    return std::all_of(touches.begin(), touches.end(),
                       [&](const Touch& t) { return ProcessorOf(t) == Tier::kDevice; }) &&
           phase(touches.front()) == Phase::kForward && phase(touches.back()) == Phase::kBackward;
  }

  bool IsAway(ValueId root) const {
    return std::any_of(touches_[At(root)].begin(), touches_[At(root)].end(),
                       [&](const Touch& t) { return ProcessorOf(t) != home_[At(root)]; });
  }

  // What is in each tier at each node when every copy is there for its touch alone. Persistent values at home are not
  // counted.
  void MeasureWorkingSets() {
    for (auto& used : used_) used.assign(graph_.nodes().size(), Bytes{});
    // An output that will overwrite an input begins when that ends.
    const Graph in_place = UpdateInPlace(graph_);
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      const std::vector<Touch>& touches = touches_[At(id)];
      if (graph_.Root(id) != id || touches.empty()) continue;
      if (IsAway(id)) {
        for (const Touch& t : touches) {
          if (ProcessorOf(t) != home_[At(id)]) UsedOn(ProcessorOf(t))[static_cast<size_t>(t.node)] += SizeOf(id);
        }
      }
      if (IsPersistent(graph_, id) || Leaves(id) || IsInSlot(id)) continue;
      const bool takes_over = in_place.value(id).updates != kNoValue;
      std::vector<Bytes>& used = UsedOn(home_[At(id)]);
      for (int i = touches.front().node + (takes_over ? 1 : 0); i <= touches.back().node; ++i) {
        used[static_cast<size_t>(i)] += SizeOf(id);
      }
    }
    // One stretch of scratch serves all kernels of a tier.
    std::array<Bytes, kNumTiers> workspace = {};
    for (int i = 0; i < num_nodes(); ++i) {
      Bytes& most = workspace[static_cast<size_t>(processor_[static_cast<size_t>(i)])];
      most = std::max(most, AlignUp(WorkspaceOf(graph_, NodeAt(i), spec_.threads), kAlignment));
    }
    for (size_t tier = 0; tier < kNumTiers; ++tier) {
      for (Bytes& used : used_[tier]) used += workspace[tier];
    }
  }
  std::vector<Bytes>& UsedOn(Tier tier) { return used_[static_cast<size_t>(tier)]; }

  // Between touch k of a root and the next: whether a copy may stay, and what dropping it costs.
  struct Between {
    ValueId root;
    size_t touch;
  };

  void MakeWindows() {
    std::vector<Gap> gaps;
    std::vector<Between> betweens;
    for (ValueId root = 0; root < graph_.num_values(); ++root) {
      if (graph_.Root(root) != root || touches_[At(root)].empty() || !IsAway(root)) continue;
      FindGaps(root, &gaps, &betweens);
    }
    std::vector<bool> chosen(gaps.size(), false);
    if (spec_.keep) chosen = ChooseKept(gaps, UsedOn(Tier::kDevice), spec_.device);
    std::map<std::pair<ValueId, size_t>, bool> kept;
    for (size_t k = 0; k < gaps.size(); ++k) {
      const bool next_to_each_other = gaps[k].end == gaps[k].begin + 1;
      const bool keep = (chosen[k] || next_to_each_other) && !MustLeave(betweens[k].root, gaps[k]);
      kept[{betweens[k].root, betweens[k].touch}] = keep;
      if (!keep) continue;
      for (int i = gaps[k].begin + 1; i < gaps[k].end; ++i) {
        UsedOn(Tier::kDevice)[static_cast<size_t>(i)] += gaps[k].size;
      }
    }
    for (ValueId root = 0; root < graph_.num_values(); ++root) {
      if (graph_.Root(root) == root && !touches_[At(root)].empty() && IsAway(root)) CutWindows(root, kept);
    }
    std::stable_sort(windows_.begin(), windows_.end(),
                     [](const Window& a, const Window& b) { return a.first < b.first; });
    for (Window& w : windows_) {
      if (w.writes_back) w.holds = Reserve(w, w.last + 1, EndOfNextSegment(w.last));
    }
  }

  // An activation between the forward and the backward pass, where an option says that it waits at the host.
  bool MustLeave(ValueId root, const Gap& gap) const {
    return spec_.activations == Tier::kHost && Leaves(root) && NodeAt(gap.begin).phase == Phase::kForward &&
           NodeAt(gap.end).phase == Phase::kBackward;
  }

  // What moves in the background reads stays until then (compile/layout.cc).
  int EndOfNextSegment(int node) const {
    const int limit = part_end_[static_cast<size_t>(node)];
    const auto end_of = [&](int i) {
      int end = i + 1;
      while (end < limit && NodeAt(end).phase == NodeAt(i).phase && NodeAt(end).block == NodeAt(i).block) ++end;
      return end;
    };
    const int own = end_of(node);
    return own < limit ? end_of(own) : own;
  }

  // On the device only: copies on the host are there for a moment, or small.
  void FindGaps(ValueId root, std::vector<Gap>* gaps, std::vector<Between>* betweens) const {
    const std::vector<Touch>& touches = touches_[At(root)];
    bool written = false;
    for (size_t k = 0; k + 1 < touches.size(); ++k) {
      const Touch &here = touches[k], &next = touches[k + 1];
      written |= here.writes;
      if (ProcessorOf(here) != Tier::kDevice || ProcessorOf(next) != Tier::kDevice ||
          home_[At(root)] == Tier::kDevice || !SamePart(here.node, next.node)) {
        written = false;
        continue;
      }
      const Tier home = home_[At(root)];
      Seconds reload{};
      if (next.reads) reload += spec_.links.SecondsOf(home, Tier::kDevice, SizeOf(root));
      const bool only_here = !IsPersistent(graph_, root);
      const bool again = std::any_of(touches.begin() + static_cast<std::ptrdiff_t>(k) + 1, touches.end(),
                                     [](const Touch& t) { return t.writes; });
      if (written && (only_here || again)) reload += spec_.links.SecondsOf(Tier::kDevice, home, SizeOf(root));
      gaps->push_back({here.node, next.node, SizeOf(root), reload});
      betweens->push_back({root, k});
    }
  }

  void CutWindows(ValueId root, const std::map<std::pair<ValueId, size_t>, bool>& kept) {
    const std::vector<Touch>& touches = touches_[At(root)];
    const Tier home = home_[At(root)];
    std::vector<Window> of_root;
    bool open = false;
    int home_since = 0;  // what is at home is there from this node on
    for (size_t k = 0; k < touches.size(); ++k) {
      const Touch& touch = touches[k];
      const Tier on = ProcessorOf(touch);
      if (on == home) {
        if (open && (of_root.back().writes || touch.writes)) open = false;
        if (touch.writes) home_since = touch.node + 1;
        continue;
      }
      if (open && of_root.back().on == on) {
        const auto gap = kept.find({root, k - 1});
        const bool stays = gap != kept.end() ? gap->second : home == Tier::kDevice;
        open = stays && SamePart(of_root.back().last, touch.node);
      } else {
        open = false;
      }
      if (!open) {
        if (!of_root.empty() && of_root.back().writes) home_since = std::max(home_since, of_root.back().last + 1);
        of_root.push_back({.root = root,
                           .on = on,
                           .first = touch.node,
                           .reads = touch.reads,
                           .earliest = std::max(home_since, part_begin_[static_cast<size_t>(touch.node)])});
        open = true;
      }
      of_root.back().last = touch.node;
      of_root.back().writes |= touch.writes;
    }
    // An activation is written back where another window, or a kernel at home, needs it.
    for (size_t w = 0; w < of_root.size(); ++w) {
      const bool needed_later = touches.back().node > of_root[w].last;
      of_root[w].writes_back = of_root[w].writes && (IsPersistent(graph_, root) || needed_later);
      windows_.push_back(of_root[w]);
    }
  }

  // Walks the graph as the executor would, with a queue per link, and issues the next fetches when they must be on
  // their way or the link is idle, where there is room until they are needed.
  void IssueFetches() {
    std::vector<Seconds> starts(graph_.nodes().size() + 1);
    for (int i = 0; i < num_nodes(); ++i) {
      const Node& node = NodeAt(i);
      Seconds takes{};
      if (!IsCollective(node.op)) {
        takes = spec_.rates
                    ->SecondsOf(node.op, TypesOf(graph_, node.inputs), TypesOf(graph_, node.outputs), node.attributes)
                    .total();
      }
      starts[static_cast<size_t>(i) + 1] = starts[static_cast<size_t>(i)] + takes;
    }
    std::map<std::pair<Tier, Tier>, std::vector<Window*>> queues;
    for (Window& w : windows_) {
      w.issue = w.first;
      if (w.reads) queues[{home_[At(w.root)], w.on}].push_back(&w);
    }
    for (auto& [link, queue] : queues) {
      Seconds stalled{};  // by how much the walk is behind `starts`
      Seconds free_at{};  // when the link has done what it was given
      size_t next = 0;
      for (int i = 0; i < num_nodes() && next < queue.size(); ++i) {
        for (; next < queue.size(); ++next) {
          const Seconds now = starts[static_cast<size_t>(i)] + stalled;
          Window& w = *queue[next];
          const Seconds takes = spec_.links.SecondsOf(link.first, link.second, SizeOf(w.root));
          const Seconds begins = std::max(now, free_at);
          const double until_needed = (starts[static_cast<size_t>(w.first)] + stalled).v - now.v;
          const bool due = until_needed <= kAhead * (begins.v + takes.v - now.v) || w.first <= i;
          if (!due || w.earliest > i || (w.first > i && !Reserve(w, i, w.first))) break;
          w.issue = std::min(i, w.first);
          free_at = begins + takes;
          if (w.first <= i) stalled += Seconds{std::max(0.0, free_at.v - now.v)};
        }
      }
    }
  }

  // Takes room for a copy at nodes [begin, end), where there is so much.
  bool Reserve(const Window& w, int begin, int end) {
    std::vector<Bytes>& used = UsedOn(w.on);
    const Bytes limit = w.on == Tier::kDevice ? spec_.device : spec_.host;
    for (int k = begin; k < end; ++k) {
      if (used[static_cast<size_t>(k)] + SizeOf(w.root) > limit) return false;
    }
    for (int k = begin; k < end; ++k) used[static_cast<size_t>(k)] += SizeOf(w.root);
    return true;
  }

  void Rewrite() {
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      result_.AddValue(graph_.value(id));
      result_.value(id).tier = home_[At(graph_.Root(id))];
    }
    std::vector<std::vector<Window*>> issued(graph_.nodes().size()), begun = issued, ended = issued;
    for (Window& w : windows_) {
      if (w.reads) issued[static_cast<size_t>(w.issue)].push_back(&w);
      begun[static_cast<size_t>(w.first)].push_back(&w);
      ended[static_cast<size_t>(w.last)].push_back(&w);
    }
    at_home_.assign(touches_.size(), kNoValue);
    for (ValueId id = 0; id < graph_.num_values(); ++id) {
      // Sources are at home from the start; what nodes make, once they have.
      if (graph_.Root(id) == id && !touches_[At(id)].empty() && !MadeByItsFirstTouch(id)) at_home_[At(id)] = id;
    }
    std::map<const Window*, ValueId> fetched;
    std::map<ValueId, const Window*> open;                 // by root
    std::map<ValueId, ValueId> copy;                       // of roots with an open window: what it holds now
    std::vector<size_t> begin(graph_.nodes().size() + 1);  // per node: where in the result it and its moves begin
    for (int i = 0; i < num_nodes(); ++i) {
      const auto n = static_cast<size_t>(i);
      begin[n] = result_.nodes().size();
      for (const Window* w : issued[n]) fetched[w] = Copy(at_home_[At(w->root)], w->root, w->on, NodeAt(i));
      for (const Window* w : begun[n]) {
        open[w->root] = w;
        copy[w->root] = w->reads ? fetched.at(w) : kNoValue;
      }
      AddNode(NodeAt(i), processor_[n], open, &copy);
      for (const Window* w : ended[n]) {
        if (w->writes_back) WriteBack(*w, copy.at(w->root), NodeAt(i));
        open.erase(w->root);
        copy.erase(w->root);
      }
    }
    begin.back() = result_.nodes().size();
    for (const PipelinePart& part : parts_) {
      result_parts_.push_back({part.kind, part.chunk, begin[part.begin], begin[part.end]});
    }
  }

  bool MadeByItsFirstTouch(ValueId root) const {
    const Node& node = NodeAt(touches_[At(root)].front().node);
    return std::find(node.outputs.begin(), node.outputs.end(), root) != node.outputs.end();
  }

  // A copy of `from` on `tier`, made by a node in the phase and block of `place`.
  ValueId Copy(ValueId from, ValueId root, Tier tier, const Node& place) {
    TEMPER_CHECK(from != kNoValue) << graph_.value(root).name << " is fetched before it is there";
    const ValueId to =
        result_.AddValue({.name = graph_.value(root).name, .type = graph_.value(root).type, .tier = tier});
    AddMove(from, to, /*background=*/true, place);
    return to;
  }

  void AddMove(ValueId from, ValueId to, bool background, const Node& place) {
    result_.AddNode({.op = result_.value(to).tier < result_.value(from).tier ? Op::kFetch : Op::kEvict,
                     .inputs = {from},
                     .outputs = {to},
                     .attributes = background ? Attributes{{"background", int64_t{1}}} : Attributes(),
                     .block = place.block,
                     .phase = place.phase});
  }

  void AddNode(Node node, Tier processor, const std::map<ValueId, const Window*>& open,
               std::map<ValueId, ValueId>* copy) {
    const auto window_of = [&](ValueId root) -> const Window* {
      const auto it = open.find(root);
      return it != open.end() && it->second->on == processor ? it->second : nullptr;
    };
    for (ValueId& id : node.inputs) {
      const ValueId root = graph_.Root(id);
      if (window_of(root) != nullptr) {
        id = copy->at(root);
      } else if (at_home_[At(root)] != kNoValue) {
        id = at_home_[At(root)];
      }
    }
    for (ValueId& id : node.outputs) {
      const ValueId root = graph_.Root(id), updated = graph_.value(id).updates;
      if (window_of(root) == nullptr) {
        if (updated != kNoValue) result_.value(id).updates = at_home_[At(root)];
        at_home_[At(root)] = id;
        continue;
      }
      last_made_[root] = id;
      result_.value(id).updates = kNoValue;  // it stands at home if it is written back
      const Value& value = graph_.value(id);
      const ValueId fresh = result_.AddValue({.name = value.name,
                                              .type = value.type,
                                              .tier = processor,
                                              .updates = updated != kNoValue ? copy->at(root) : kNoValue});
      (*copy)[root] = fresh;
      id = fresh;
    }
    result_.AddNode(std::move(node));
  }

  // The value that the window's last write made in the given graph is what stands at home from here on.
  void WriteBack(const Window& w, ValueId from, const Node& place) {
    const ValueId made = last_made_.at(w.root);
    Value& value = result_.value(made);
    value.updates = at_home_[At(w.root)];
    if (value.updates == kNoValue) {
      value = graph_.value(w.root);
      value.updates = kNoValue;
      value.tier = home_[At(w.root)];
    }
    AddMove(from, made, w.holds, place);
    at_home_[At(w.root)] = made;
  }

  const Graph& graph_;
  const std::vector<PipelinePart>& parts_;
  const ResidencySpec& spec_;
  std::vector<int> part_begin_, part_end_;          // per node: the nodes of its part
  std::vector<Tier> processor_;                     // per node: where it runs
  std::vector<std::vector<Touch>> touches_;         // per root
  std::vector<Tier> home_;                          // per root
  std::array<std::vector<Bytes>, kNumTiers> used_;  // per tier and node
  std::vector<Window> windows_;
  Graph result_;
  std::vector<PipelinePart> result_parts_;
  std::vector<ValueId> at_home_;          // per root: the value of the result that stands at home
  std::map<ValueId, ValueId> last_made_;  // per root: the value of the given graph that was made last
};

}  // namespace

Seconds LinkRates::SecondsOf(Tier from, Tier to, Bytes bytes) const {
  const bool disk = from == Tier::kDisk || to == Tier::kDisk;
  const bool towards_device = to < from;
  const double rate = disk             ? (towards_device ? disk_read : disk_write)
                      : towards_device ? host_to_device
                                       : device_to_host;
  return latency + Seconds{static_cast<double>(bytes.v) / rate};
}

LeastBytes LeastOnDevice(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec) {
  return Residency(graph, parts, spec).Least();
}

PipelinedGraph Reside(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec) {
  return Residency(graph, parts, spec).Run();
}

}  // namespace temper
