#include "plan/remedies.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

#include "base/for_each.h"
#include "base/team.h"
#include "compile/run/few_blocks.h"

namespace temper {
namespace {

// A change of settings; `apply` returns false if it does not apply.
struct Change {
  std::string settings, price;
  std::function<bool(RunConfig*, int* ranks)> apply;
  // Not part of a combination: a later change is a stronger form of it, or it is enough by itself.
  bool alone = false;
};

constexpr char kInt8Price[] = "the base's linear weights in 8 bits";
constexpr char kNf4Price[] = "the base's linear weights in 4 bits";

bool MayQuantise(const RunConfig::Model& m) {
  return m.method == TrainMethod::kLora && m.dtype != ComputeType::kF32;
}
bool QuantiseBase(BaseType base, RunConfig* c) {
  RunConfig::Model& m = c->model;
  if (!MayQuantise(m)) return false;
  if (m.base_dtype == base || m.base_dtype == BaseType::kNf4) return false;
  m.base_dtype = base;
  return true;
}

std::vector<Change> Changes(const Planner& planner) {
  return {
      {"--memory.bf16_weights cast", "each use casts weights from their f32 masters",
       [](RunConfig* c, int*) {
         // Within limits the memory policy has tried it, if it may choose; MemoryFor sets none for these.
         const bool limited = c->memory.policy != TierPolicy::kDevice && c->mesh.pp == 1;
         if (limited && c->memory.bf16_weights == TrainedMatrices::kAuto) return false;
         const bool trains_bf16 = c->model.method == TrainMethod::kFull && c->model.dtype == ComputeType::kBf16;
         if (!trains_bf16 || c->memory.bf16_weights == TrainedMatrices::kCast) return false;
         c->memory.bf16_weights = TrainedMatrices::kCast;
         return true;
       }},
      {"--memory.recompute selective", "",
       [](RunConfig* c, int*) {
         if (c->machine.recompute != Recompute::kNone && c->machine.recompute != Recompute::kAuto) return false;
         c->machine.recompute = Recompute::kSelective;
         return true;
       },
       /*alone=*/true},
      {"--memory.recompute block", "",
       [](RunConfig* c, int*) {
         if (c->machine.recompute == Recompute::kBlock) return false;
         c->machine.recompute = Recompute::kBlock;
         c->machine.recompute_blocks.reset();
         return true;
       }},
      {"--memory.tiers auto", "values that do not fit on the device live in the host's memory",
       [](RunConfig* c, int*) {
         if (c->memory.policy != TierPolicy::kDevice) return false;
         c->memory.policy = TierPolicy::kAuto;
         return true;
       }},
      {"--per_device_train_batch_size 1", "",
       [](RunConfig* c, int*) {
         if (c->batch.per_device_train_batch_size == 1) return false;
         c->batch.gradient_accumulation_steps *= c->batch.per_device_train_batch_size;
         c->batch.per_device_train_batch_size = 1;
         c->batch.per_device_eval_batch_size = 1;
         return true;
       }},
      {"--mesh fsdp=ALL", "",
       [&planner](RunConfig* c, int* ranks) {
         const int all = planner.cluster().devices();
         const int64_t data = c->mesh.dp.value_or(1), tp = c->mesh.tp.value_or(1);
         const bool grows = *ranks < all && all % tp == 0;
         if ((!grows && data == 1) || planner.cluster().shared) return false;
         // The same rows per step, split among more ranks.
         const int64_t before = *ranks / tp, after = (grows ? all : *ranks) / tp;
         const int64_t rows = c->batch.gradient_accumulation_steps * before;
         c->batch.gradient_accumulation_steps = std::max<int64_t>(1, rows / after);
         *ranks = grows ? all : *ranks;
         c->mesh.dp = 1;
         c->mesh.fsdp = after;
         return true;
       }},
      {"--mesh.overlap false", "collectives wait for kernels, one block's weights are held instead of two",
       [](RunConfig* c, int* ranks) {
         if (*ranks == 1 || !c->mesh.overlap) return false;
         c->mesh.overlap = false;
         return true;
       }},
      {"--mesh fsdp=HALVES,tp=2", "",
       [](RunConfig* c, int* ranks) {
         if (*ranks % 2 != 0 || c->mesh.tp.value_or(1) > 1 || c->mesh.dp.value_or(1) > 1) return false;
         c->batch.gradient_accumulation_steps *= 2;  // half as many ranks have different rows
         c->mesh.tp = 2;
         c->mesh.fsdp = *ranks / 2;
         return true;
       }},
      {"--dtype bf16", "weights and activations in bf16",
       [](RunConfig* c, int*) {
         if (c->model.dtype == ComputeType::kBf16) return false;
         c->model.dtype = ComputeType::kBf16;
         return true;
       }},
      {"--method lora", "trains adapters, not the weights",
       [](RunConfig* c, int*) {
         if (c->model.method == TrainMethod::kLora) return false;
         c->model.method = TrainMethod::kLora;
         return true;
       }},
      {"--base_dtype int8", kInt8Price, [](RunConfig* c, int*) { return QuantiseBase(BaseType::kInt8, c); },
       /*alone=*/true},
      {"--base_dtype nf4", kNf4Price, [](RunConfig* c, int*) { return QuantiseBase(BaseType::kNf4, c); }},
      {"--embedding_dtype int8", "the token embedding and the head in 8 bits",
       [](RunConfig* c, int*) {
         if (!MayQuantise(c->model) || c->model.embedding_dtype == BaseType::kInt8) return false;
         c->model.embedding_dtype = BaseType::kInt8;
         return true;
       }},
      {"--max_seq_len SHORT", "rows of half the tokens",
       [](RunConfig* c, int*) {
         if (*c->data.max_seq_len < 256) return false;
         *c->data.max_seq_len /= 2;
         return true;
       }},
      // Only one recompute mode: each needs its own search for tiers.
      {"--memory.disk FOLDER --memory.recompute block",
       "values that fit neither on the device nor on the host go to the disk",
       [&planner](RunConfig* c, int*) {
         const bool by_itself = planner.cluster().shared;  // the run does this automatically if necessary
         const bool may = c->memory.policy == TierPolicy::kAuto && c->memory.disk.empty() && c->mesh.pp == 1;
         if (by_itself || !may) return false;
         c->memory.disk = "FOLDER";
         c->machine.recompute = Recompute::kBlock;
         c->machine.recompute_blocks.reset();
         return true;
       },
       /*alone=*/true},
  };
}

// "SHORT", "HALVES" and "ALL" as numbers.
std::string Written(std::string settings, const RunConfig& changed) {
  const auto put = [&settings](const char* word, int64_t number) {
    if (const size_t at = settings.find(word); at != std::string::npos) {
      settings.replace(at, std::string(word).size(), std::to_string(number));
    }
  };
  put("SHORT", *changed.data.max_seq_len);
  put("HALVES", changed.mesh.fsdp.value_or(1));
  put("ALL", changed.mesh.fsdp.value_or(1));
  return settings;
}

// The number of micro-batches changes with the ranks and rows, so that a step keeps its tokens.
std::string Accumulation(const RunConfig& before, const RunConfig& after) {
  const int64_t steps = after.batch.gradient_accumulation_steps;
  return steps == before.batch.gradient_accumulation_steps ? ""
                                                           : fmt::format(" --gradient_accumulation_steps {}", steps);
}

Remedy RemedyOf(const std::string& settings, const std::string& price, const Forecast& f, bool compiled = true) {
  return {settings, f.bytes, f.limit, f.host_bytes, f.fits, f.tokens_per_second, f.simulation.step, price, compiled};
}

// Bytes by which the step exceeds its limits: sum over the device's
// memory and the host's, or of both together if they are one memory.
Bytes Excess(const Forecast& f, bool shared) {
  if (shared) return std::max(f.bytes + f.host_bytes - f.limit, Bytes{});
  return std::max(f.bytes - f.limit, Bytes{}) + std::max(f.host_bytes - f.host_limit, Bytes{});
}

// The first placement that fits is taken in Programs of so many instructions: a search through all takes seconds there.
constexpr int64_t kManyInstructions = 8000;
// Programs of fewer instructions are compiled whole in some hundredths of a second: few blocks would save nothing.
constexpr int64_t kFewInstructions = 3000;
// Bytes that are extrapolated from few blocks are this close to those of the whole step: 1.7 % too few were seen, with
// LoRA beside trained embeddings.
constexpr double kExtrapolates = 0.05;

int64_t InstructionsOf(const Program& program) {
  int64_t sum = 0;
  for (const Binding& b : program.bindings) {
    sum += std::ssize(program.segments[static_cast<size_t>(b.segment)].instructions);
  }
  return sum;
}

// Forecasts of a run with other settings, each as cheap as it can be told from what fits.
class OtherSettings {
 public:
  OtherSettings(const Planner& planner, const RunConfig& config, const PlannedRun& planned)
      : planner_(planner), instructions_(InstructionsOf(planned.run.train())) {
    const bool names_blocks = config.lora.NamesBlocks() || config.mesh.gathered_blocks ||
                              config.machine.recompute_blocks || config.mesh.pp > 1;
    if (names_blocks || planner.cluster().shared || instructions_ < kFewInstructions) return;
    few_.emplace(planner.model(), kBetweenCollectives);
    if (!few_->any()) few_.reset();
  }

