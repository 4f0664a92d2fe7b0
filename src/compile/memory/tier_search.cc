#include "compile/memory/tier_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "compile/estimate/move_lanes.h"
#include "compile/estimate/rank_clock.h"
#include "compile/layout/addresses.h"
#include "compile/layout/layout.h"
#include "compile/residency/copies.h"
#include "compile/residency/resident_room.h"
#include "compile/residency/touches.h"
#include "compile/step/fuse.h"
#include "graph/ops/move_part.h"
#include "graph/update_rule.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// Room for copies, activations and scratch beside residents, in multiples of the least they need; the usually best one
// first. More room hides more moves; more residents avoid moves.
constexpr double kRooms[] = {1.2, 1.0, 1.6, 2.4};

// Packing and operands held by background moves cost a little more than the live bytes.
constexpr double kFirstGuess = 0.97, kLeastGuess = 0.8;
constexpr int kTries = 9;
// A search that began after enough gives back this many times what is missing, to fit at the next attempt; one that has
// done enough meanwhile, less.
constexpr double kStride = 2, kShortStride = 1.5;

// A sum of seconds in another order.
constexpr double kRounding = 1e-9;

class Searcher {
 public:
  Searcher(const MemorySpec& memory, StepUses uses, int threads, const MakePrograms& make, Effort effort,
           const std::string& remedies, Seconds known, SearchWork* work)
      : memory_(memory),
        uses_(std::move(uses)),
        threads_(threads),
        make_(make),
        effort_(effort),
        remedies_(remedies),
        known_(known),
        work_(*work),
        hurries_(work->enough() || memory.first_that_fits) {}

  Result<FoundTiers> Run() {
    if (memory_.IsOpen()) {
      TEMPER_ASSIGN_OR_RETURN(auto programs, PlaceAsIs());
      return FoundTiers{.programs = std::move(programs), .all_on_device = true};
    }
    groups_ = FindTierGroups(memory_, uses_);
    if (effort_ != Effort::kOthers && memory_.policy != TierPolicy::kHost && MayAllBeOnDevice()) {
      TEMPER_ASSIGN_OR_RETURN(auto programs, PlaceAsIs());
      if (programs[0].arena_bytes <= memory_.device) {
        return FoundTiers{.programs = std::move(programs), .all_on_device = true};
      }
      if (memory_.policy == TierPolicy::kDevice) return TooLarge(programs[0]);
    }
    order_ = ByDensity(groups_);
    for (const GraphUse& use : uses_.graphs) plain_.push_back(WithoutNames(*use.of.graph));
    for (GraphUse& use : uses_.graphs) {
      costs_.push_back(use.costs ? *std::move(use.costs) : CostsOfNodes(*use.of.graph, &memory_.rates, threads_));
    }
    std::vector<std::optional<Tier>> activations = {memory_.activations};
    if (!memory_.activations) {
      activations = {Tier::kDevice};
      const bool may_leave = memory_.policy != TierPolicy::kDevice && memory_.IsLimited();
      if (may_leave) activations.push_back(std::nullopt);
    }
    std::vector<Try> tries;
    Status refused = OkStatus();
    for (const std::optional<Tier> where : activations) {
      const Status status = AddTries(where, &tries);
      if (!status.ok()) refused = status;
      if (!status.ok() && status.code() != StatusCode::kOutOfMemory) return status;
    }
    // One after the other, because each gives up where it cannot be faster than the best before it.
    std::optional<FoundTiers> best;
    work_.short_of_host = !tries.empty();
    bool has_gained = false;  // by more room
    for (const Try& one : tries) {
      if (best && (memory_.first_that_fits || work_.enough())) break;
      if (one.has_most_room) has_gained = false;
      // Of a large model less room is not tried, too, where more was faster.
      if (has_gained && !one.has_most_room && one.activations == best_activations_ && work_.large()) continue;
      Result<std::optional<FoundTiers>> result = FirstThatFits(one);
      if (!result.ok() && result.status().code() != StatusCode::kOutOfMemory) return result.status();
      if (!result.ok()) refused = result.status();  // of the last one, which needs the least
      if (!result.ok() || !result->has_value()) continue;
      if (best && best->seconds.total() <= (*result)->seconds.total()) continue;
      best = *std::move(*result);
      has_gained = one.has_most_room && best->seconds.total() < known_;
      best_activations_ = one.activations;
      known_ = std::min(known_, best->seconds.total());
    }
    if (!best) return refused.ok() ? OutOfMemory("there is no faster way to divide the device") : refused;
    return *std::move(best);
  }

