#include "compile/memory/memory_policy.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>

#include "compile/layout/addresses.h"
#include "compile/memory/cast_weights.h"
#include "compile/memory/held_activations.h"
#include "compile/memory/tier_search.h"
#include "compile/step/fuse.h"
#include "graph/rule.h"
#include "graph/update_rule.h"
#include "program/program_names.h"

namespace temper {
namespace {

// Recomputing whole blocks is tried in this many steps: the first quarter of the blocks, the first half, ...
constexpr int kPartsOfBlocks = 4;

// Choices within this factor of the fastest are tried with all tiers.
constexpr double kNear = 1.25;

constexpr char kRemedies[] = "Try a smaller max_seq_len or per_device_train_batch_size";
constexpr char kForwardRemedies[] = "Try fewer tokens at a time (--max_new_tokens, --max_seq_len, --batch)";

// The graphs that FindTiers compiles together: for each Program its micro-batches, and its update; then what Programs
// gather before their steps.
struct StepUse {
  static constexpr size_t kNone = static_cast<size_t>(-1);
  struct Indices {
    size_t first, update = kNone, gathers = kNone;
  };
  StepUses uses;                  // borrows from the step
  std::vector<Indices> programs;  // where the graphs of each are among them
};

StepUse UseOf(const StepGraphs& step) {
  static const std::vector<PipelinePart> whole;
  StepUse use;
  StepUses& uses = use.uses;
  uses.apart = true;
  for (const ProgramGraphs& program : step.programs) {
    const std::vector<Slots>* const slots = program.pipeline ? &program.pipeline->calls.slots : nullptr;
    const bool one = program.micro_batches.size() == 1 && program.micro_batches.front().count == 1;
    if (program.pipeline || (one && !program.update.nodes().empty())) uses.apart = false;
    use.programs.push_back({.first = uses.graphs.size()});
    for (const ProgramGraphs::MicroBatches& some : program.micro_batches) {
      // Of a run that trains, only the step's time counts, and that of its longest rows.
      const int count = &program == &step.programs.front() || !step.trains() ? some.count : 0;
      uses.graphs.push_back({{&some.graph.graph, &some.graph.parts}, count, slots});
    }
    if (program.update.nodes().empty()) continue;
    use.programs.back().update = uses.graphs.size();
    uses.graphs.push_back({{&program.update, &whole}, 1});
  }
  for (size_t k = 0; k < step.programs.size(); ++k) {
    const auto& pipeline = step.programs[k].pipeline;
    if (!pipeline || pipeline->gathers.nodes().empty()) continue;
    use.programs[k].gathers = uses.graphs.size();
    uses.graphs.push_back({{&pipeline->gathers, &whole}, 1});
  }
  if (step.trains()) {
    const std::vector<ProgramGraphs::MicroBatches>& micro_batches = step.train().micro_batches;
    uses.gradients_last = micro_batches.size() == 1 && micro_batches[0].count == 1 && !step.train().pipeline;
  }
  return use;
}

// `memory` for that way to compile the step: what it casts stays on the device.
MemorySpec MemoryOf(const StepChoice& choice, MemorySpec memory) {
  if (choice.casts) memory.weights = memory.optimizer = Tier::kDevice;
  return memory;
}

// Whether some way to compile the step that casts its matrices may fit. `step` stores them.
bool MayFitIfCast(const MemorySpec& memory, const StepGraphs& step) {
  Bytes held{};
  for (const TierGroup& g : FindTierGroups(MemoryOf({.casts = true}, memory), UseOf(step).uses)) {
    if (g.fixed == Tier::kDevice && !g.lasts()) held += g.bytes;
  }
  return held - CopiesOfMatrices(step) <= memory.device;
}

// Whether no choice that stores its matrices, or casts them, as this one does can fit: they all hold the same
// persistent values.
bool NeverFits(const MemorySpec& memory, const StepGraphs& step) {
  if (memory.disk || !memory.IsLimited() || memory.host == kNoLimit) return false;
  return AlwaysHeld(FindTierGroups(memory, UseOf(step).uses)) > memory.device + memory.host;
}

// The number of elements that a step trains.
int64_t Trained(const StepUses& uses) {
  int64_t trained = 0;
  for (const GraphUse& use : uses.graphs) {
    for (const Node& node : use.of.graph->nodes()) {
      const UpdateRule* const rule = UpdateRuleOf(node.op);
      if (rule != nullptr && !rule->averages) trained += use.of.graph->value(node.inputs[0]).type.shape.elements();
    }
  }
  return trained;
}

// Makes the Programs of a step from graphs in the order of its `programs`, UseOf(step).programs. Borrows all.
MakePrograms MakerOf(const StepGraphs& step, const std::vector<StepUse::Indices>& use, const MemorySpec& memory,
                     int threads) {
  return [&step, &use, &memory, threads](const std::vector<MovedGraph>& ready) -> Result<std::vector<Program>> {
    const auto layout_of = [](const MovedGraph& of) { return of.layout ? &*of.layout : nullptr; };
    std::vector<ProgramPlan> plans;
    for (size_t k = 0; k < step.programs.size(); ++k) {
      const ProgramGraphs& program = step.programs[k];
      const StepUse::Indices& at = use[k];
      ProgramPlan& plan = plans.emplace_back(ProgramPlan{.name = program.name});
      if (program.pipeline) plan.pipeline = PipelinedStep{{}, program.pipeline->calls};
      int begin = 0;
      for (size_t m = 0; m < program.micro_batches.size(); ++m) {
        const int count = program.micro_batches[m].count;
        const MovedGraph& of = ready[at.first + m];
        if (program.pipeline) {
          plan.pipeline->graphs.insert(plan.pipeline->graphs.end(), static_cast<size_t>(count), &of.graph);
        } else {
          plan.stages.push_back({&of.graph.graph, begin, begin + count, layout_of(of)});
        }
        begin += count;
      }
      if (at.gathers != StepUse::kNone) plan.before = &ready[at.gathers].graph.graph;
      if (at.update != StepUse::kNone) {
        plan.stages.push_back({&ready[at.update].graph.graph, 0, 1, layout_of(ready[at.update])});
      }
    }
    const ArenaLimits limits = {memory.device, memory.host};
    TEMPER_ASSIGN_OR_RETURN(std::vector<Program> programs, AssignAddresses(plans, threads, limits));
    // Most choices of tiers are too large, of which nothing but the sizes is used.
    if (limits.Hold(programs.front())) {
      for (const MovedGraph& of : ready) TEMPER_RETURN_IF_ERROR(Verify(of.graph.graph));
    }
    return programs;
  };
}

// `use`: UseOf(step).
Result<FoundTiers> FindTiers(MemorySpec memory, const StepGraphs& step, StepUse use, int threads, Effort effort,
                             const std::string& remedies, SearchWork* work, Seconds known = kNoSeconds) {
  if (memory.disk) memory.update_part = UpdatePartFor(Trained(use.uses), memory.update_part);
  const MakePrograms make = MakerOf(step, use.programs, memory, threads);
  return SearchTiers(memory, std::move(use.uses), threads, make, effort, remedies, known, work);
}

// Room of shorter rows: that of the longest, and less where packing or background moves take more than that leaves.
constexpr double kRoomsOfShorter[] = {1, 0.9, 0.7, 0.4, 0};

// The Programs of `step`, whose values live where the longest rows' do.
Result<std::vector<Program>> PlaceAlike(const MemorySpec& memory, const StepGraphs& step, const Placement& longest,
                                        int threads) {
  const StepUse use = UseOf(step);
  const MakePrograms make = MakerOf(step, use.programs, memory, threads);
  std::vector<bool> shorter(use.uses.graphs.size(), false);
  for (size_t k = 0; k < step.programs.size(); ++k) {
    if (!step.programs[k].shorter) continue;
    const StepUse::Indices& at = use.programs[k];
    for (size_t m = 0; m < step.programs[k].micro_batches.size(); ++m) shorter[at.first + m] = true;
    for (const size_t one : {at.update, at.gathers}) {
      if (one != StepUse::kNone) shorter[one] = true;
    }
  }
  Bytes device{}, host{};
  for (const double part : kRoomsOfShorter) {
    std::vector<MovedGraph> placed;
    for (size_t k = 0; k < use.uses.graphs.size(); ++k) {
      const PartedGraph& of = use.uses.graphs[k].of;
      MovedGraph& moved = placed.emplace_back();
      if (longest.moves) {
        ResidencySpec spec = longest.spec;
        spec.homes = &longest.homes;
        spec.rates = &memory.rates;
        if (shorter[k]) spec.device = Bytes{static_cast<int64_t>(static_cast<double>(spec.device.v) * part)};
        moved.graph = Reside(*of.graph, *of.parts, spec);
      } else {
        moved.graph = {*of.graph, *of.parts};
      }
      moved.graph.graph = UpdateInPlace(std::move(moved.graph.graph));
    }
    TEMPER_ASSIGN_OR_RETURN(std::vector<Program> programs, make(placed));
    device = programs.front().arena_bytes;
    host = programs.front().host.bytes;
    if (device <= memory.device && host <= memory.host) return programs;
    if (!longest.moves || longest.spec.device == kNoLimit) break;
  }
  return OutOfMemory(fmt::format("with Programs of shorter rows the run takes {} of the device and {} of the host",
                                 ToString(device), ToString(host)));
}

// Lower bound on the time of the micro-batches with any tiers: their kernels alone. Keeps their costs in `use`.
Seconds ComputingAlone(const StepGraphs& step, const DeviceRates& rates, int threads, StepUse* use) {
  double sum = 0;
  const std::vector<ProgramGraphs::MicroBatches>& micro_batches = step.train().micro_batches;
  for (size_t k = 0; k < micro_batches.size(); ++k) {
    std::optional<NodeCosts>& costs = use->uses.graphs[use->programs.front().first + k].costs;
    costs = CostsOfNodes(micro_batches[k].graph.graph, &rates, threads);
    sum += micro_batches[k].count * costs->starts.back().v;
  }
  return {sum};
}

std::string DescribePolicy(const Program& program) {
  std::map<std::pair<std::string_view, Tier>, Bytes> by_class;
  for (const Buffer& b : program.buffers) {
    const std::string_view what = b.role == Role::kWeight           ? "weights"
                                  : b.role == Role::kOptimizerState ? "optimizer"
                                  : b.role == Role::kAdapter        ? "adapters"
                                                                    : "";
    if (!what.empty()) by_class[{what, b.tier()}] += b.type.bytes();
  }
  // Gradients may be created as activations are freed: count those alive at the peak.
  for (const auto& [tier, peak] : {std::pair(Tier::kDevice, &program.peak), std::pair(Tier::kHost, &program.host.peak),
                                   std::pair(Tier::kDisk, &program.disk.peak)}) {
    if (peak->gradients.v > 0) by_class[{"gradients", tier}] = peak->gradients;
  }
  std::string text;
  for (const auto& [key, bytes] : by_class) {
    text +=
        fmt::format("{}{} {} on the {}", text.empty() ? "" : ", ", key.first, ToString(bytes), ToString(key.second));
  }
  return text;
}

// Goes through the choices and keeps the fastest that fits: tries each with one choice of tiers, then the best ones
// with all, then the best of these with smaller chunks of the loss, too.
class StepChooser {
 public:
  StepChooser(const MemorySpec& memory, std::span<const StepChoice> choices, const StepMaker& make, int threads)
      : memory_(memory), choices_(choices), make_(make), threads_(threads), remedies_(kRemedies) {
    const bool auto_recompute = std::any_of(
        choices.begin(), choices.end(), [&](const StepChoice& c) { return c.recompute != choices.front().recompute; });
    if (!auto_recompute) remedies_ += ", or memory.recompute: auto";
    for (const StepChoice& choice : choices) KindOf(choice).never_fits = false;
    // The planner makes many quick searches: each has a fifth of the work.
    if (memory.quick) work_.nodes = SearchWork::kEnough / 5 * 4;
    if (memory.matrices != TrainedMatrices::kAuto) remedies_ += ", or memory.bf16_weights: auto";
  }

