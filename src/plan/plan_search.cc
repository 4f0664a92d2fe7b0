#include "plan/plan_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "base/for_each.h"
#include "base/team.h"
#include "compile/estimate/rank_clock.h"
#include "compile/pipeline/balance.h"
#include "compile/pipeline/pipeline.h"
#include "compile/run/few_blocks.h"
#include "compile/run/mesh_options.h"
#include "compile/run/run_frame.h"
#include "graph/update_rule.h"

namespace temper {
namespace {

// Most candidates that are compiled whole and fit. Fewer if no uncompiled one promises more than the best of them.
// Candidates that turn out not to fit come on top, up to the number shown.
constexpr size_t kFinalists = 6;
constexpr size_t kShown = 10;
// Extrapolations through the same points differ by rounding.
constexpr double kSameTime = 1e-6;
// Kernels of meshes that differ only in how they hold weights differ by less: sums of gradients, casts.
constexpr double kSameKernels = 0.01;
// Candidates that are forecast beside each other, whatever the number of processors: what they rule out is then the
// same on every machine.
constexpr size_t kAtOnce = 8;

// Blocks that keep gathered weights from forward to backward: as few as possible, half, all.
enum class Kept : uint8_t { kLeast, kHalf, kAll };

struct Setting {
  int ranks = 1;
  int64_t pp = 1, dp = 1, fsdp = 1, tp = 1, rows = 1;
  Recompute recompute = Recompute::kNone;
  Kept kept = Kept::kLeast;
  bool overlap = true;

  // mesh.gathered_blocks; nullopt: the default. With kHalf, models of few blocks extrapolate through the same points.
  std::optional<int64_t> GatheredBlocks(int64_t blocks) const {
    if (fsdp == 1 || pp > 1 || kept == Kept::kLeast) return std::nullopt;
    return kept == Kept::kAll ? blocks : (blocks + 1) / 2;
  }
  std::string Settings(const RunConfig& config, int64_t rows_of_step, int64_t blocks) const {
    const std::string stages = pp > 1 ? fmt::format("pp={},", pp) : "";
    std::string text = ranks == 1 ? "1 device" : fmt::format("--mesh {}dp={},fsdp={},tp={}", stages, dp, fsdp, tp);
    text += fmt::format(" --per_device_train_batch_size {} --gradient_accumulation_steps {} --memory.recompute {}",
                        rows, rows_of_step / (rows * dp * fsdp), ToString(recompute));
    const std::optional<int64_t> gathered = GatheredBlocks(blocks), &given = config.mesh.gathered_blocks;
    if (fsdp > 1 && !config.mesh.reshard_after_forward) text += " --mesh.reshard_after_forward true";
    if (fsdp > 1 && gathered != given) {
      text += fmt::format(" --mesh.gathered_blocks {}", gathered.value_or(overlap ? 1 : 0));
    }
    if (ranks > 1 && overlap != config.mesh.overlap) text += fmt::format(" --mesh.overlap {}", overlap);
    return text;
  }
  RunConfig Apply(RunConfig config, int64_t micro_batches, int64_t blocks) const {
    config.mesh.pp = pp;
    config.mesh.pp_layers.clear();
    config.mesh.dp = dp;
    config.mesh.fsdp = fsdp;
    config.mesh.tp = tp;
    config.mesh.reshard_after_forward = true;
    config.mesh.gathered_blocks = GatheredBlocks(blocks);
    config.mesh.overlap = overlap;
    config.machine.nprocs = 1;
    config.machine.recompute = recompute;
    config.machine.recompute_blocks.reset();
    config.batch.per_device_train_batch_size = rows;
    config.batch.per_device_eval_batch_size = rows;
    config.batch.gradient_accumulation_steps = micro_batches;
    return config;
  }
  int64_t MicroBatches(int64_t rows_of_step) const { return rows_of_step / (rows * dp * fsdp); }
  // Equal except for the rows of a micro-batch: a choice that does not fit with few rows does not fit with more.
  auto WithoutRows() const { return std::make_tuple(ranks, pp, dp, fsdp, tp, recompute, kept, overlap); }
  // Equal except for recompute: if less recomputing fits, more is only slower.
  auto WithoutRecompute() const { return std::make_tuple(ranks, pp, dp, fsdp, tp, rows, kept, overlap); }
  // Equal except for gathered blocks: if keeping them saves no time, it only takes memory.
  auto WithoutKept() const { return std::make_tuple(ranks, pp, dp, fsdp, tp, rows, recompute, overlap); }
  // Equal in the kernels of a micro-batch.
  auto KernelsKey() const { return std::make_tuple(ranks, pp, tp, rows, recompute); }
  int OnHost(const Cluster& cluster) const { return std::min(ranks, cluster.devices_per_host); }
  // The setting of one of its stages.
  Setting Stage() const {
    Setting stage = *this;
    stage.ranks = static_cast<int>(ranks / pp);
    stage.pp = 1;
    return stage;
  }
};

// Adds every combination of recompute and gathering for one mesh and
// micro-batch; those that keep fewer blocks gathered come first.
void AddWays(Setting choice, std::vector<Setting>* choices) {
  for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kBlock}) {
    for (const Kept kept : {Kept::kLeast, Kept::kHalf, Kept::kAll}) {
      for (const bool overlap : {true, false}) {
        // Neither has an effect if nothing is gathered, and recomputed blocks gather again anyway. For stages, only the
        // default is considered.
        if ((choice.fsdp == 1 || choice.pp > 1) && !(kept == Kept::kLeast && overlap)) continue;
        if (recompute == Recompute::kBlock && kept != Kept::kLeast) continue;
        choice.recompute = recompute;
        choice.kept = kept;
        choice.overlap = overlap;
        choices->push_back(choice);
      }
    }
  }
}