  struct Found {
    Forecast forecast;
    bool compiled = true;  // else extrapolated from few blocks; does not fit then
  };
  // Errors: this model cannot be split this way.
  Result<Found> Find(const RunConfig& config, int ranks) const {
    if (std::optional<Found> too_large = Extrapolate(config, ranks)) return *std::move(too_large);
    const bool first_that_fits = instructions_ >= kManyInstructions;
    TEMPER_ASSIGN_OR_RETURN(PlannedRun planned, planner_.PlanQuickly(config, ranks, first_that_fits));
    return Found{.forecast = std::move(planned.forecast)};
  }
  // Its kernels and collectives alone, as if the devices were large enough; 0: not known.
  Seconds LeastSeconds(const RunConfig& config, int ranks) const {
    const std::optional<Roomy> roomy = OnLargeDevices(config, ranks);
    return roomy ? Seconds{roomy->figures.seconds} : Seconds{};
  }

 private:
  // The figures of a step wholly on devices that are large enough. nullopt: there are too few blocks to tell.
  struct Roomy {
    StepFigures figures;
    int64_t tokens;  // of a step
  };
  std::optional<Roomy> OnLargeDevices(const RunConfig& config, int ranks) const {
    if (!few_) return std::nullopt;
    const int64_t micro_batches = config.batch.gradient_accumulation_steps;
    RunConfig few = config;
    few.memory.policy = TierPolicy::kDevice;
    few.batch.gradient_accumulation_steps = std::min(micro_batches, kFewMicroBatches);
    int64_t tokens = 0;
    const auto lines = few_->Follow([&](const Model& model) -> std::optional<StepFigures> {
      const auto planned = Planner(model, planner_.cluster(), planner_.rows()).Plan(few, ranks);
      if (!planned.ok()) return std::nullopt;
      tokens = planned->facts.tokens * micro_batches / few.batch.gradient_accumulation_steps;
      return FiguresOf(*planned, micro_batches);
    });
    if (!lines) return std::nullopt;
    return Roomy{few_->Of(*lines, static_cast<int64_t>(planner_.model().facts().kinds.size())), tokens};
  }