  Result<FoundTiers> Run(ChosenMemory* chosen) {
    Status refused = OkStatus();
    const StepChoice* last = nullptr;  // whose refusal is told
    for (const StepChoice& choice : choices_) last = choice.casts == choices_.front().casts ? &choice : last;
    for (const StepChoice& choice : choices_) {
      if (best_ && choice.loss_chunk < options_[best_option_].choice.loss_chunk) break;
      // Later choices compute more, so they can at most save the waits of the best one, or its moves.
      if (best_ && !MayGain() && !(choice.casts && Moves())) break;
      if (best_ && work_.half()) break;
      if (KindOf(choice).never_fits) continue;
      // The last one, which needs the least, decides whether any fits.
      if (work_.enough() && &choice != last) continue;
      // Smaller chunks of the loss leave more of the device, which was not what was missing.
      const bool finer = choice.loss_chunk < choices_.front().loss_chunk;
      if (!best_ && &choice != last && finer && work_.short_of_host) continue;
      // The message of the last one tells what is missing.
      if (!best_ && &choice != last && HoldsTooMuch(choice)) {
        options_.push_back({.choice = choice, .tried = true});
        continue;
      }
      const Status status = Look(choice, Effort::kOne, /*decides=*/&choice == last);
      if (!status.ok() && status.code() != StatusCode::kOutOfMemory) return status;
      // Of the last one, which needs the least. With matrices stored, if there is a choice: then all tiers are allowed.
      if (!status.ok() && choice.casts == choices_.front().casts) refused = status;
    }
    if (!best_) return refused;
    if (MayGain() && !memory_.quick) TEMPER_RETURN_IF_ERROR(Refine());
    if (MayGain() && !memory_.quick && !work_.enough()) TEMPER_RETURN_IF_ERROR(CutLossFiner());
    DescribePolicy(chosen);
    return *std::move(best_);
  }