// `stages`: the numbers of stages that the model can be cut into, ascending.
std::vector<Setting> SettingsOn(const Cluster& cluster, int64_t rows_of_step, const std::vector<int>& stages,
                                SearchGoal goal) {
  std::vector<Setting> choices;
  for (int ranks = goal == SearchGoal::kFewestDevices || cluster.shared ? 1 : cluster.devices();
       ranks <= cluster.devices(); ++ranks) {
    for (const int pp : stages) {
      if (pp > ranks || ranks % pp != 0) continue;
      const int each = ranks / pp;
      for (int tp = 1; tp <= std::min(each, cluster.devices_per_host); ++tp) {
        for (int fsdp = 1; each % tp == 0 && fsdp <= each / tp; ++fsdp) {
          if (each / tp % fsdp != 0) continue;
          const int dp = each / tp / fsdp;
          for (int64_t rows = 1; rows * dp * fsdp <= rows_of_step; rows *= 2) {
            if (rows_of_step % (rows * dp * fsdp) != 0) continue;
            // With fewer micro-batches than stages most stages wait most of the time.
            if (pp > 1 && rows_of_step / (rows * dp * fsdp) < pp) continue;
            AddWays({.ranks = ranks, .pp = pp, .dp = dp, .fsdp = fsdp, .tp = tp, .rows = rows}, &choices);
          }
        }
      }
    }
  }
  return choices;
}

class Searcher {
 public:
  Searcher(const Planner& planner, const RunConfig& config, int64_t rows_of_step)
      : planner_(planner), config_(config), rows_of_step_(rows_of_step), blocks_(Blocks(planner.model())) {
    if (!config.lora.NamesBlocks()) few_.emplace(planner.model());
    if (few_ && !few_->any()) few_.reset();
  }

  // The numbers of stages of pipelines to consider. 1 alone if the figures of a stage cannot be extrapolated from few
  // blocks.
  std::vector<int> Stages() const {
    std::vector<int> stages = {1};
    const RunConfig::Mesh& mesh = config_.mesh;
    const bool open = MemorySpecOf(config_).IsOpen() && mesh.grad_sync != GradSync::kStep && !mesh.gathered_blocks;
    if (!few_ || !open || planner_.cluster().shared) return stages;
    const Result<Graph> forward = AdaptedForward(planner_.model(), config_);
    if (!forward.ok()) return stages;
    const BlockCosts costs = CostsOfBlocks(*forward);
    const int most = static_cast<int>(std::min<int64_t>(planner_.cluster().devices(), blocks_));
    for (int pp = 2; pp <= most; ++pp) {
      if (CanCut(*forward, costs, pp)) stages.push_back(pp);
    }
    return stages;
  }

