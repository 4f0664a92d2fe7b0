#include "compile/placement_search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "compile/layout.h"
#include "compile/place.h"
#include "compile/step_estimate.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

// What copies, activations and scratch get beside residents, in multiples of the least they need. More room hides more
// of the moves; residents spare moves.
constexpr double kRooms[] = {1.0, 1.2, 1.6, 2.4};
// The one that is best as a rule first; the others where that does not fit.
constexpr double kOneRoom[] = {1.2, 1.0, 1.6, 2.4};

// Packing and what background moves hold on to cost a little over what is alive at once.
constexpr double kFirstGuess = 0.97;
constexpr int kTries = 9;

// Values that live in one tier together.
struct Group {
  std::vector<std::string> names;
  std::optional<Tier> fixed;  // by an option
  bool frozen = true;         // a weight that is not trained: the model's own files hold it
  bool updated = false;       // by the update, at the host where the states are far from the device
  Bytes bytes;
  Bytes moved;  // of a step, where it does not live on the device
  double density() const { return static_cast<double>(moved.v) / static_cast<double>(std::max<int64_t>(bytes.v, 1)); }
};

class Searcher {
 public:
  Searcher(const MemorySpec& memory, std::vector<GraphUse> graphs, int threads, const GraphPlacer& place, Effort effort,
           const std::string& remedies)
      : memory_(memory),
        graphs_(std::move(graphs)),
        threads_(threads),
        place_(place),
        effort_(effort),
        remedies_(remedies),
        host_(memory.host) {}

  Result<FoundPlacement> Run() {
    if (memory_.IsOpen()) {
      TEMPER_ASSIGN_OR_RETURN(auto programs, PlaceAsIs());
      return FoundPlacement{.programs = std::move(programs), .all_on_device = true};
    }
    if (memory_.placement != MemoryPlacement::kHost && MayAllBeOnDevice()) {
      TEMPER_ASSIGN_OR_RETURN(auto programs, PlaceAsIs());
      if (programs[0].arena_bytes <= memory_.device) {
        return FoundPlacement{.programs = std::move(programs), .all_on_device = true};
      }
      if (memory_.placement == MemoryPlacement::kDevice) return TooLarge(programs[0]);
    }
    FindGroups();
    std::vector<std::optional<Tier>> activations = {memory_.activations};
    if (!memory_.activations) {
      activations = {Tier::kDevice};
      const bool may_leave = memory_.placement != MemoryPlacement::kDevice && memory_.IsLimited();
      if (may_leave) activations.push_back(std::nullopt);
    }
    Status refused = OkStatus();
    for (const std::optional<Tier> where : activations) {
      const Status status = TryRooms(where);
      if (!status.ok()) refused = status;  // of the last, which needs the least
      if (!status.ok() && status.code() != StatusCode::kOutOfMemory) return status;
    }
    if (!best_) return refused;
    return std::move(*best_);
  }

