#include "compile/residency/copies.h"

#include <algorithm>
#include <limits>
#include <map>
#include <span>

#include "compile/layout/layout.h"
#include "compile/residency/eviction.h"
#include "compile/residency/expert_rows.h"
#include "graph/ops/move_part.h"
#include "program/program.h"

namespace temper {
namespace {

// Fetches are issued ahead by this factor times the duration of them and those before them: estimates are inexact.
constexpr double kAhead = 1.5;

Bytes SizeOf(const Graph& graph, ValueId id) {
  return AlignUp(graph.value(id).type.bytes(), kAlignment);
}

class WindowCutter {
 public:
  WindowCutter(const Graph& graph, const Touches& touches, const ResidencySpec& spec, const NodeCosts& costs)
      : graph_(graph),
        touches_(touches),
        spec_(spec),
        starts_(costs.starts),
        used_(MeasureWorkingSets(graph, touches, spec, costs)) {}

  std::vector<Window> Run() {
    MakeWindows();
    IssueFetches();
    return std::move(windows_);
  }

 private:
  const Node& NodeAt(int i) const { return graph_.nodes()[static_cast<size_t>(i)]; }
  int num_nodes() const { return static_cast<int>(graph_.nodes().size()); }
  std::vector<Bytes>& UsedOn(Tier tier) { return used_[static_cast<size_t>(tier)]; }

  // Between touch k of a root and the next: whether a copy may stay, and the cost of dropping it.
  struct Between {
    ValueId root;
    size_t touch;
    bool kept = false;
  };

  void MakeWindows() {
    std::vector<Gap> gaps;
    std::vector<Between> betweens;
    for (ValueId root = 0; root < graph_.num_values(); ++root) {
      if (!touches_.IsTouched(root) || !touches_.IsAway(root)) continue;
      FindGaps(root, &gaps, &betweens);
    }
    std::vector<bool> chosen(gaps.size(), false);
    if (spec_.keep) chosen = ChooseKept(gaps, UsedOn(Tier::kDevice), spec_.device);
    for (size_t k = 0; k < gaps.size(); ++k) {
      const bool next_to_each_other = gaps[k].end == gaps[k].begin + 1;
      betweens[k].kept = (chosen[k] || next_to_each_other) && !MustLeave(betweens[k].root, gaps[k]);
      if (!betweens[k].kept) continue;
      for (int i = gaps[k].begin + 1; i < gaps[k].end; ++i) {
        UsedOn(Tier::kDevice)[static_cast<size_t>(i)] += gaps[k].size;
      }
    }
    auto between = betweens.cbegin();  // in the same order
    for (ValueId root = 0; root < graph_.num_values(); ++root) {
      if (touches_.IsTouched(root) && touches_.IsAway(root)) CutWindows(root, betweens.cend(), &between);
    }
    std::stable_sort(windows_.begin(), windows_.end(),
                     [](const Window& a, const Window& b) { return a.first < b.first; });
    for (Window& w : windows_) {
      if (w.writes_back) w.holds = Reserve(w, w.last + 1, EndOfNextSegment(w.last));
    }
  }

  // Whether the value is an activation between forward and backward that an option moves to the host.
  bool MustLeave(ValueId root, const Gap& gap) const {
    return spec_.activations == Tier::kHost && touches_.Leaves(root) && NodeAt(gap.begin).phase == Phase::kForward &&
           NodeAt(gap.end).phase == Phase::kBackward;
  }

  // Operands of background moves stay until then (compile/layout/layout.cc).
  int EndOfNextSegment(int node) const {
    const int limit = touches_.PartEnd(node);
    const auto end_of = [&](int i) {
      int end = i + 1;
      while (end < limit && NodeAt(end).phase == NodeAt(i).phase && NodeAt(end).block == NodeAt(i).block) ++end;
      return end;
    };
    const int own = end_of(node);
    return own < limit ? end_of(own) : own;
  }