  // The seconds of kernels in a micro-batch, but for updates. Empty if they are not known.
  struct Kernels {
    double outside = 0;  // of the blocks
    std::vector<double> of_kind;
  };
  Kernels KernelsOf(const Setting& choice) const {
    Kernels kernels;
    if (!few_) return kernels;
    const auto planned = Plan(few_->one_of_each(), choice.Stage());
    if (!planned.ok()) return kernels;
    kernels.of_kind.assign(few_->one_of_each().facts().kinds.size(), 0);
    const Cluster& cluster = planner_.cluster();
    const Program& train = planned->run.train();
    const TimedSegments timed = TimeOf(train, {.device = &cluster.ShareOf(choice.Stage().OnHost(cluster)).rates});
    for (const Call& call : train.schedule) {
      if (call.kind != Call::Kind::kRun || call.micro_batch != 0) continue;
      const Binding& binding = train.bindings[static_cast<size_t>(call.binding)];
      const Segment& segment = train.segments[static_cast<size_t>(binding.segment)];
      if (segment.phase == Phase::kUpdate) continue;
      // Blocks beyond the model's own are those of a teacher, which no choice of its few blocks changes.
      const bool outside = binding.block < 0 || binding.block >= std::ssize(kernels.of_kind);
      double& sum = outside ? kernels.outside : kernels.of_kind[static_cast<size_t>(binding.block)];
      for (size_t i = 0; i < segment.instructions.size(); ++i) {
        if (UpdateRuleOf(segment.instructions[i].op) != nullptr) continue;
        sum += timed[static_cast<size_t>(binding.segment)][i].kernel.total().v;
      }
    }
    return kernels;
  }

  // A lower bound of the seconds of a step: those of its kernels alone. Zero if they are not known.
  Seconds LeastSeconds(const Setting& choice, const Kernels& kernels) const {
    if (kernels.of_kind.empty()) return {};
    double of_micro_batch = kernels.outside;
    for (size_t k = 0; k < kernels.of_kind.size(); ++k) {
      of_micro_batch += few_->CountOf(k, BlocksOf(choice)) * kernels.of_kind[k];
    }
    const auto micro_batches = static_cast<double>(choice.MicroBatches(rows_of_step_));
    return OfStep({.seconds = of_micro_batch * micro_batches * (1 - kSameKernels)}, choice);
  }

  // A candidate that the setting is no better than, if its step takes `least` or longer. Zero: no bound is known.
  Candidate Best(const Setting& choice, Seconds least) const {
    const auto tokens = static_cast<double>(rows_of_step_ * *config_.data.max_seq_len);
    const double per_second = least > Seconds{} ? tokens / least.v : std::numeric_limits<double>::infinity();
    return {.devices = choice.ranks, .fits = true, .step = least, .tokens_per_second = per_second};
  }

  // nullopt: this model or its rows cannot be split this way, or `last`, if there is one, is better. `kernels`: of the
  // setting, if they are known.
  std::optional<Candidate> Look(const Setting& choice, const Kernels& kernels, const Candidate* last,
                                SearchGoal goal) const {
    Candidate c = Described(choice);
    StepFigures figures;
    double flops_per_token = 0;
    if (!few_) {
      const auto all = Figures(planner_.model(), choice);
      if (!all) return std::nullopt;
      figures = *all;
      flops_per_token = all->flops_per_token;
    } else {
      const auto promises = [&](const StepFigures& low) {
        // Blocks beyond those of a short stage cost more than their kernels: no bound is known.
        if (last == nullptr || kernels.of_kind.empty() || !few_->HasAllOf(BlocksOf(choice))) return true;
        const auto micro_batches = static_cast<double>(choice.MicroBatches(rows_of_step_));
        StepFigures least = low;
        least.seconds += few_->AddedTo(kernels.of_kind, BlocksOf(choice)) * micro_batches * (1 - kSameKernels);
        return !IsBetter(*last, Best(choice, OfStep(least, choice)), goal);
      };
      const auto lines = few_->Follow([&](const Model& model) { return Figures(model, choice.Stage()); }, promises);
      if (!lines) return std::nullopt;
      figures = few_->Of(*lines, BlocksOf(choice));
      if (choice.pp > 1) figures = InStages(figures, choice.pp, choice.MicroBatches(rows_of_step_));
      flops_per_token = few_->Of(*lines, blocks_).flops_per_token;
    }
    c.bytes = {static_cast<int64_t>(figures.bytes)};
    c.step = {figures.seconds};
    c.fits = c.bytes <= c.limit;
    if (!c.fits) TakeFromHost(choice, figures, &c);
    c.tokens_per_second = static_cast<double>(rows_of_step_ * *config_.data.max_seq_len) / c.step.v;
    const double peak =
        planner_.cluster().ShareOf(choice.OnHost(planner_.cluster())).peak(ComputeDType(config_)) * choice.ranks;
    c.mfu = flops_per_token * c.tokens_per_second / peak;
    return c;
  }