  // What certainly does not fit. nullopt: it may, or there are too few blocks to tell.
  std::optional<Found> Extrapolate(const RunConfig& config, int ranks) const {
    if (!config.memory.disk.empty() || config.mesh.gathered_blocks) return std::nullopt;
    const std::optional<Roomy> roomy = OnLargeDevices(config, ranks);
    if (!roomy) return std::nullopt;
    const StepFigures& whole = roomy->figures;
    const Cluster& cluster = planner_.cluster();
    const int on_host = std::min(ranks, cluster.devices_per_host);
    Found found{.forecast = {.bytes = {static_cast<int64_t>(whole.bytes)},
                             .limit = cluster.MemoryOf(on_host),
                             .host_limit = cluster.HostMemoryOf(on_host)},
                .compiled = false};
    Forecast& f = found.forecast;
    KeepWithin(config.memory, &f);
    // No way to compile the step holds less than the optimizer's states, beside all gradients where clipping waits for
    // the last of them, and nothing else holds these but these tiers.
    const bool all_on_device = config.memory.policy == TierPolicy::kDevice, clips = config.optimizer.max_grad_norm > 0;
    const double held = whole.optimizer + (clips ? whole.gradients : 0);
    const double least = all_on_device ? whole.bytes * (1 - kExtrapolates) : held;
    const Bytes room = all_on_device ? f.limit : f.limit + f.host_limit;
    if (least <= static_cast<double>(room.v)) return std::nullopt;
    f.simulation.step = {whole.seconds};
    f.tokens_per_second = static_cast<double>(roomy->tokens) / whole.seconds;
    return found;
  }