  // Only on the device: copies on the host are short-lived or small.
  void FindGaps(ValueId root, std::vector<Gap>* gaps, std::vector<Between>* betweens) const {
    const std::span<const Touch> touches = touches_.Of(root);
    bool written = false;
    for (size_t k = 0; k + 1 < touches.size(); ++k) {
      const Touch &here = touches[k], &next = touches[k + 1];
      written |= here.writes;
      if (here.on != Tier::kDevice || next.on != Tier::kDevice || touches_.HomeOf(root) == Tier::kDevice ||
          !touches_.SamePart(here.node, next.node)) {
        written = false;
        continue;
      }
      const Tier home = touches_.HomeOf(root);
      Seconds reload{};
      if (next.reads) reload += spec_.links.SecondsOf(home, Tier::kDevice, SizeOf(graph_, root));
      const bool only_here = !IsPersistent(graph_, root);
      const bool again = std::any_of(touches.begin() + static_cast<std::ptrdiff_t>(k) + 1, touches.end(),
                                     [](const Touch& t) { return t.writes; });
      if (written && (only_here || again)) reload += spec_.links.SecondsOf(Tier::kDevice, home, SizeOf(graph_, root));
      gaps->push_back({here.node, next.node, SizeOf(graph_, root), reload});
      betweens->push_back({root, k});
    }
  }

  // `next`: the first that is not of a root before this one.
  void CutWindows(ValueId root, std::vector<Between>::const_iterator end, std::vector<Between>::const_iterator* next) {
    const std::span<const Touch> touches = touches_.Of(root);
    const Tier home = touches_.HomeOf(root);
    std::vector<Window> of_root;
    bool open = false;
    int home_since = 0;  // the value at home is valid from this node on
    for (size_t k = 0; k < touches.size(); ++k) {
      const Touch& touch = touches[k];
      const Tier on = touch.on;
      bool stays = home == Tier::kDevice;  // the copy, since the touch before
      if (*next != end && (*next)->root == root && (*next)->touch + 1 == k) stays = (*(*next)++).kept;
      if (on == home) {
        if (open && (of_root.back().writes || touch.writes)) open = false;
        if (touch.writes) home_since = touch.node + 1;
        continue;
      }
      if (open && of_root.back().on == on) {
        open = stays && touches_.SamePart(of_root.back().last, touch.node);
      } else {
        open = false;
      }
      if (!open) {
        if (!of_root.empty() && of_root.back().writes) home_since = std::max(home_since, of_root.back().last + 1);
        of_root.push_back({.root = root,
                           .on = on,
                           .first = touch.node,
                           .reads = touch.reads,
                           .earliest = std::max(home_since, touches_.PartBegin(touch.node))});
        open = true;
      }
      of_root.back().last = touch.node;
      of_root.back().writes |= touch.writes;
    }
    // An activation is written back if another window, or a kernel at home, needs it.
    for (size_t w = 0; w < of_root.size(); ++w) {
      const bool needed_later = touches.back().node > of_root[w].last;
      of_root[w].writes_back = of_root[w].writes && (IsPersistent(graph_, root) || needed_later);
      Route(&of_root[w]);
      windows_.push_back(of_root[w]);
    }
  }

  // Fetches only what rows are routed to, if its readers agree on them and there are fewer than matrices.
  void Route(Window* w) const {
    if (!w->reads || w->writes || w->on != Tier::kDevice) return;
    ValueId by = kNoValue;
    for (const Touch& touch : touches_.Of(w->root)) {
      if (touch.node < w->first || touch.node > w->last) continue;
      const ValueId rows = RowsOfExperts(graph_, NodeAt(touch.node), w->root);
      if (rows == kNoValue || (by != kNoValue && by != touches_.RootOf(rows))) return;
      by = touches_.RootOf(rows);
    }
    if (touches_.HomeOf(by) != Tier::kDevice || touches_.IsAway(by)) return;
    const int made = touches_.Of(by).front().node;
    if (!touches_.SamePart(made, w->first)) return;
    w->routed_by = by;
    w->earliest = std::max(w->earliest, made + 1);
  }

  // Bytes that the window's fetch moves.
  Bytes FetchedBy(const Window& w) const {
    if (w.routed_by == kNoValue) return SizeOf(graph_, w.root);
    return MostRouted(graph_.value(w.root).type, graph_.value(w.routed_by).type.shape.elements());
  }