  Result<Candidate> Compile(const Setting& choice) const {
    Candidate c = Described(choice);
    TEMPER_ASSIGN_OR_RETURN(
        const PlannedRun planned,
        planner_.Plan(choice.Apply(config_, choice.MicroBatches(rows_of_step_), blocks_), choice.ranks));
    c.bytes = planned.forecast.bytes;
    c.host = planned.forecast.host_bytes;
    c.fits = planned.forecast.fits;
    c.compiled = true;
    c.step = planned.forecast.simulation.step;
    c.tokens_per_second = planned.forecast.tokens_per_second;
    c.mfu = planned.forecast.mfu;
    return c;
  }

 private:
  // Moves the excess to the host, if the options allow it and the host has room.
  void TakeFromHost(const Setting& choice, const StepFigures& figures, Candidate* c) const {
    const Cluster& cluster = planner_.cluster();
    const Bytes excess = c->bytes - c->limit;
    const std::optional<Seconds> more = choice.pp > 1
                                            ? std::nullopt
                                            : SecondsOfSpill(cluster, config_, choice.OnHost(cluster), figures, excess,
                                                             choice.MicroBatches(rows_of_step_));
    if (!more) return;
    c->fits = true;
    c->bytes = c->limit;
    c->host = excess;
    c->step += *more;
  }

  Candidate Described(const Setting& choice) const {
    const Cluster& cluster = planner_.cluster();
    return {.settings = choice.Settings(config_, rows_of_step_, blocks_),
            .devices = choice.ranks,
            .limit = config_.memory.device.value_or(cluster.MemoryOf(choice.OnHost(cluster)))};
  }

  // Whether each of so many stages only takes what the one before it hands on.
  bool CanCut(const Graph& forward, const BlockCosts& costs, int stages) const {
    const Setting choice{.ranks = stages, .pp = stages};
    const Result<MeshSpec> mesh =
        MeshOf(choice.Apply(config_, stages, blocks_), stages, /*rank=*/0, planner_.model().facts().heads);
    if (!mesh.ok()) return false;
    PipelineCut cut{.stages = stages, .chunks_per_stage = mesh->pipeline.chunks_per_stage};
    Result<std::vector<int>> chunks = ChunkOfBlocks(costs, cut.chunks(), {});
    if (!chunks.ok()) return false;
    cut.chunk_of_block = *std::move(chunks);
    return CutPipeline(forward, cut).ok();
  }

  // Of a step, by the figures of one of its stages.
  Seconds OfStep(const StepFigures& stage, const Setting& choice) const {
    return {choice.pp == 1 ? stage.seconds : InStages(stage, choice.pp, choice.MicroBatches(rows_of_step_)).seconds};
  }

  // Of a stage, if there are several.
  int64_t BlocksOf(const Setting& choice) const { return (blocks_ + choice.pp - 1) / choice.pp; }

  // A step of a few micro-batches, with everything on the device.
  Result<PlannedRun> Plan(const Model& model, const Setting& choice) const {
    const int64_t micro_batches = std::min(choice.MicroBatches(rows_of_step_), kFewMicroBatches);
    RunConfig config = choice.Apply(config_, micro_batches, Blocks(model));
    // The bytes moved to the host are not linear in the blocks, but have a linear bound.
    if (config.memory.policy == TierPolicy::kAuto) config.memory.policy = TierPolicy::kDevice;
    return Planner(model, planner_.cluster(), planner_.rows()).PlanTraining(config, choice.ranks);
  }

  // The figures of a step with all its micro-batches.
  std::optional<StepFigures> Figures(const Model& model, const Setting& choice) const {
    const Result<PlannedRun> planned = Plan(model, choice);
    if (!planned.ok()) return std::nullopt;
    return FiguresOf(*planned, choice.MicroBatches(rows_of_step_));
  }

  static int64_t Blocks(const Model& model) { return static_cast<int64_t>(model.facts().kinds.size()); }

  const Planner& planner_;
  const RunConfig& config_;
  const int64_t rows_of_step_, blocks_;
  std::optional<FewBlocks> few_;  // nullopt: candidates are compiled whole
};

// The forecasts of settings, as far as they may be among those shown.
class Forecasts {
 public:
  Forecasts(const Searcher& searcher, std::span<const Setting> choices, SearchGoal goal)
      : searcher_(searcher), choices_(choices), goal_(goal), looked_(choices.size()), found_(choices.size()) {}