  const Planner& planner_;
  const int64_t instructions_;    // of the run as asked
  std::optional<FewBlocks> few_;  // nullopt: everything is compiled whole
};

}  // namespace

Result<std::vector<Remedy>> FindRemedies(const Planner& planner, const RunConfig& config, const PlannedRun& planned) {
  const int before = planned.run.mesh.mesh.ranks();
  const bool shared = planner.cluster().shared;
  const OtherSettings others(planner, config, planned);
  // Each change alone.
  struct One {
    const Change* change;
    RunConfig config;
    int ranks;
    std::optional<OtherSettings::Found> found;  // nullopt: this model cannot be split this way
  };
  const std::vector<Change> changes = Changes(planner);
  std::vector<One> ones;
  for (const Change& change : changes) {
    One one{.change = &change, .config = config, .ranks = before};
    if (change.apply(&one.config, &one.ranks)) ones.push_back(std::move(one));
  }
  ForEach(static_cast<int64_t>(ones.size()), AvailableProcessors(), [&](int64_t at) {
    One& one = ones[static_cast<size_t>(at)];
    Result<OtherSettings::Found> result = others.Find(one.config, one.ranks);
    if (result.ok()) one.found = *std::move(result);
  });
  std::vector<Remedy> remedies;
  RunConfig all = config;
  int all_ranks = before;
  std::string all_settings, all_price;
  bool one_fits = false, all_fits = false;
  for (const One& alone : ones) {
    if (!alone.found) continue;
    const Change& change = *alone.change;
    const RunConfig& one = alone.config;
    const std::string settings = Written(change.settings, one) + Accumulation(config, one);
    if (Excess(alone.found->forecast, shared) >= Excess(planned.forecast, shared)) continue;
    remedies.push_back(RemedyOf(settings, change.price, alone.found->forecast, alone.found->compiled));
    one_fits |= remedies.back().fits;
    // Combine with the changes before it, until the run fits: cheap changes come first.
    if (all_fits || change.alone || !change.apply(&all, &all_ranks)) continue;
    all_settings += (all_settings.empty() ? "" : " ") + Written(change.settings, all);
    if (!change.price.empty()) all_price += (all_price.empty() ? "" : ", ") + change.price;
    if (remedies.size() < 2 || one_fits) continue;
    TEMPER_ASSIGN_OR_RETURN(const OtherSettings::Found together, others.Find(all, all_ranks));
    if (!together.forecast.fits) continue;
    all_fits = true;
    remedies.push_back(RemedyOf(all_settings + Accumulation(config, all), all_price, together.forecast));
  }
  return remedies;
}

std::vector<Remedy> FindFasterBases(const Planner& planner, const RunConfig& config, const PlannedRun& planned) {
  constexpr double kWorth = 1.5;  // times as fast: rounding the base is a price
  if (!planned.forecast.fits || planned.forecast.simulation.step < kSlowStep) return {};
  const int ranks = planned.run.mesh.mesh.ranks();
  const OtherSettings others(planner, config, planned);
  std::vector<Remedy> faster;
  for (const auto& [base, settings, price] : {std::tuple(BaseType::kInt8, "--base_dtype int8", kInt8Price),
                                              {BaseType::kNf4, "--base_dtype nf4", kNf4Price}}) {
    RunConfig changed = config;
    if (!QuantiseBase(base, &changed)) continue;
    const auto gains_too_little = [&](Seconds step) { return kWorth * step.v > planned.forecast.simulation.step.v; };
    if (gains_too_little(others.LeastSeconds(changed, ranks))) continue;
    const Result<PlannedRun> one = planner.PlanQuickly(changed, ranks);
    if (!one.ok() || !one->forecast.fits || gains_too_little(one->forecast.simulation.step)) continue;
    faster.push_back(RemedyOf(settings, price, one->forecast));
  }
  return faster;
}

}  // namespace temper