 private:
  // Tries one share of the device after the other until one fits.
  struct Try {
    std::optional<Tier> activations;
    Bytes least, always;  // on the device: from LeastOnDevice, and bytes that are always there besides residents
    std::vector<std::vector<bool>> resident;  // per share and group
    std::vector<size_t> fullest;              // the graphs, those that need most of the device first
    bool has_most_room = false;
    // Bytes of the activations that may leave the device, all alive when the backward begins: of the graph with most.
    Bytes leaving;
  };

  // Whether no option puts any value of the graphs into another tier, and the device has room for the persistent ones.
  bool MayAllBeOnDevice() const {
    if (memory_.policy == TierPolicy::kAuto) {
      Bytes persistent = OutsideGroups();
      for (const TierGroup& g : groups_) persistent += g.lasts() ? Bytes{} : g.bytes;
      if (persistent > memory_.device) return false;
    }
    const auto away = [](std::optional<Tier> fixed) { return fixed.value_or(Tier::kDevice) != Tier::kDevice; };
    return std::none_of(uses_.graphs.begin(), uses_.graphs.end(), [&](const GraphUse& use) {
      const Graph& graph = *use.of.graph;
      for (ValueId id = 0; id < graph.num_values(); ++id) {
        if (away(FixedTierOf(memory_, graph.value(id).role))) return true;
      }
      // The option for activations matters only if there is a backward pass.
      return away(memory_.activations) && std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                                      [](const Node& node) { return node.phase == Phase::kBackward; });
    });
  }

  // With activations that have no names: each choice of tiers copies the graph, and nobody reads them.
  static Graph WithoutNames(Graph graph) {
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      if (graph.value(id).role == Role::kActivation) graph.value(id).name = std::string();
    }
    return graph;
  }

  Result<std::vector<Program>> PlaceAsIs() const {
    std::vector<MovedGraph> graphs;
    for (const GraphUse& use : uses_.graphs) graphs.push_back({{UpdateInPlace(*use.of.graph), *use.of.parts}});
    return make_(graphs);
  }

  Status TooLarge(const Program& program) const {
    return OutOfMemory(
        fmt::format("the run needs {} of device memory (peak at {}), but memory.device is {}. {}, or memory.tiers: "
                    "auto, which moves values that do not fit to the host",
                    ToString(program.arena_bytes), program.peak_instruction, ToString(memory_.device), remedies_));
  }

  // `host`: bytes of host memory for values that live there and for copies from the disk.
  ResidencySpec SpecOf(const Homes& homes, std::optional<Tier> activations, Bytes device, Bytes host) const {
    return {.homes = &homes,
            .activations = activations,
            .keep = memory_.policy != TierPolicy::kHost,
            .device = device,
            .host = HostStaging(homes, host),
            .rates = &memory_.rates,
            .links = memory_.links,
            .threads = threads_,
            .update_part = memory_.update_part,
            .gradients_last = uses_.gradients_last};
  }

  // The least host memory that the update of a group needs: large groups are updated in parts. A group that partly
  // lives at the host is not; the layout then finds the additional need.
  Bytes CopiesOf(const TierGroup& g) const {
    return g.of_element ? UpdateAtHost(g.bytes, *g.of_element, memory_.update_part) : g.bytes;
  }

  // Room at the host for copies from the disk: a few of the largest, at least one.
  Bytes HostStaging(const Homes& homes, Bytes host) const {
    Bytes largest{}, at_host{};
    for (const TierGroup& g : groups_) {
      const auto it = homes.find(g.names[0]);
      if (it == homes.end()) continue;
      if (it->second == Tier::kHost) at_host += g.bytes;
      if (it->second == Tier::kDisk && g.updated) largest = std::max(largest, CopiesOf(g));
    }
    if (memory_.host == kNoLimit) return largest * 3;
    return std::clamp(host - at_host, largest, largest * 3);
  }

  // Homes of all groups if those of `resident` live on the device. Groups
  // that do not fit on the host go to the disk, least moved first.
  Result<Homes> HomesOf(const std::vector<bool>& resident, Bytes limit) const {
    Homes homes;
    Bytes host{};
    const auto settle = [&](const TierGroup& g, Tier tier) {
      for (const std::string& name : g.names) homes[name] = tier;
    };
    for (size_t k = 0; k < groups_.size(); ++k) {
      const TierGroup& g = groups_[k];
      if (resident[k] || g.fixed == Tier::kDevice) continue;
      settle(g, g.fixed.value_or(Tier::kHost));
      if (g.fixed != Tier::kDisk) host += g.bytes;
    }
    Bytes copies{};  // at the host, during updates of states on the disk
    for (auto it = order_.rbegin(); it != order_.rend() && host + copies > limit; ++it) {
      const TierGroup& g = groups_[*it];
      if (resident[*it] || g.fixed || !(g.frozen || memory_.disk)) continue;
      settle(g, Tier::kDisk);
      host += Bytes{-g.bytes.v};
      if (g.updated) copies = std::max(copies, CopiesOf(g));
    }
    if (host + copies > limit) return HostTooSmall(host + copies);
    return homes;
  }

  // Bytes of the residents that the search may move away.
  Bytes HeldBy(const std::vector<bool>& resident) const {
    Bytes sum{};
    for (size_t k = 0; k < groups_.size(); ++k) {
      const TierGroup& g = groups_[k];
      if (resident[k] && !g.fixed && !g.lasts()) sum += g.bytes;
    }
    return sum;
  }

  // Bytes of the groups that live at the host.
  Bytes AtHost(const Homes& homes) const {
    Bytes sum{};
    for (const TierGroup& g : groups_) {
      const auto it = homes.find(g.names[0]);
      if (it != homes.end() && it->second == Tier::kHost && !g.lasts()) sum += g.bytes;
    }
    return sum;
  }

  // Whether a value could leave the host for the disk.
  bool LivesAtHost(const Homes& homes) const {
    return std::any_of(groups_.begin(), groups_.end(), [&](const TierGroup& g) {
      const auto it = homes.find(g.names[0]);
      return !g.fixed && (g.frozen || memory_.disk) && it != homes.end() && it->second == Tier::kHost;
    });
  }

  // The least limit that HomesOf can keep if nothing lives at the host.
  Bytes MostCopied(const std::vector<bool>& resident) const {
    Bytes copies{};
    for (size_t k = 0; k < groups_.size(); ++k) {
      const TierGroup& g = groups_[k];
      if (!resident[k] && !g.fixed && g.updated) copies = std::max(copies, CopiesOf(g));
    }
    return copies;
  }

  Status HostTooSmall(Bytes needed) const {
    return OutOfMemory(
        fmt::format("values that are not on the device need {} of host memory, {} more than memory.host. {}",
                    ToString(needed), ToString(needed - memory_.host),
                    memory_.disk ? "Raise it" : "Name a folder with memory.disk, for the rest, or raise it"));
  }

  Status AddTries(std::optional<Tier> activations, std::vector<Try>* tries) const {
    // The least that the device needs with any tiers; each share checks whether the host has room.
    std::vector<bool> none(groups_.size(), false);
    TEMPER_ASSIGN_OR_RETURN(const Homes all_far, HomesOf(none, kNoLimit));
    const ResidencySpec far = SpecOf(all_far, activations, memory_.device, memory_.host);
    std::vector<LeastBytes> of_graphs;
    Bytes leaving{};
    for (size_t k = 0; k < costs_.size(); ++k) {
      const PartedGraph& of = uses_.graphs[k].of;
      of_graphs.push_back(LeastOnDevice(*of.graph, *of.parts, far, costs_[k]));
      if (of.parts->empty()) leaving = std::max(leaving, LeavingBytes(*of.graph, Touches(*of.graph, *of.parts, far)));
    }
    const auto fullest = std::max_element(of_graphs.begin(), of_graphs.end(),
                                          [](const LeastBytes& a, const LeastBytes& b) { return a.bytes < b.bytes; });
    const LeastBytes& least = *fullest;
    const Graph* const at = uses_.graphs[static_cast<size_t>(fullest - of_graphs.begin())].of.graph;
    Try one{.activations = activations,
            .least = least.bytes,
            .always = AlwaysOnDevice() + SlotsOnDevice(far),
            .leaving = leaving};
    one.fullest.resize(of_graphs.size());
    std::iota(one.fullest.begin(), one.fullest.end(), size_t{0});
    std::stable_sort(one.fullest.begin(), one.fullest.end(),
                     [&](size_t a, size_t b) { return of_graphs[a].bytes > of_graphs[b].bytes; });
    if (!memory_.IsLimited() || memory_.policy != TierPolicy::kAuto) {
      // Without a limit, or with a fixed policy, there is nothing to choose.
      if (effort_ == Effort::kOthers) return OkStatus();
      std::vector<bool>& resident = one.resident.emplace_back(groups_.size(), memory_.policy != TierPolicy::kHost);
      for (size_t k = 0; k < groups_.size(); ++k) {
        if (groups_[k].fixed) resident[k] = groups_[k].fixed == Tier::kDevice;
      }
      tries->push_back(std::move(one));
      return OkStatus();
    }
    if (one.always + least.bytes > memory_.device) return TooSmall(least, one.always, at);
    const Bytes free = memory_.device - one.always;
    std::vector<std::vector<bool>> shares;
    bool gave_all = false;  // whether all free bytes were given to copies
    for (const double room : kRooms) {
      const auto wanted = [&](Bytes bytes) { return Bytes{static_cast<int64_t>(static_cast<double>(bytes.v) * room)}; };
      if (free < wanted(least.bytes) && std::exchange(gave_all, true)) continue;  // the same as before
      std::vector<std::vector<Bytes>> used;
      for (const LeastBytes& of_graph : of_graphs) {
        used.emplace_back();
        for (const Bytes bytes : of_graph.at) used.back().push_back(wanted(bytes));
      }
      std::vector<bool> resident = ChooseResidents(ResidentRoom(free, std::move(used)));
      if (std::find(shares.begin(), shares.end(), resident) == shares.end()) shares.push_back(std::move(resident));
    }
    if (effort_ == Effort::kOne || hurries_) {
      one.resident = std::move(shares);
      tries->push_back(std::move(one));
      return OkStatus();
    }
    // Then those with most room, which hide most: what they find is what others have to beat.
    const size_t first = effort_ == Effort::kOthers ? 1 : 0;
    if (shares.size() > 1) std::reverse(shares.begin() + 1, shares.end());
    for (size_t k = first; k < shares.size(); ++k) {
      one.has_most_room = k == 1;
      one.resident = {std::move(shares[k])};
      tries->push_back(one);
    }
    return OkStatus();
  }

  // The groups that save most moves per byte, as far as there is room.
  std::vector<bool> ChooseResidents(ResidentRoom room) const {
    std::vector<bool> resident(groups_.size(), false);
    for (const size_t k : order_) {
      const TierGroup& g = groups_[k];
      if (g.fixed || g.follows) continue;
      const TierGroup* const lasting = g.lasts() ? &g : g.gradient ? &groups_[*g.gradient] : nullptr;
      const LastingBytes part = lasting != nullptr ? LastingBytes{lasting->bytes, lasting->from} : LastingBytes();
      if (!room.Take(g.lasts() ? Bytes{} : g.bytes, part)) continue;
      resident[k] = true;
      if (g.gradient) resident[*g.gradient] = true;
    }
    return resident;
  }

  Status TooSmall(const LeastBytes& least, Bytes always, const Graph* graph) const {
    const Node& node = graph->nodes()[least.node];
    std::string largest;
    Bytes most{};
    for (const auto* list : {&node.inputs, &node.outputs}) {
      for (ValueId id : *list) {
        if (graph->value(id).type.bytes() <= most) continue;
        most = graph->value(id).type.bytes();
        largest = fmt::format("{} {}", graph->value(id).name, graph->value(id).type.ToString());
      }
    }
    return OutOfMemory(
        fmt::format("memory.device is {}, but {} {} {} alone needs {} on the device (largest operand {}), "
                    "besides {} that is always needed. {}",
                    ToString(memory_.device), ToString(node.phase), ToString(node.op), OfBlock(node.block),
                    ToString(least.bytes), largest, ToString(always), remedies_));
  }

  // Bytes of inputs, outputs, constants and caches.
  Bytes OutsideGroups() const {
    Bytes sum{};
    std::set<std::string> seen;
    for (const GraphUse& use : uses_.graphs) {
      const Graph& graph = *use.of.graph;
      for (ValueId id = 0; id < graph.num_values(); ++id) {
        const Value& v = graph.value(id);
        const bool always =
            v.role == Role::kInput || v.role == Role::kOutput || v.role == Role::kConstant || v.role == Role::kCache;
        if (graph.Root(id) != id || !always || !seen.insert(v.name + v.type.ToString()).second) continue;
        sum += AlignUp(v.type.bytes(), kAlignment);
      }
    }
    return sum;
  }

  // These, and values that an option puts on the device.
  Bytes AlwaysOnDevice() const {
    Bytes sum = OutsideGroups();
    for (const TierGroup& g : groups_) {
      if (g.fixed == Tier::kDevice && !g.lasts()) sum += g.bytes;
    }
    return sum;
  }

  // Bytes of a pipeline's micro-batches in flight.
  Bytes SlotsOnDevice(const ResidencySpec& spec) const {
    Bytes most{};
    for (size_t k = 0; k < costs_.size(); ++k) {
      const GraphUse& use = uses_.graphs[k];
      if (use.slots == nullptr) continue;
      const PipelinedGraph moved = Reside(*use.of.graph, *use.of.parts, spec, costs_[k]);
      const SlotSizes sizes = LayOut(moved.graph, moved.parts, threads_).in(Tier::kDevice).slots;
      Bytes sum{};
      for (size_t chunk = 0; chunk < sizes.size(); ++chunk) {
        for (size_t kind = 0; kind < kNumSlotKinds; ++kind) sum += sizes[chunk][kind] * (*use.slots)[chunk][kind];
      }
      most = std::max(most, sum);
    }
    return most;
  }

  // nullopt: it would be slower than a known step.
  Result<std::optional<FoundTiers>> FirstThatFits(const Try& given) {
    Status refused = OkStatus();
    for (const std::vector<bool>& resident : given.resident) {
      Result<std::optional<FoundTiers>> found = PlaceResidents(given, resident);
      if (found.ok() || found.status().code() != StatusCode::kOutOfMemory) return found;
      refused = found.status();
    }
    return refused;
  }

  // A lower bound of EstimateOn on the Programs of these graphs.
  Seconds LeastSeconds(const std::vector<MovedGraph>& moved) const {
    Seconds kernels{}, idle{};
    MoveSeconds moves = {};
    for (size_t k = 0; k < moved.size(); ++k) {
      const Graph& graph = moved[k].graph.graph;
      const double times = uses_.graphs[k].times;
      for (const Node& node : graph.nodes()) {
        if (!IsMove(node.op)) continue;
        const Value &from = graph.value(node.inputs[0]), &to = graph.value(node.outputs[0]);
        const TensorType* const second = node.inputs.size() == 2 ? &graph.value(node.inputs[1]).type : nullptr;
        const Bytes bytes = BytesOnLink(from.type, second, to.type, node.attributes);
        const Seconds takes{memory_.links.SecondsOf(from.tier, to.tier, bytes).v * times};
        const size_t lane = LaneOfMove(node.op, std::max(from.tier, to.tier));
        (node.attributes.Flag("background") ? moves[lane - kFirstMoveLane] : idle) += takes;
      }
      kernels += Seconds{KernelSeconds(graph, costs_[k]).v * times};
    }
    // Moves of a lane run one after the other, however many kernels run beside them.
    const Seconds busiest = *std::max_element(moves.begin(), moves.end());
    return std::max(kernels + LeastAdded(moves, idle, memory_.links), busiest);
  }

  // `costs`: of the graph before moves were inserted, where everything ran on the device.
  Seconds KernelSeconds(const Graph& graph, const NodeCosts& costs) const {
    const auto updates = [](const Node& node) { return UpdateRuleOf(node.op) != nullptr; };
    if (std::none_of(graph.nodes().begin(), graph.nodes().end(), updates)) return costs.starts.back();
    Seconds sum{};
    for (const Node& node : graph.nodes()) {
      if (IsMove(node.op) || IsCollective(node.op)) continue;
      const DeviceRates& rates = TierOf(graph, node) == Tier::kHost ? memory_.host_rates : memory_.rates;
      sum +=
          rates.SecondsOf(node.op, TypesOf(graph, node.inputs), TypesOf(graph, node.outputs), node.attributes).total();
    }
    return sum;
  }

  // The least bytes of the host that the graph takes: what its largest update works on.
  static Bytes LeastAtHost(const Graph& graph) {
    Bytes most{};
    for (const Node& node : graph.nodes()) {
      if (UpdateRuleOf(node.op) == nullptr || TierOf(graph, node) != Tier::kHost) continue;
      Bytes bytes{};
      for (const ValueId id : node.inputs) bytes += graph.value(id).type.bytes();
      most = std::max(most, bytes);
    }
    return most;
  }

  // Bytes of arenas, and where the device's is fullest.
  struct Need {
    Bytes device, host;
    std::string peak;
  };

  // What the arenas of a graph that is laid out apart take, beside what always lives there.
  static Need NeedOf(const MovedGraph& of, const Need& always) {
    const TierLayout& device = of.layout->in(Tier::kDevice);
    Need need{.device = always.device + device.span, .host = always.host + of.layout->in(Tier::kHost).span};
    if (device.peak_live > Bytes{}) need.peak = PeakText(of.graph.graph.nodes()[device.peak_node]);
    return need;
  }
  bool Holds(const Need& need) const {
    return (!memory_.IsLimited() || need.device <= memory_.device) && need.host <= memory_.host;
  }

  PackingGoals GoalsBeside(const Need& always) const {
    PackingGoals goals;
    for (const auto& [tier, limit, taken] :
         {std::tuple(Tier::kDevice, memory_.device, always.device), {Tier::kHost, memory_.host, always.host}}) {
      if (limit == kNoLimit) continue;
      PackingGoal& goal = goals[static_cast<size_t>(tier)];
      goal.most = limit - taken;
      goal.enough = std::max(Bytes{}, goal.most);
    }
    return goals;
  }

  // Places the values of one share of the device, with less room for copies and less at the host until that fits.
  Result<std::optional<FoundTiers>> PlaceResidents(const Try& given, std::vector<bool> resident) {
    const bool limited = memory_.IsLimited();
    std::vector<size_t> fullest = given.fullest;
    double scale = work_.large() ? std::clamp(work_.scale, kLeastGuess, kFirstGuess) : kFirstGuess;
    Bytes host = memory_.host;  // packing takes some of it
    Status refused = OkStatus();
    // What the attempt before placed, and by how much it exceeded the host's memory.
    struct {
      Homes homes;
      Bytes room, staging, over_host;
    } before;
    for (int attempt = 0; attempt < kTries; ++attempt) {
      // The last attempt uses the minimum: no optional residents, and copies exist only during their use.
      const bool last = attempt + 1 == kTries;
      if (last && memory_.policy == TierPolicy::kAuto) resident.assign(resident.size(), false);
      const Result<Homes> homes = HomesOf(resident, host);
      if (!homes.ok())
        return refused.ok() ? homes.status() : refused;  // the Program's size, not that of the reduced room
      const Bytes held = given.always + HeldBy(resident);
      const Bytes room = !limited ? memory_.device
                         : last   ? Bytes{}
                                  : Bytes{static_cast<int64_t>(static_cast<double>((memory_.device - held).v) * scale)};
      const Need always{.device = held, .host = AtHost(*homes)};
      // What activations take there when the backward begins, whatever else does not.
      if (const Bytes least = always.host + std::max(given.leaving - room, Bytes{}); least > memory_.host) {
        refused = HostTooSmall(least);
        const Bytes copied = MostCopied(resident), taken = std::min(host, always.host + copied);
        const Bytes less = std::max(taken - (least - memory_.host), copied);
        if (!LivesAtHost(*homes) || less >= host) break;
        host = less;
        --attempt;  // nothing was placed
        continue;
      }
      const ResidencySpec spec = SpecOf(*homes, given.activations, room, host);
      if (before.over_host > Bytes{} && spec.device == before.room && spec.host == before.staging &&
          *homes == before.homes) {
        host = std::max(host - before.over_host, MostCopied(resident));  // it would be the same again
        continue;
      }
      before = {*homes, spec.device, spec.host, Bytes{}};
      std::vector<MovedGraph> moved(costs_.size());
      const auto move = [&](size_t k) {
        moved[k].graph = Reside(plain_[k], *uses_.graphs[k].of.parts, spec, costs_[k]);
        work_.nodes += std::ssize(moved[k].graph.graph.nodes());
      };
      Bytes least_at_host{};
      std::optional<Need> over;  // of the first graph that exceeds a limit by itself
      // Half of the work is still to come: addresses, and seconds by them.
      if (known_ < kNoSeconds || !uses_.apart) {
        for (const size_t k : fullest) move(k);
        if (LeastSeconds(moved).v > known_.v * (1 + kRounding)) return std::optional<FoundTiers>();
        for (const MovedGraph& of : moved) least_at_host = std::max(least_at_host, LeastAtHost(of.graph.graph));
      }
      for (auto at = fullest.begin(); at != fullest.end() && !over; ++at) {
        MovedGraph& of = moved[*at];
        if (of.graph.graph.nodes().empty()) move(*at);
        of.graph.graph = UpdateInPlace(std::move(of.graph.graph));
        if (!uses_.apart) continue;
        least_at_host = std::max(least_at_host, LeastAtHost(of.graph.graph));
        if (least_at_host > memory_.host && LivesAtHost(*homes)) break;
        of.layout = LayOut(of.graph.graph, {}, threads_, GoalsBeside(always));
        if (const Need need = NeedOf(of, always); !Holds(need)) {
          over = need;
          std::rotate(fullest.begin(), at, at + 1);  // most likely it would be the first again
        }
      }
      // Graphs that were not looked at count, too: a search ends after as many attempts, however they failed.
      for (size_t k = 0; k < moved.size(); ++k) {
        if (moved[k].graph.graph.nodes().empty()) work_.nodes += std::ssize(plain_[k].nodes());
      }
      const double stride = hurries_ ? kStride : work_.enough() ? kShortStride : 1;
      const auto times = [](Bytes bytes, double factor) {
        return Bytes{static_cast<int64_t>(static_cast<double>(bytes.v) * factor)};
      };
      if (least_at_host > memory_.host && LivesAtHost(*homes)) {
        refused = HostTooSmall(least_at_host);
        host = std::max(host - (least_at_host - memory_.host), MostCopied(resident));
        continue;
      }
      std::vector<Program> programs;
      if (!over) {
        TEMPER_ASSIGN_OR_RETURN(programs, make_(moved));
        const Program& program = programs[0];
        over = Need{program.arena_bytes, program.host.bytes, program.peak_instruction};
      }
      const Need& need = *over;
      const bool fits_host = need.host <= memory_.host;
      if (!fits_host) {
        refused = HostTooSmall(need.host);
        if (!LivesAtHost(*homes)) break;
        // Values that live there go to the disk, too; then updates of what belongs to them work on parts.
        before.over_host = need.host - memory_.host;
        host = std::max(host - times(before.over_host, stride), MostCopied(resident));
      }
      if (!limited || need.device <= memory_.device) {
        if (!fits_host) continue;
        work_.short_of_host = false;
        if (!last) work_.scale = scale;
        FoundTiers found{.seconds = EstimateOn(memory_, programs[0]),
                         .placement = {.moves = true, .homes = *homes, .spec = spec}};
        found.programs = std::move(programs);
        found.placement.spec.homes = nullptr;
        found.placement.spec.rates = nullptr;
        return std::optional(std::move(found));
      }
      if (fits_host) work_.short_of_host = false;
      refused = OutOfMemory(fmt::format("memory.device is {}, but the step takes {} of the device (peak at {}). {}",
                                        ToString(memory_.device), ToString(need.device), need.peak, remedies_));
      const Bytes missing = times(need.device - memory_.device, stride);
      const bool drops = room - missing <= given.least && memory_.policy == TierPolicy::kAuto;
      if (drops && DropResidents(missing, &resident)) {
        // What they leave is for what is missing, not for more copies.
        const Bytes free = memory_.device - given.always - HeldBy(resident);
        scale = static_cast<double>(room.v) / static_cast<double>(free.v);
        continue;
      }
      if (room.v <= 0) break;  // copies exist only during their use
      // Copies and activations take more than their sum: packing, and operands held by moves.
      scale *= static_cast<double>((room - missing).v) / static_cast<double>(room.v) * 0.99;
    }
    return refused;
  }

  // Drops the residents that save the least, until `over` bytes are free. False if there are none.
  bool DropResidents(Bytes over, std::vector<bool>* resident) const {
    Bytes dropped{};
    for (auto it = order_.rbegin(); it != order_.rend() && dropped < over; ++it) {
      const TierGroup& g = groups_[*it];
      if (!(*resident)[*it] || g.fixed || g.follows) continue;
      (*resident)[*it] = false;
      if (g.gradient) (*resident)[*g.gradient] = false;
      dropped += g.bytes;
    }
    return dropped.v > 0;
  }

  const MemorySpec& memory_;
  StepUses uses_;
  const int threads_;
  const MakePrograms& make_;
  const Effort effort_;
  const std::string& remedies_;
  Seconds known_;  // of a step; slower ones are given up
  std::optional<Tier> best_activations_;
  SearchWork& work_;
  const bool hurries_;            // takes the first way that fits
  std::vector<NodeCosts> costs_;  // per graph
  std::vector<Graph> plain_;      // per graph: what is copied
  std::vector<TierGroup> groups_;
  std::vector<size_t> order_;  // of groups, most saved per byte of the device first
};

}  // namespace

StepSeconds EstimateOn(const MemorySpec& memory, const Program& program) {
  const StepEstimate step =
      EstimateStep(program, {.device = &memory.rates, .host = &memory.host_rates, .links = memory.links});
  const Seconds stall = step.moves + step.stalled;
  return {.stall = stall, .compute = {step.step.v - stall.v}};
}

Result<FoundTiers> SearchTiers(const MemorySpec& memory, StepUses uses, int threads, const MakePrograms& make,
                               Effort effort, const std::string& remedies, Seconds known, SearchWork* work) {
  SearchWork own;
  return Searcher(memory, std::move(uses), threads, make, effort, remedies, known, work != nullptr ? work : &own).Run();
}

}  // namespace temper