 private:
  // The choices that store their matrices, or those that cast them.
  struct Kind {
    bool made = false, tried = false, never_fits = true;  // until there is such a choice
    // Once one that recomputes nothing was made, and what is cheap.
    std::optional<HeldActivations> held, held_selective;
    Bytes always;  // of values that no tier but the device and the host may hold
  };
  Kind& KindOf(const StepChoice& choice) { return kinds_[choice.casts]; }

  // Whether activations of that size, which are alive when the backward begins, exceed the tiers where they may be,
  // beside what always lives there.
  bool IsTooMuch(Bytes activations, const Kind& kind) const {
    if (!memory_.IsLimited()) return false;
    const bool may_leave = memory_.activations != Tier::kDevice && memory_.policy != TierPolicy::kDevice;
    if (!may_leave) return activations > memory_.device;
    return memory_.host != kNoLimit && activations + kind.always > memory_.device + memory_.host;
  }
  bool HoldsTooMuch(const StepChoice& choice) {
    const Kind& kind = KindOf(choice);
    if (choice.recompute == Recompute::kSelective) {
      return kind.held_selective && IsTooMuch(kind.held_selective->Least(0), kind);
    }
    if (!kind.held) return false;
    return IsTooMuch(kind.held->Least(choice.recompute == Recompute::kBlock ? choice.recompute_blocks : 0), kind);
  }