  // Looks at the most promising ones first, until no other can be among the best.
  void Run() {
    MakeGroups();
    for (;;) {
      const std::vector<size_t> order = Ordered();
      const Candidate* const last = order.size() < kShown ? nullptr : &*found_[order[kShown - 1]];
      const std::vector<size_t> next = Next(last);
      if (next.empty()) break;
      if (FindBounds(next)) continue;
      std::vector<std::optional<Candidate>> found(next.size());
      ForEach(std::ssize(next), AvailableProcessors(), [&](int64_t k) {
        const size_t i = next[static_cast<size_t>(k)];
        found[static_cast<size_t>(k)] = searcher_.Look(choices_[i], groups_[group_[i]].kernels, last, goal_);
      });
      for (size_t k = 0; k < next.size(); ++k) Note(next[k], std::move(found[k]));
    }
  }

  // Of those that were looked at and are not ruled out, the best first.
  std::vector<size_t> Ordered() const {
    std::vector<size_t> order;
    std::map<decltype(Setting().WithoutKept()), double> shortest;  // the shortest step of choices that keep less
    for (size_t i = 0; i < found_.size(); ++i) {
      if (!found_[i] || IsRuledOut(choices_[i])) continue;
      if (found_[i]->fits) {
        const auto [it, first] = shortest.try_emplace(choices_[i].WithoutKept(), found_[i]->step.v);
        if (!first && it->second <= found_[i]->step.v * (1 + kSameTime)) continue;
        it->second = found_[i]->step.v;
      }
      order.push_back(i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return IsBetter(*found_[a], *found_[b], goal_); });
    return order;
  }
  const Candidate& operator[](size_t i) const { return *found_[i]; }
  int ruled_out() const {
    int sum = 0;
    for (size_t i = 0; i < found_.size(); ++i) sum += found_[i] && !IsRuledOut(choices_[i]) ? 0 : 1;
    return sum;
  }

 private:
  // Settings with equal kernels.
  struct Group {
    const Setting* first;
    bool known = false;
    Searcher::Kernels kernels;  // empty until they are known
  };

  void MakeGroups() {
    std::map<decltype(Setting().KernelsKey()), size_t> index;
    for (size_t i = 0; i < choices_.size(); ++i) {
      const auto [it, fresh] = index.try_emplace(choices_[i].KernelsKey(), groups_.size());
      if (fresh) groups_.push_back({.first = &choices_[i]});
      group_.push_back(it->second);
      by_promise_.push_back(i);
    }
    // What computes something again takes no less than what computes nothing again.
    std::vector<size_t> plain;
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (choices_[i].recompute == Recompute::kNone) plain.push_back(i);
    }
    promised_.resize(choices_.size());
    FindBounds(plain);
    for (size_t i = 0; i < choices_.size(); ++i) {
      Setting none = choices_[i];
      none.recompute = Recompute::kNone;
      Promise(i, groups_[index.at(none.KernelsKey())]);
    }
    Sort();
  }

  void Promise(size_t i, const Group& group) {
    promised_[i] = searcher_.Best(choices_[i], searcher_.LeastSeconds(choices_[i], group.kernels));
  }

  void Sort() {
    std::sort(by_promise_.begin(), by_promise_.end());  // equal ones in the order of the choices
    std::stable_sort(by_promise_.begin(), by_promise_.end(),
                     [&](size_t a, size_t b) { return IsBetter(promised_[a], promised_[b], goal_); });
  }

  // Times the kernels of their groups, where they are not known. False: all are.
  bool FindBounds(const std::vector<size_t>& of) {
    std::vector<size_t> unknown;
    for (const size_t i : of) {
      if (!std::exchange(groups_[group_[i]].known, true)) unknown.push_back(group_[i]);
    }
    if (unknown.empty()) return false;
    ForEach(std::ssize(unknown), AvailableProcessors(), [&](int64_t k) {
      Group& group = groups_[unknown[static_cast<size_t>(k)]];
      group.kernels = searcher_.KernelsOf(*group.first);
    });
    for (size_t i = 0; i < choices_.size(); ++i) {
      if (std::find(unknown.begin(), unknown.end(), group_[i]) != unknown.end()) Promise(i, groups_[group_[i]]);
    }
    Sort();
    return true;
  }

  // Some of the most promising ones. Of those that may rule each other out only one. `last`: of those that are shown.
  std::vector<size_t> Next(const Candidate* last) const {
    std::vector<size_t> next;
    std::set<Rows> rows;
    std::set<Ways> ways;
    for (const size_t i : by_promise_) {
      if (next.size() == kAtOnce) break;
      if (looked_[i] || IsRuledOut(choices_[i])) continue;
      if (last != nullptr && IsBetter(*last, promised_[i], goal_)) break;
      if (rows.contains(choices_[i].WithoutRows()) || ways.contains(choices_[i].WithoutRecompute())) continue;
      rows.insert(choices_[i].WithoutRows());
      ways.insert(choices_[i].WithoutRecompute());
      next.push_back(i);
    }
    return next;
  }

  void Note(size_t i, std::optional<Candidate> candidate) {
    looked_[i] = true;
    const std::optional<Candidate>& c = found_[i] = std::move(candidate);
    if (!c) return;
    const Setting& choice = choices_[i];
    if (c->fits && c->host == Bytes{}) {
      const auto [it, fresh] = enough_.try_emplace(choice.WithoutRecompute(), choice.recompute);
      it->second = std::min(it->second, choice.recompute);
    } else {
      const auto [it, fresh] = too_many_.try_emplace(choice.WithoutRows(), choice.rows);
      it->second = std::min(it->second, choice.rows);
    }
  }

  bool IsRuledOut(const Setting& choice) const {
    const auto most = too_many_.find(choice.WithoutRows());
    const auto least = enough_.find(choice.WithoutRecompute());
    return (most != too_many_.end() && most->second < choice.rows) ||
           (least != enough_.end() && least->second < choice.recompute);
  }

  using Rows = decltype(Setting().WithoutRows());
  using Ways = decltype(Setting().WithoutRecompute());
  const Searcher& searcher_;
  const std::span<const Setting> choices_;
  const SearchGoal goal_;
  std::vector<Group> groups_;
  std::vector<size_t> group_;        // per choice, as what follows
  std::vector<Candidate> promised_;  // no worse than the choice
  std::vector<size_t> by_promise_;   // choices, the most promising first
  std::vector<bool> looked_;
  std::vector<std::optional<Candidate>> found_;
  std::map<Rows, int64_t> too_many_;  // the fewest rows of a micro-batch at which a choice did not fit
  std::map<Ways, Recompute> enough_;  // the least recomputing that fit
};

}  // namespace