  // Walks the graph as the executor would, with a queue per link. Issues the next fetch before the node during which
  // its time comes, if there is room for the copy until its use.
  void IssueFetches() {
    std::map<std::pair<Tier, Tier>, std::vector<Window*>> queues;
    for (Window& w : windows_) {
      w.issue = w.first;
      if (w.reads) queues[{touches_.HomeOf(w.root), w.on}].push_back(&w);
    }
    for (auto& [link, queue] : queues) {
      const auto takes_of = [&, link = link](const Window& w) {
        return spec_.links.SecondsBesideKernels(link.first, link.second, FetchedBy(w));
      };
      // Per window: when its fetch must begin, for itself and for those behind it in the queue.
      std::vector<double> begin_by(queue.size());
      double latest = std::numeric_limits<double>::infinity();
      for (size_t k = queue.size(); k-- > 0;) {
        latest = std::min(latest, starts_[static_cast<size_t>(queue[k]->first)].v) - kAhead * takes_of(*queue[k]).v;
        begin_by[k] = latest;
      }
      Seconds stalled{};  // delay of the walk relative to `starts_`
      Seconds free_at{};  // when the link has finished its queue
      size_t next = 0;
      for (int i = 0; i < num_nodes() && next < queue.size(); ++i) {
        for (; next < queue.size(); ++next) {
          const Seconds now = starts_[static_cast<size_t>(i)] + stalled;
          const Seconds next_chance = starts_[static_cast<size_t>(i) + 1] + stalled;
          Window& w = *queue[next];
          const Seconds takes = takes_of(w);
          const Seconds begins = std::max(now, free_at);
          const double busy = std::max(0.0, free_at.v - next_chance.v);
          const bool due = begin_by[next] + stalled.v - next_chance.v <= kAhead * busy || w.first <= i;
          if (!due || w.earliest > i || (w.first > i && !Reserve(w, i, w.first))) break;
          w.issue = std::min(i, w.first);
          free_at = begins + takes;
          if (w.first <= i) stalled += Seconds{std::max(0.0, free_at.v - now.v)};
        }
      }
    }
  }

  // Reserves room for a copy at nodes [begin, end), if there is enough.
  bool Reserve(const Window& w, int begin, int end) {
    std::vector<Bytes>& used = UsedOn(w.on);
    const Bytes limit = w.on == Tier::kDevice ? spec_.device : spec_.host, size = SizeOf(graph_, w.root);
    for (int k = begin; k < end; ++k) {
      if (used[static_cast<size_t>(k)] + size > limit) return false;
    }
    for (int k = begin; k < end; ++k) used[static_cast<size_t>(k)] += size;
    return true;
  }

  const Graph& graph_;
  const Touches& touches_;
  const ResidencySpec& spec_;
  const std::vector<Seconds>& starts_;
  WorkingSets used_;
  std::vector<Window> windows_;
};

}  // namespace

WorkingSets MeasureWorkingSets(const Graph& graph, const Touches& touches, const ResidencySpec& spec,
                               const NodeCosts& costs) {
  WorkingSets sets;
  for (auto& used : sets) used.assign(graph.nodes().size(), Bytes{});
  const auto used_on = [&](Tier tier) -> std::vector<Bytes>& { return sets[static_cast<size_t>(tier)]; };
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (!touches.IsTouched(id)) continue;
    const std::span<const Touch> of_value = touches.Of(id);
    const Bytes size = SizeOf(graph, id);
    for (const Touch& t : of_value) {
      if (t.on != touches.HomeOf(id)) used_on(t.on)[static_cast<size_t>(t.node)] += size;
    }
    if (spec.gradients_last && graph.value(id).role == Role::kGradient && touches.HomeOf(id) == Tier::kDevice) {
      std::vector<Bytes>& used = used_on(Tier::kDevice);
      const Touch& first = of_value.front();
      const int made = first.reads ? 0 : first.node;
      for (size_t i = static_cast<size_t>(made); i < used.size(); ++i) used[i] += size;
    }
    if (IsPersistent(graph, id) || touches.Leaves(id) || touches.IsInSlot(id)) continue;
    // Its lifetime begins when that of the operand ends.
    const bool takes_over = costs.takes_over[static_cast<size_t>(id)];
    std::vector<Bytes>& used = used_on(touches.HomeOf(id));
    for (int i = of_value.front().node + (takes_over ? 1 : 0); i <= of_value.back().node; ++i) {
      used[static_cast<size_t>(i)] += size;
    }
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    used_on(touches.ProcessorOf(static_cast<int>(i)))[i] += costs.scratch[i];
    if (touches.IsCut(static_cast<int>(i))) used_on(Tier::kHost)[i] += touches.CopiesOfCut(static_cast<int>(i));
  }
  return sets;
}

Bytes LeavingBytes(const Graph& graph, const Touches& touches) {
  Bytes sum{};
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (touches.IsTouched(id) && touches.Leaves(id)) sum += SizeOf(graph, id);
  }
  return sum;
}

std::vector<Window> FindWindows(const Graph& graph, const Touches& touches, const ResidencySpec& spec,
                                const NodeCosts& costs) {
  return WindowCutter(graph, touches, spec, costs).Run();
}

}  // namespace temper