  // `decides`: if this does not fit, none does, and its message tells why.
  Status Look(const StepChoice& choice, Effort effort, bool decides) {
    TEMPER_ASSIGN_OR_RETURN(StepGraphs step, make_(choice));
    Kind& kind = KindOf(choice);
    StepOption& option = options_.emplace_back(StepOption{.choice = choice});
    const bool alone = options_.size() == 1;
    StepUse use = UseOf(step);
    if (!kind.made && memory_.IsLimited() && !memory_.disk) {
      kind.always = AlwaysHeld(FindTierGroups(MemoryOf(choice, memory_), use.uses));
    }
    kind.made = true;
    const HeldActivations held(step);
    if (choice.recompute == Recompute::kNone && !kind.held) kind.held = held;
    if (choice.recompute == Recompute::kSelective && !kind.held_selective) kind.held_selective = held;
    // If these values alone are too much, the search says by how much, and no other choice is looked at.
    const bool may_fit = memory_.host == kNoLimit || kind.always <= memory_.device + memory_.host;
    if (!best_ && !decides && may_fit && IsTooMuch(held.Least(0), kind)) {
      option.tried = true;
      return OutOfMemory("its activations alone exceed the memory");
    }
    if (!alone) option.step = ComputingAlone(step, memory_.rates, threads_, &use);
    option.computing = option.step;
    if (best_ && !Beats(option.computing) && !(choice.casts && IsAsFast(option.computing))) return OkStatus();
    option.tried = true;
    Result<FoundTiers> tiers =
        FindTiers(MemoryOf(choice, memory_), step, std::move(use), threads_, effort, remedies_, &work_);
    Kind& casting = kinds_[true];
    if (!kind.tried && !choice.casts && !casting.never_fits) casting.never_fits = !MayFitIfCast(memory_, step);
    if (!kind.tried && !tiers.ok()) kind.never_fits = NeverFits(MemoryOf(choice, memory_), step);
    kind.tried = true;
    TEMPER_ASSIGN_OR_RETURN(FoundTiers found, std::move(tiers));
    // A first choice with everything on the device is the fastest possible: its time need not be estimated.
    const bool estimates = found.all_on_device && !alone;
    const StepSeconds seconds = estimates ? EstimateOn(memory_, found.programs[0]) : found.seconds;
    Note(found.programs[0], seconds, &option);
    const bool moves_less = best_ && found.all_on_device && !best_->all_on_device && IsAsFast(seconds.total());
    if (!best_ || moves_less || seconds.total() < best_seconds_.total()) {
      Keep(std::move(found), seconds, options_.size() - 1);
      if (!best_->all_on_device) best_step_ = std::move(step);
    }
    return OkStatus();
  }