Result<SearchResult> SearchPlans(const Planner& planner, const RunConfig& config, SearchGoal goal) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const Cluster& cluster = planner.cluster();
  const RunConfig::Mesh& mesh = config.mesh;
  const int64_t data_ranks = RanksOn(cluster, config) / (mesh.tp.value_or(1) * mesh.pp);
  const int64_t rows_of_step =
      config.batch.per_device_train_batch_size * config.batch.gradient_accumulation_steps * data_ranks;
  const Searcher searcher(planner, config, rows_of_step);

  const std::vector<Setting> choices = SettingsOn(cluster, rows_of_step, searcher.Stages(), goal);
  Forecasts forecasts(searcher, choices, goal);
  forecasts.Run();
  const std::vector<size_t> order = forecasts.Ordered();
  size_t compiled = 0;  // that fit
  SearchResult result{.goal = goal, .considered = static_cast<int>(choices.size()), .ruled_out = forecasts.ruled_out()};
  for (size_t k = 0; k < order.size() && k < kShown; ++k) {
    Candidate candidate = forecasts[order[k]];
    const bool promises = std::none_of(result.best.begin(), result.best.end(),
                                       [&](const Candidate& c) { return c.compiled && IsBetter(c, candidate, goal); });
    if (compiled < kFinalists && promises) {
      Result<Candidate> whole = searcher.Compile(choices[order[k]]);
      // Few blocks do not tell everything, such as that more than two stages share a weight.
      if (!whole.ok() && whole.status().code() == StatusCode::kUnsupported) continue;
      TEMPER_RETURN_IF_ERROR(whole.status());
      candidate = *std::move(whole);
      compiled += candidate.fits ? 1 : 0;
    }
    result.best.push_back(std::move(candidate));
  }
  // Order: compiled and fits, not compiled, compiled and does not fit.
  const auto place_of = [](const Candidate& c) { return c.compiled ? (c.fits ? 0 : 2) : 1; };
  std::stable_sort(result.best.begin(), result.best.end(), [&](const Candidate& a, const Candidate& b) {
    return place_of(a) != place_of(b) ? place_of(a) < place_of(b) : IsBetter(a, b, goal);
  });
  result.spent = {std::chrono::duration<double>(Clock::now() - start).count()};
  return result;
}

}  // namespace temper
