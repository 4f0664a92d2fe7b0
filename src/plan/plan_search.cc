#include "plan/plan_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "base/for_each.h"
#include "base/team.h"
#include "compile/run/few_blocks.h"

namespace temper {
namespace {

// Most candidates that are compiled whole and fit. Fewer if no uncompiled one promises more than the best of them.
// Candidates that turn out not to fit come on top, up to the number shown.
constexpr size_t kFinalists = 6;
constexpr size_t kShown = 10;
// Extrapolations through the same points differ by rounding.
constexpr double kSameTime = 1e-6;

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

// `most_stages`: 1 if the figures of a stage cannot be extrapolated from few blocks.
std::vector<Setting> SettingsOn(const Cluster& cluster, int64_t rows_of_step, int64_t most_stages, SearchGoal goal) {
  std::vector<Setting> choices;
  for (int ranks = goal == SearchGoal::kFewestDevices || cluster.shared ? 1 : cluster.devices();
       ranks <= cluster.devices(); ++ranks) {
    for (int pp = 1; pp <= std::min<int64_t>(ranks, most_stages); ++pp) {
      if (ranks % pp != 0) continue;
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

  int64_t most_stages() const {
    const RunConfig::Mesh& mesh = config_.mesh;
    const bool open = MemorySpecOf(config_).IsOpen() && mesh.grad_sync != GradSync::kStep && !mesh.gathered_blocks;
    return !few_ || !open || planner_.cluster().shared ? 1 : blocks_;
  }

  // nullopt: this model or its rows cannot be split this way.
  std::optional<Candidate> Look(const Setting& choice) const {
    Candidate c = Described(choice);
    StepFigures figures;
    double flops_per_token = 0;
    if (!few_) {
      const auto all = Figures(planner_.model(), choice);
      if (!all) return std::nullopt;
      figures = *all;
      flops_per_token = all->flops_per_token;
    } else {
      const auto lines = few_->Follow([&](const Model& model) { return Figures(model, choice.Stage()); });
      if (!lines) return std::nullopt;
      figures = few_->Of(*lines, (blocks_ + choice.pp - 1) / choice.pp);
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

  // The figures of a step with all its micro-batches.
  std::optional<StepFigures> Figures(const Model& model, const Setting& choice) const {
    const int64_t micro_batches = std::min(choice.MicroBatches(rows_of_step_), kFewMicroBatches);
    RunConfig config = choice.Apply(config_, micro_batches, Blocks(model));
    // The bytes moved to the host are not linear in the blocks, but have a linear bound.
    if (config.memory.policy == TierPolicy::kAuto) config.memory.policy = TierPolicy::kDevice;
    const Result<PlannedRun> planned = Planner(model, planner_.cluster(), planner_.rows()).Plan(config, choice.ranks);
    if (!planned.ok()) return std::nullopt;
    return FiguresOf(*planned, choice.MicroBatches(rows_of_step_));
  }

  static int64_t Blocks(const Model& model) { return static_cast<int64_t>(model.facts().kinds.size()); }

  const Planner& planner_;
  const RunConfig& config_;
  const int64_t rows_of_step_, blocks_;
  std::optional<FewBlocks> few_;  // nullopt: candidates are compiled whole
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

  const std::vector<Setting> choices = SettingsOn(cluster, rows_of_step, searcher.most_stages(), goal);
  std::vector<std::optional<Candidate>> found(choices.size());
  // The fewest rows of a micro-batch at which a choice did not fit.
  using Key = decltype(Setting().WithoutRows());
  std::map<Key, int64_t> too_many;
  std::map<decltype(Setting().WithoutRecompute()), Recompute> enough;  // the least recomputing that fit
  const auto is_ruled_out = [&](const Setting& choice) {
    const auto most = too_many.find(choice.WithoutRows());
    const auto least = enough.find(choice.WithoutRecompute());
    return (most != too_many.end() && most->second < choice.rows) ||
           (least != enough.end() && least->second < choice.recompute);
  };
  std::mutex mutex;
  ForEach(static_cast<int64_t>(choices.size()), AvailableProcessors(), [&](int64_t at) {
    const auto i = static_cast<size_t>(at);
    const Setting& choice = choices[i];
    {
      const std::lock_guard lock(mutex);
      if (is_ruled_out(choice)) return;
    }
    found[i] = searcher.Look(choice);
    if (!found[i]) return;
    const std::lock_guard lock(mutex);
    if (found[i]->fits && found[i]->host == Bytes{}) {
      const auto [it, fresh] = enough.try_emplace(choice.WithoutRecompute(), choice.recompute);
      it->second = std::min(it->second, choice.recompute);
    } else {
      const auto [it, fresh] = too_many.try_emplace(choice.WithoutRows(), choice.rows);
      it->second = std::min(it->second, choice.rows);
    }
  });

  // Filter again by all results: the output must not depend on the timing of threads.
  int ruled_out = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (is_ruled_out(choices[i])) found[i].reset();
    ruled_out += found[i] ? 0 : 1;
  }

  std::vector<size_t> order;
  std::map<decltype(Setting().WithoutKept()), double> shortest;  // the shortest step of choices that keep less
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    if (found[i]->fits) {
      const auto [it, first] = shortest.try_emplace(choices[i].WithoutKept(), found[i]->step.v);
      if (!first && it->second <= found[i]->step.v * (1 + kSameTime)) continue;
      it->second = found[i]->step.v;
    }
    order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return IsBetter(*found[a], *found[b], goal); });
  size_t compiled = 0;  // that fit
  SearchResult result{.goal = goal, .considered = static_cast<int>(choices.size()), .ruled_out = ruled_out};
  for (size_t k = 0; k < order.size() && k < kShown; ++k) {
    Candidate candidate = *found[order[k]];
    const bool promises = std::none_of(result.best.begin(), result.best.end(),
                                       [&](const Candidate& c) { return c.compiled && IsBetter(c, candidate, goal); });
    if (compiled < kFinalists && promises) {
      Result<Candidate> whole = searcher.Compile(choices[order[k]]);
      // Few blocks do not tell that a model's values skip stages of a pipeline.
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