  // Whether a step that takes `seconds` is worth finding.
  bool Beats(Seconds seconds) const { return seconds.v < best_seconds_.total().v * (1 - kWorthwhile); }
  // Forecasts cannot tell it from the best one's.
  bool IsAsFast(Seconds seconds) const { return seconds.v <= best_seconds_.total().v * (1 + kWorthwhile); }
  bool Moves() const { return !best_->all_on_device; }
  // Whether another way to place values may be.
  bool MayGain() const { return Beats(best_seconds_.compute); }

  // Tries the choices near the best one with all tiers: with slow links, one try each does not rank them reliably.
  Status Refine() {
    const Seconds near{best_seconds_.total().v * kNear};
    std::vector<size_t> order(options_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (work_.half()) std::swap(order[0], order[best_option_]);
    const size_t first = best_option_;  // whose graphs are still there
    for (const size_t k : order) {
      const StepOption& o = options_[k];
      if (k == first ? work_.enough() : work_.most()) break;
      if (!o.fits || o.step > near || !Beats(o.computing) || o.host + o.disk == Bytes{}) continue;
      StepGraphs step;
      if (k == first && best_step_) {
        step = *std::exchange(best_step_, std::nullopt);
      } else {
        TEMPER_ASSIGN_OR_RETURN(step, make_(o.choice));
      }
      Result<FoundTiers> others = FindTiers(MemoryOf(o.choice, memory_), step, UseOf(step), threads_, Effort::kOthers,
                                            remedies_, &work_, o.step);
      if (!others.ok() && others.status().code() == StatusCode::kOutOfMemory) continue;  // the first way fits
      TEMPER_ASSIGN_OR_RETURN(FoundTiers found, std::move(others));
      const StepSeconds seconds = found.seconds;
      if (seconds.total() < options_[k].step) Note(found.programs[0], seconds, &options_[k]);
      if (seconds.total() < best_seconds_.total()) Keep(std::move(found), seconds, k);
    }
    return OkStatus();
  }

  // The head is the memory peak of many steps, and smaller chunks of its loss leave more of the device to residents:
  // halves the chunks while that is faster. Every additional chunk passes over the head's weight and gradient again,
  // which the estimate counts.
  Status CutLossFiner() {
    for (bool faster = memory_.loss_chunks_keep_bits; faster && MayGain();) {
      const StepChoice best = options_[best_option_].choice;
      const auto finer = std::find_if(choices_.begin(), choices_.end(), [&](const StepChoice& c) {
        StepChoice coarser = c;
        coarser.loss_chunk = best.loss_chunk;
        return coarser == best && c.loss_chunk < best.loss_chunk;
      });
      if (finer == choices_.end()) break;
      const size_t before = best_option_;
      const Status status = Look(*finer, Effort::kAll, /*decides=*/false);
      if (!status.ok() && status.code() != StatusCode::kOutOfMemory) return status;
      faster = best_option_ != before;
    }
    return OkStatus();
  }

  static void Note(const Program& train, const StepSeconds& seconds, StepOption* option) {
    option->fits = true;
    option->step = seconds.total();
    option->device = train.arena_bytes;
    option->host = train.host.bytes;
    option->disk = train.disk.bytes;
    option->moved = {};
    for (const LinkTraffic& t : TrafficOfStep(train)) option->moved += t.bytes;
  }

  void Keep(FoundTiers found, const StepSeconds& seconds, size_t option) {
    best_ = std::move(found);
    best_seconds_ = seconds;
    best_option_ = option;
  }

  void DescribePolicy(ChosenMemory* chosen) {
    std::rotate(options_.begin(), options_.begin() + static_cast<std::ptrdiff_t>(best_option_),
                options_.begin() + static_cast<std::ptrdiff_t>(best_option_) + 1);
    *chosen = {.choice = options_.front().choice, .stall = best_seconds_.stall, .compute = best_seconds_.compute};
    if (!best_->all_on_device) chosen->text = temper::DescribePolicy(best_->programs[0]);
    if (best_->all_on_device && options_.size() > 1) chosen->text = "everything on the device";
    if (options_.size() > 1) chosen->options = std::move(options_);
    chosen->work = work_.nodes;
  }

  const MemorySpec& memory_;
  const std::span<const StepChoice> choices_;
  const StepMaker& make_;
  const int threads_;
  std::string remedies_;
  std::vector<StepOption> options_;
  std::optional<FoundTiers> best_;
  std::optional<StepGraphs> best_step_;  // its graphs, until all tiers are tried for them
  StepSeconds best_seconds_;
  size_t best_option_ = 0;
  std::array<Kind, 2> kinds_;  // of choices that store, and that cast
  SearchWork work_;
};

}  // namespace

std::string StepChoice::ToString() const {
  std::string text(temper::ToString(recompute));
  if (recompute != Recompute::kNone && recompute_blocks != kAllBlocks) {
    text += fmt::format(" in the first {} blocks", recompute_blocks);
  }
  if (casts) text += ", bf16 weights cast";
  if (loss_chunk != kDefaultLossChunk) text += fmt::format(", loss in chunks of {} rows", loss_chunk);
  return text;
}

std::vector<StepChoice> ChoicesWithin(Recompute recompute, int recompute_blocks, int blocks, int64_t tokens,
                                      TrainedMatrices matrices) {
  std::vector<StepChoice> ways = {{recompute, recompute_blocks}};
  if (recompute == Recompute::kAuto) {
    ways = {{Recompute::kNone}, {Recompute::kSelective}};
    for (int part = 1; part < kPartsOfBlocks; ++part) {
      const int some = blocks * part / kPartsOfBlocks;
      if (some > 0 && ways.back().recompute_blocks != some) ways.push_back({Recompute::kBlock, some});
    }
    ways.push_back({Recompute::kBlock});
  }
  std::vector<StepChoice> choices;
  for (int64_t chunk = kDefaultLossChunk; chunk >= kLeastLossChunk; chunk /= 2) {
    if (chunk < kDefaultLossChunk && chunk >= tokens) continue;  // the same as one chunk
    for (StepChoice way : ways) {
      way.loss_chunk = chunk;
      for (const bool casts : {false, true}) {
        way.casts = casts;
        if (matrices != (casts ? TrainedMatrices::kStored : TrainedMatrices::kCast)) choices.push_back(way);
      }
    }
  }
  return choices;
}

std::string ChosenMemory::ToString() const {
  const double slower = compute.v > 0 ? 100 * stall.v / compute.v : 0;
  const std::string again = options.empty() ? "" : fmt::format("; recompute {}", choice.ToString());
  return fmt::format("{}{}; estimated wait for moves: {:.0f} % of compute time", text, again, slower);
}

std::vector<std::string> OptionLines(std::span<const StepOption> options) {
  std::vector<std::string> lines;
  if (options.empty()) return lines;
  lines.push_back(
      fmt::format("{:<48} {:>10} {:>12} {:>12} {:>14}", "recompute", "step", "device", "host, disk", "moved per step"));
  for (const StepOption& o : options) {
    const std::string seconds = fmt::format("{:.3g} s", o.step.v);
    std::string line = fmt::format("{:<48} ", o.choice.ToString());
    if (o.fits) {
      line += fmt::format("{:>10} {:>12} {:>12} {:>14}{}", seconds, temper::ToString(o.device),
                          temper::ToString(o.host + o.disk), temper::ToString(o.moved),
                          lines.size() == 1 ? "  chosen" : "");
    } else {
      line += o.tried ? "does not fit" : fmt::format("not tried: compute time alone is {}", seconds);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

Result<std::vector<Program>> FitWithin(const MemorySpec& memory, std::span<const StepChoice> choices,
                                       const StepMaker& make, int threads, ChosenMemory* chosen,
                                       const StepMaker& make_all) {
  ChosenMemory merged, behind;
  Result<FoundTiers> found = StepChooser(memory, choices, make, threads).Run(&merged);
  const bool refused = !found.ok() && found.status().code() == StatusCode::kOutOfMemory;
  if (choices.front().merges && (refused || (found.ok() && !TrafficOfStep(found->programs[0]).empty()))) {
    // An update during the backward takes memory that the backward needs, gradients of one micro-batch cannot leave the
    // device, and moves may take cores from kernels. An update after the backward may fit or be faster. Ranks need not
    // agree: all collectives keep their order.
    std::vector<StepChoice> unmerged(choices.begin(), choices.end());
    if (memory.quick && !refused) unmerged = {merged.choice};
    for (StepChoice& choice : unmerged) choice.merges = false;
    Result<FoundTiers> others = StepChooser(memory, unmerged, make, threads).Run(&behind);
    if (refused || (others.ok() && behind.stall + behind.compute < merged.stall + merged.compute)) {
      found = std::move(others);
      merged = std::move(behind);
    }
  }
  TEMPER_RETURN_IF_ERROR(found.status());
  if (make_all) {
    TEMPER_ASSIGN_OR_RETURN(const StepGraphs all, make_all(merged.choice));
    TEMPER_ASSIGN_OR_RETURN(found->programs, PlaceAlike(memory, all, found->placement, threads));
    if (!merged.options.empty()) {
      merged.options.front().device = found->programs.front().arena_bytes;
      merged.options.front().host = found->programs.front().host.bytes;
    }
  }
  if (chosen != nullptr) *chosen = std::move(merged);
  return std::move(found->programs);
}

Result<std::vector<Program>> FitForward(const MemorySpec& memory, const StepGraphs& step, int threads,
                                        ChosenMemory* chosen) {
  SearchWork work;
  TEMPER_ASSIGN_OR_RETURN(FoundTiers found,
                          FindTiers(memory, step, UseOf(step), threads, Effort::kAll, kForwardRemedies, &work));
  if (chosen != nullptr && !found.all_on_device) {
    const StepSeconds& seconds = found.seconds;
    *chosen = {.text = DescribePolicy(found.programs[0]), .stall = seconds.stall, .compute = seconds.compute};
  }
  return std::move(found.programs);
}

}  // namespace temper