 private:
  // No option says otherwise of anything that the graphs have.
  bool MayAllBeOnDevice() const {
    const auto away = [](std::optional<Tier> fixed) { return fixed.value_or(Tier::kDevice) != Tier::kDevice; };
    return std::none_of(graphs_.begin(), graphs_.end(), [&](const GraphUse& use) {
      const Graph& graph = *use.of.graph;
      for (ValueId id = 0; id < graph.num_values(); ++id) {
        if (away(FixedFor(graph.value(id).role))) return true;
      }
      // Activations wait for a backward pass, or not at all.
      return away(memory_.activations) && std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                                      [](const Node& node) { return node.phase == Phase::kBackward; });
    });
  }

  Result<std::vector<Program>> PlaceAsIs() const {
    std::vector<PartedGraph> graphs;
    for (const GraphUse& use : graphs_) graphs.push_back(use.of);
    return place_(graphs);
  }

  Status TooLarge(const Program& program) const {
    return OutOfMemory(
        fmt::format("the run needs {} of device memory, most at {}, and memory.device is {}. {}, or memory.placement: "
                    "auto, which moves to the host what does not fit",
                    ToString(program.arena_bytes), program.peak_instruction, ToString(memory_.device), remedies_));
  }

  std::optional<Tier> FixedFor(Role role) const {
    const auto fixed = role == Role::kOptimizerState ? memory_.optimizer
                       : role == Role::kGradient     ? memory_.gradients
                       : role == Role::kWeight       ? memory_.weights
                                                     : std::nullopt;
    if (fixed || memory_.placement != MemoryPlacement::kHost) return fixed;
    return Tier::kHost;
  }

  // Optimizer states of one weight are updated together; all others are on their own.
  void FindGroups() {
    std::map<std::string, size_t> index;
    std::map<std::string, std::set<std::string>> counted;
    for (const GraphUse& use : graphs_) {
      const Graph& graph = *use.of.graph;
      for (ValueId id = 0; id < graph.num_values(); ++id) {
        const Value& value = graph.value(id);
        const bool lives = value.role == Role::kWeight || value.role == Role::kAdapter ||
                           value.role == Role::kGradient || value.role == Role::kOptimizerState;
        if (graph.Root(id) != id || !lives) continue;
        const std::string key = value.role == Role::kOptimizerState ? "states:" + ValueNameOf(value.name) : value.name;
        const auto [it, fresh] = index.try_emplace(key, groups_.size());
        if (fresh) groups_.push_back({.fixed = FixedFor(value.role)});
        Group& group = groups_[it->second];
        if (value.role != Role::kWeight || value.trainable) group.frozen = false;
        if (!counted[key].insert(value.name).second) continue;
        group.names.push_back(value.name);
        group.bytes += AlignUp(value.type.bytes(), kAlignment);
      }
      for (const Node& node : graph.nodes()) {
        if (node.op == Op::kAdamw) {
          // Where the states are far the gradient goes there, and the weight comes back.
          const auto it = index.find("states:" + ValueNameOf(graph.value(graph.Root(node.inputs[2])).name));
          groups_[it->second].moved +=
              graph.value(node.inputs[1]).type.bytes() + graph.value(node.outputs.back()).type.bytes();
        }
        for (const auto* list : {&node.inputs, &node.outputs}) {
          for (ValueId id : *list) {
            const Value& root = graph.value(graph.Root(id));
            const bool state = root.role == Role::kOptimizerState;
            const auto it = index.find(state ? "states:" + ValueNameOf(root.name) : root.name);
            if (it == index.end()) continue;
            groups_[it->second].updated |= node.op == Op::kAdamw || node.op == Op::kSumSquares;
            if (node.op != Op::kAdamw) groups_[it->second].moved += root.type.bytes() * use.times;
          }
        }
      }
    }
    // By what they spare a step per byte; of equals, those first used: their fetch has nothing to hide behind.
    order_.resize(groups_.size());
    for (size_t k = 0; k < order_.size(); ++k) order_[k] = k;
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return groups_[a].density() > groups_[b].density(); });
  }

  // The weight that a state is of.
  static std::string ValueNameOf(const std::string& state) { return state.substr(state.find(':') + 1); }

  ResidencySpec SpecOf(const Homes& homes, std::optional<Tier> activations, Bytes device) const {
    return {.homes = &homes,
            .activations = activations,
            .keep = memory_.placement != MemoryPlacement::kHost,
            .device = device,
            .host = HostStaging(homes),
            .rates = &memory_.rates,
            .links = memory_.links,
            .threads = threads_,
            .update_part = memory_.update_part};
  }

  // What the update needs of it at the host at least: large ones go through in parts. Where a part of theirs lives at
  // the host they do not, and what they take more is found when it is placed.
  Bytes CopiesOf(const Group& g) const { return StatesAtHost(g.bytes, memory_.update_part); }

  // Room at the host for copies from the disk: a few of the largest, one at least.
  Bytes HostStaging(const Homes& homes) const {
    Bytes largest{}, at_host{};
    for (const Group& g : groups_) {
      const auto it = homes.find(g.names[0]);
      if (it == homes.end()) continue;
      if (it->second == Tier::kHost) at_host += g.bytes;
      if (it->second == Tier::kDisk && g.updated) largest = std::max(largest, CopiesOf(g));
    }
    if (memory_.host == kNoLimit) return largest * 3;
    return std::clamp(host_ - at_host, largest, largest * 3);
  }

  // Homes of all groups when those of `resident` live on the device. What the host cannot hold goes to the disk, least
  // moved first.
  Result<Homes> HomesOf(const std::vector<bool>& resident, Bytes limit) const {
    Homes homes;
    Bytes host{};
    const auto settle = [&](const Group& g, Tier tier) {
      for (const std::string& name : g.names) homes[name] = tier;
    };
    for (size_t k = 0; k < groups_.size(); ++k) {
      const Group& g = groups_[k];
      if (resident[k] || g.fixed == Tier::kDevice) continue;
      settle(g, g.fixed.value_or(Tier::kHost));
      if (g.fixed != Tier::kDisk) host += g.bytes;
    }
    Bytes copies{};  // at the host, of what it updates for the disk
    for (auto it = order_.rbegin(); it != order_.rend() && host + copies > limit; ++it) {
      const Group& g = groups_[*it];
      if (resident[*it] || g.fixed || !(g.frozen || memory_.disk)) continue;
      settle(g, Tier::kDisk);
      host += Bytes{-g.bytes.v};
      if (g.updated) copies = std::max(copies, CopiesOf(g));
    }
    if (host + copies > limit) return HostTooSmall(host + copies);
    return homes;
  }

  Status HostTooSmall(Bytes needed) const {
    return OutOfMemory(fmt::format(
        "what the device does not hold needs {} of host memory, and memory.host is {}. {}", ToString(needed),
        ToString(memory_.host),
        memory_.disk ? "Raise it" : "Name a folder with memory.disk, to which the rest can go, or raise it"));
  }

  Status TryRooms(std::optional<Tier> activations) {
    host_ = memory_.host;
    // What the device needs at least, wherever all else is: whether the host has room for it is asked of each share.
    std::vector<bool> none(groups_.size(), false);
    TEMPER_ASSIGN_OR_RETURN(const Homes all_far, HomesOf(none, kNoLimit));
    LeastBytes least;
    const Graph* at = nullptr;
    for (const GraphUse& use : graphs_) {
      const LeastBytes of_graph =
          LeastOnDevice(*use.of.graph, *use.of.parts, SpecOf(all_far, activations, memory_.device));
      if (of_graph.bytes > least.bytes) {
        least = of_graph;
        at = use.of.graph;
      }
    }
    const Bytes always = AlwaysOnDevice() + SlotsOnDevice(SpecOf(all_far, activations, memory_.device));
    if (!memory_.IsLimited() || memory_.placement != MemoryPlacement::kAuto) {
      // Nothing wants residents: all that is left open is parked, or stays.
      std::vector<bool> resident(groups_.size(), memory_.placement != MemoryPlacement::kHost);
      for (size_t k = 0; k < groups_.size(); ++k) {
        if (groups_[k].fixed) resident[k] = groups_[k].fixed == Tier::kDevice;
      }
      return TryResidents(resident, activations, least, always);
    }
    if (always + least.bytes > memory_.device) return TooSmall(least, always, at);
    const bool all = effort_ == Effort::kAll;
    Status refused = OkStatus();
    bool any = false, gave_all = false;  // gave_all: that is there, for copies
    for (const double room : all ? std::span(kRooms) : std::span(kOneRoom)) {
      if (any && !all) break;
      const Bytes wanted{static_cast<int64_t>(static_cast<double>(least.bytes.v) * room)};
      const Bytes transient = std::min(wanted, memory_.device - always);
      if (transient < wanted && std::exchange(gave_all, true)) continue;  // the same again
      Bytes left = memory_.device - always - transient;
      std::vector<bool> resident(groups_.size(), false);
      for (const size_t k : order_) {
        const Group& g = groups_[k];
        if (g.fixed || g.bytes > left) continue;
        resident[k] = true;
        left = left - g.bytes;
      }
      const Status status = TryResidents(resident, activations, least, always);
      if (!status.ok() && status.code() != StatusCode::kOutOfMemory) return status;
      if (!status.ok()) refused = status;
      any |= status.ok();
    }
    return any ? OkStatus() : refused;
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
        fmt::format("memory.device is {}, and {} {} {} alone needs {} on the device (largest operand {}), "
                    "beside {} that are always there. {}",
                    ToString(memory_.device), ToString(node.phase), ToString(node.op), OfBlock(node.block),
                    ToString(least.bytes), largest, ToString(always), remedies_));
  }

  // Inputs, outputs, constants and caches, and what an option says.
  Bytes AlwaysOnDevice() const {
    Bytes sum{};
    std::set<std::string> seen;
    for (const GraphUse& use : graphs_) {
      const Graph& graph = *use.of.graph;
      for (ValueId id = 0; id < graph.num_values(); ++id) {
        const Value& v = graph.value(id);
        const bool always =
            v.role == Role::kInput || v.role == Role::kOutput || v.role == Role::kConstant || v.role == Role::kCache;
        if (graph.Root(id) != id || !always || !seen.insert(v.name + v.type.ToString()).second) continue;
        sum += AlignUp(v.type.bytes(), kAlignment);
      }
    }
    for (const Group& g : groups_) {
      if (g.fixed == Tier::kDevice) sum += g.bytes;
    }
    return sum;
  }

  // What a pipeline keeps there of micro-batches in flight.
  Bytes SlotsOnDevice(const ResidencySpec& spec) const {
    Bytes most{};
    for (const GraphUse& use : graphs_) {
      if (use.slots == nullptr) continue;
      const PipelinedGraph placed = Reside(*use.of.graph, *use.of.parts, spec);
      const SlotSizes sizes = LayOut(placed.graph, placed.parts, threads_).in(Tier::kDevice).slots;
      Bytes sum{};
      for (size_t chunk = 0; chunk < sizes.size(); ++chunk) {
        for (size_t kind = 0; kind < kNumSlotKinds; ++kind) sum += sizes[chunk][kind] * (*use.slots)[chunk][kind];
      }
      most = std::max(most, sum);
    }
    return most;
  }

  Status TryResidents(std::vector<bool> resident, std::optional<Tier> activations, const LeastBytes& least,
                      Bytes always) {
    const bool limited = memory_.IsLimited();
    double scale = kFirstGuess;
    host_ = memory_.host;
    Status refused = OkStatus();
    for (int attempt = 0; attempt < kTries; ++attempt) {
      // At last, the least: nothing lives on the device that need not, and no copy is there before or after its use.
      const bool last = attempt + 1 == kTries;
      if (last && memory_.placement == MemoryPlacement::kAuto) resident.assign(resident.size(), false);
      TEMPER_ASSIGN_OR_RETURN(const Homes homes, HomesOf(resident, host_));
      Bytes held = always;
      for (size_t k = 0; k < groups_.size(); ++k) held += resident[k] && !groups_[k].fixed ? groups_[k].bytes : Bytes{};
      const Bytes room = !limited ? memory_.device
                         : last   ? Bytes{}
                                  : Bytes{static_cast<int64_t>(static_cast<double>((memory_.device - held).v) * scale)};
      std::vector<PipelinedGraph> graphs;
      const ResidencySpec spec = SpecOf(homes, activations, room);
      for (const GraphUse& use : graphs_) graphs.push_back(Reside(*use.of.graph, *use.of.parts, spec));
      std::vector<PartedGraph> placed;
      for (const PipelinedGraph& graph : graphs) placed.push_back({&graph.graph, &graph.parts});
      TEMPER_ASSIGN_OR_RETURN(std::vector<Program> programs, place_(placed));
      const Program& program = programs[0];
      if (program.host.bytes > memory_.host) {
        refused = HostTooSmall(program.host.bytes);
        host_ = host_ - (program.host.bytes - memory_.host);
        continue;
      }
      if (!limited || program.arena_bytes <= memory_.device) {
        Keep(std::move(programs));
        return OkStatus();
      }
      refused = OutOfMemory(fmt::format("memory.device is {}, and the step takes {} of the device, most at {}. {}",
                                        ToString(memory_.device), ToString(program.arena_bytes),
                                        program.peak_instruction, remedies_));
      const Bytes over = program.arena_bytes - memory_.device;
      if (room - over > least.bytes) {
        scale *= static_cast<double>((room - over).v) / static_cast<double>(room.v) * 0.99;
      } else if (memory_.placement != MemoryPlacement::kAuto || !DropResidents(over, &resident)) {
        // Copies and activations take more than their sum: packing, and what moves hold on to.
        scale *= static_cast<double>((room - over).v) / static_cast<double>(room.v) * 0.99;
      }
    }
    return refused;
  }

  // Those that spare the least, until `over` bytes are free. False where there are none.
  bool DropResidents(Bytes over, std::vector<bool>* resident) const {
    Bytes dropped{};
    for (auto it = order_.rbegin(); it != order_.rend() && dropped < over; ++it) {
      if (!(*resident)[*it] || groups_[*it].fixed) continue;
      (*resident)[*it] = false;
      dropped += groups_[*it].bytes;
    }
    return dropped.v > 0;
  }

  // If it is the fastest so far, by the walk of its first Program.
  void Keep(std::vector<Program> programs) {
    const Seconds step = EstimateOn(memory_, programs[0]).total();
    if (best_ && best_step_ <= step) return;
    best_ = {.programs = std::move(programs)};
    best_step_ = step;
  }

  const MemorySpec& memory_;
  const std::vector<GraphUse> graphs_;
  const int threads_;
  const GraphPlacer& place_;
  const Effort effort_;
  const std::string& remedies_;
  std::vector<Group> groups_;
  std::vector<size_t> order_;  // of groups: what spares most per byte of the device first
  Bytes host_;                 // of its memory, for what lives there and copies from the disk: packing takes some
  std::optional<FoundPlacement> best_;
  Seconds best_step_;
};

}  // namespace

StepSeconds EstimateOn(const MemorySpec& memory, const Program& program) {
  const StepEstimate step =
      EstimateStep(program, {.device = &memory.rates, .host = &memory.host_rates, .links = memory.links});
  const Seconds stall = step.moves + step.stalled;
  return {.stall = stall, .compute = {step.step.v - stall.v}};
}

Result<FoundPlacement> SearchPlacement(const MemorySpec& memory, std::vector<GraphUse> graphs, int threads,
                                       const GraphPlacer& place, Effort effort, const std::string& remedies) {
  return Searcher(memory, std::move(graphs), threads, place, effort, remedies).Run();
}

}  // namespace temper
