#include "train/trainer.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "data/padded_rows.h"
#include "model/forward.h"
#include "program/buffer_names.h"
#include "train/class_counts.h"
#include "train/mismatched_kl.h"

namespace temper {
namespace {

bool IsFinite(float x) {
  return std::isfinite(x);
}

// This rank's part of rows of length `row`.
ContextPart PartOf(const Peers& peers, int64_t row) {
  return {.row = row, .ranks = peers.context_ranks, .index = peers.context_rank};
}

// Samples of rows [first_row, first_row + rows) of `packing`, which are `row` tokens long, with `losses` of this rank's
// tokens: those with a loss that is not finite go to `bad`, all go to `all`.
struct Suspects {
  std::vector<int32_t> all, bad;
  const std::vector<int32_t>& samples() const { return bad.empty() ? all : bad; }
};
void AddSuspects(const TokenStore& store, const Packing& packing, int64_t first_row, int64_t rows, int64_t row,
                 const Peers& peers, std::span<const float> losses, Suspects* suspects) {
  const ContextPart part = PartOf(peers, row);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t place = r * part.row;
    for (const int32_t sample : packing.row(first_row + r)) {
      const int64_t begin = part.LocalFrom(place);
      place += store.length(sample);
      const auto own = losses.subspan(static_cast<size_t>(begin), static_cast<size_t>(part.LocalFrom(place) - begin));
      suspects->all.push_back(sample);
      if (!std::all_of(own.begin(), own.end(), IsFinite)) suspects->bad.push_back(sample);
    }
  }
}

// "data.jsonl line 3, data.jsonl line 7 and 12 more".
std::string Places(const std::vector<int32_t>& samples, const SamplePlace& place) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, samples.size()); ++i) {
    text += (i == 0 ? "" : ", ") + (place ? place(samples[i]) : fmt::format("sample {}", samples[i]));
  }
  return samples.size() > kShown ? fmt::format("{} and {} more", text, samples.size() - kShown) : text;
}

}  // namespace

namespace {

// What sums over a batch are divided by: its predicted tokens' weights, or its samples. A batch may have none (every
// target of its rows was cut off): then it is 1.
double DivisorOf(const ObjectiveRule& objective, int64_t weight, int64_t samples) {
  const double all =
      objective.mean == ObjectiveRule::Mean::kSamples ? static_cast<double>(samples) : WeightValue(weight);
  return all == 0 ? 1 : all;
}

// What the samples of `rows` of the epoch that is packed have alike, on all ranks.
Result<StepValues> StepValuesOf(const ObjectiveRule& objective, const TokenStore& store, const Packing& packing,
                                int64_t first, int64_t rows, MismatchedKl* kl,
                                const std::function<bool()>& stop = nullptr) {
  StepValues values;
  if (objective.nll == ObjectiveRule::Nll::kNone && !objective.rated) return values;
  int64_t samples = 0, targets = 0, good = 0;
  for (int64_t r = first; r < first + rows; ++r) {
    for (const int32_t sample : packing.row(r)) {
      ++samples;
      if (objective.rated) {
        good += store.values(sample).desirable;
      } else {
        targets += TargetsOfFirstPart(store.sample(sample), objective.nll == ObjectiveRule::Nll::kWhole);
      }
    }
  }
  const auto per = [samples](int64_t some) {
    return static_cast<float>(static_cast<double>(samples) / static_cast<double>(std::max<int64_t>(some, 1)));
  };
  values.nll_scale = per(targets);
  values.good = per(good);
  values.bad = per(samples - good);
  if (objective.rated) {
    TEMPER_CHECK(kl != nullptr) << objective.name;
    TEMPER_ASSIGN_OR_RETURN(const double raised, kl->Of(packing, first, rows, stop));
    values.kl = static_cast<float>(raised);
  }
  return values;
}

// Tokens of the rows of each way: first those of max_seq_len.
std::vector<int64_t> RowsOfWays(int64_t max_seq_len, std::span<const ShorterRowsExecutor> shorter) {
  std::vector<int64_t> rows = {max_seq_len};
  for (const ShorterRowsExecutor& one : shorter) rows.push_back(one.row);
  return rows;
}

}  // namespace

Trainer::Trainer(Executor& executor, const TokenStore& store, std::span<const int32_t> samples,
                 const PackingOptions& packing, const TrainerSpec& spec)
    : executor_(executor),
      store_(store),
      spec_(spec),
      sampler_(store, samples, packing, spec.seed),
      experts_(executor, spec.micro_batches, spec.experts),
      rows_of_way_(RowsOfWays(packing.max_seq_len, spec.shorter)),
      way_(static_cast<size_t>(spec.micro_batches)),
      reported_(spec.objective->reports.begin(), spec.objective->reports.end()) {
  reported_.insert(reported_.end(), experts_.specs().begin(), experts_.specs().end());
  TEMPER_CHECK(reported_.size() <= kMostReports) << reported_.size() << " reports";
  const auto add_way = [&](int64_t row, Executor& of_row) {
    Way& way = ways_.emplace_back(Way{.row = row,
                                      .executor = &of_row,
                                      .batches = HostBatches(of_row, spec.micro_batches, spec.objective->reports),
                                      .io = {}});
    way.io.assign(way.batches.io().begin(), way.batches.io().end());
    const std::vector<HostArray> of_experts = experts_.IoOf(of_row);
    way.io.insert(way.io.end(), of_experts.begin(), of_experts.end());
  };
  add_way(packing.max_seq_len, executor);
  for (const ShorterRowsExecutor& one : spec.shorter) add_way(one.row, *one.executor);
  const Program& program = executor.program();
  scalars_ = program.FindBuffer(kScalarsBuffer);
  if (spec.update.averages()) share_ = program.FindBuffer(kAverageShareBuffer);
  if (spec.update.stochastic_rounding) rounding_ = program.FindBuffer(kRoundingBuffer);
  clip_ = program.FindBuffer(kClipBuffer);
}

Status Trainer::Restore(int64_t step, const SamplerState& sampler) {
  TEMPER_RETURN_IF_ERROR(sampler_.Restore(sampler));
  step_ = step;
  return OkStatus();
}

Result<StepReport> Trainer::Step(const Executor::BeforeUpdate& before_update) {
  const Peers& peers = spec_.peers;
  const int64_t rows_per_step = spec_.micro_batches * peers.data_ranks * spec_.rows_per_micro_batch;
  const Sampler::Batch batch = sampler_.NextBatch(rows_per_step);
  TEMPER_ASSIGN_OR_RETURN(const StepValues values, StepValuesOf(*spec_.objective, store_, sampler_.packing(),
                                                                batch.first_row, batch.rows, spec_.kl));
  BatchCounts own;
  StepReport report{.step = step_ + 1};
  if (ways_.size() > 1) ChooseWays(batch);
  for (int64_t m = 0; m < spec_.micro_batches; ++m) {
    const RowRange rows = OwnRows(batch, m);
    const Way& way = WayOf(m);
    own += FillBatch(store_, sampler_.packing(), rows.first, rows.count, way.batches.tokens_per_micro_batch(),
                     way.batches.columns(m), PartOf(peers, way.row), values);
  }
  for (int64_t r = 0; r < batch.rows && spec_.attention_flops; ++r) {
    for (const int32_t sample : sampler_.packing().row(batch.first_row + r)) {
      const TokenSample tokens = store_.sample(sample);
      for (int64_t begin = 0, end = 0; begin < tokens.length(); begin = end) {
        end = tokens.PartEnd(begin);
        report.attention += spec_.attention_flops(end - begin);
      }
    }
  }
  store_.LetGo();  // else all of the file counts as this process's memory in the end
  std::array<int64_t, 3> counts = {own.tokens, own.weight, own.samples};
  TEMPER_RETURN_IF_ERROR(peers.SumExact(counts));
  for (Way& way : ways_) {
    way.batches.SetRng(spec_.seed, step_, peers, ways_.front().batches.tokens_per_micro_batch());
  }
  report.learning_rate = spec_.schedule.At(step_);
  double scalars[kNumScalars] = {};
  scalars[kScalarLearningRate] = report.learning_rate;
  spec_.update.FillScalars(report.step, scalars);
  scalars[kScalarTokenCount] = DivisorOf(*spec_.objective, counts[1], counts[2]);
  TEMPER_RETURN_IF_ERROR(executor_.Write(scalars_, std::as_bytes(std::span(scalars))));
  if (share_ >= 0) {
    const double share = spec_.update.AverageShare(report.step);
    TEMPER_RETURN_IF_ERROR(executor_.Write(share_, std::as_bytes(std::span(&share, 1))));
  }
  if (rounding_ >= 0) {
    int64_t rng[kNumRngWords] = {};  // the same on all ranks
    rng[kRngSeed] = static_cast<int64_t>(spec_.seed);
    rng[kRngStep] = step_;
    TEMPER_RETURN_IF_ERROR(executor_.Write(rounding_, std::as_bytes(std::span(rng))));
  }
  experts_.Seed(scalars[kScalarTokenCount], (batch.rows + RowsOfAll() - 1) / RowsOfAll());

  if (std::all_of(way_.begin(), way_.end(), [&](size_t way) { return way == way_.front(); })) {
    const Way& way = WayOf(0);
    TEMPER_RETURN_IF_ERROR(way.executor->Run(way.io, before_update));
  } else {
    for (int64_t m = 0; m < spec_.micro_batches; ++m) {
      const Way& way = WayOf(m);
      TEMPER_RETURN_IF_ERROR(way.executor->RunMicroBatch(m, way.io, before_update));
    }
  }

  for (int64_t m = 0; m < spec_.micro_batches; ++m) WayOf(m).batches.AddReports(m, &report.reports);
  const auto sums = std::span(report.reports).first(reported_.size());
  const size_t of_objective = spec_.objective->reports.size();
  experts_.Take(sums.subspan(of_objective));
  const bool suspect = !std::isfinite(sums[0]) || peers.communicator == nullptr;
  TEMPER_RETURN_IF_ERROR(peers.SumOfLastStage(sums));
  for (double& sum : sums.first(of_objective)) sum /= scalars[kScalarTokenCount];
  // Ranks with rows of their own have the same numbers of experts.
  for (double& same : sums.subspan(of_objective)) same /= static_cast<double>(peers.data_ranks * peers.context_ranks);
  if (experts_.coefficient() > 0) sums[0] += experts_.coefficient() * sums[of_objective];
  report.loss = sums[0];
  float clip[2];  // factor, norm
  TEMPER_RETURN_IF_ERROR(executor_.Read(clip_, std::as_writable_bytes(std::span(clip))));
  report.grad_norm = clip[1];
  report.tokens = counts[0];
  report.epoch = sampler_.epochs_done();
  TEMPER_RETURN_IF_ERROR(CheckFinite(batch, report, suspect));
  ++step_;
  return report;
}

void Trainer::ChooseWays(const Sampler::Batch& batch) {
  for (int64_t m = 0; m < spec_.micro_batches; ++m) {
    const int64_t first = std::min(m * RowsOfAll(), batch.rows), count = std::min(RowsOfAll(), batch.rows - first);
    const int64_t longest = LongestRow(store_, sampler_.packing(), batch.first_row + first, count);
    way_[static_cast<size_t>(m)] = ShortestThatHolds(rows_of_way_, longest);
  }
  if (!spec_.one_length_per_step) return;
  std::fill(way_.begin(), way_.end(), *std::min_element(way_.begin(), way_.end()));
}

Trainer::RowRange Trainer::OwnRows(const Sampler::Batch& batch, int64_t micro_batch) const {
  const Peers& peers = spec_.peers;
  // The last batch of an epoch may lack rows: these become padding.
  const int64_t place = (micro_batch * peers.data_ranks + peers.data_rank) * spec_.rows_per_micro_batch;
  const int64_t first = std::min(place, batch.rows);
  return {batch.first_row + first, std::min(spec_.rows_per_micro_batch, batch.rows - first)};
}

Status Trainer::CheckFinite(const Sampler::Batch& batch, const StepReport& report, bool suspect) {
  if (std::isfinite(report.loss) && std::isfinite(report.grad_norm)) return OkStatus();
  const bool loss = !std::isfinite(report.loss);
  Suspects suspects;
  for (int64_t m = 0; m < spec_.micro_batches; ++m) {
    const RowRange rows = OwnRows(batch, m);
    const Way& way = WayOf(m);
    const auto tokens = static_cast<size_t>(way.batches.tokens_per_micro_batch());
    const auto losses = way.batches.report(0).subspan(static_cast<size_t>(m) * tokens, tokens);
    AddSuspects(store_, sampler_.packing(), rows.first, rows.count, way.row, spec_.peers, losses, &suspects);
  }
  if (loss && !suspect)
    return Numerical(fmt::format("step {}: the loss of another rank is not a finite number", step_ + 1));
  return Numerical(
      fmt::format("step {}: the {} is not a finite number ({}), in {}{}. The run stops; earlier checkpoints "
                  "are good. Check these rows, try a lower --learning_rate, more warmup, or --dtype f32",
                  step_ + 1, loss ? "loss" : "gradient norm", std::fabs(loss ? report.loss : report.grad_norm),
                  loss ? "" : "a batch with ", Places(suspects.samples(), spec_.place)));
}

Evaluator::Evaluator(Executor& executor, const TokenStore& store, std::span<const int32_t> samples,
                     const PackingOptions& packing, SamplePlace place, const Peers& peers,
                     const ObjectiveRule& objective, int64_t classes, MismatchedKl* kl,
                     std::span<const ShorterRowsExecutor> shorter)
    : executor_(executor),
      store_(store),
      packing_(store, samples, packing),
      place_(std::move(place)),
      peers_(peers),
      objective_(objective),
      classes_(classes),
      batch_(executor, 1, objective.reports, classes > 0 ? kPredictionOutput : nullptr),
      executors_(shorter.begin(), shorter.end()),
      rows_of_way_(RowsOfWays(packing.max_seq_len, shorter)),
      kl_(kl) {
  packing_.Pack(0, 0);
  for (const ShorterRowsExecutor& one : executors_) {
    shorter_.emplace_back(*one.executor, 1, objective.reports, classes > 0 ? kPredictionOutput : nullptr);
  }
}

Result<EvaluationReport> Evaluator::Run(const std::function<bool()>& stop,
                                        const std::function<void(int64_t done, int64_t rows)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  EvaluationReport report{.rows = packing_.rows()};
  // Of losses, each times its weight, and of the other reports.
  const auto sums = std::span(report.reports).first(objective_.reports.size());
  BatchCounts own;
  ClassCounts of_classes(classes_);
  const ContextPart part = PartOf(peers_, packing_.options().max_seq_len);
  const int64_t rows = batch_.tokens_per_micro_batch() / part.local_row();
  TEMPER_ASSIGN_OR_RETURN(const StepValues values,
                          StepValuesOf(objective_, store_, packing_, 0, packing_.rows(), kl_, stop));
  for (int64_t all_first = 0; all_first < packing_.rows(); all_first += rows * peers_.data_ranks) {
    TEMPER_ASSIGN_OR_RETURN(const bool stopping, peers_.Any(stop && stop()));
    if (stopping) return Interrupted("the evaluation was aborted");
    if (progress) progress(all_first, packing_.rows());
    const int64_t first = std::min(all_first + peers_.data_rank * rows, packing_.rows());
    const int64_t filled = std::min(rows, packing_.rows() - first);
    // All ranks run the same Program: that of the longest row of any.
    const int64_t of_all = std::min(rows * peers_.data_ranks, packing_.rows() - all_first);
    const size_t way = ShortestThatHolds(rows_of_way_, LongestRow(store_, packing_, all_first, of_all));
    HostBatches& batch = way == 0 ? batch_ : shorter_[way - 1];
    own += FillBatch(store_, packing_, first, filled, batch.tokens_per_micro_batch(), batch.columns(0),
                     PartOf(peers_, rows_of_way_[way]), values);
    store_.LetGo();
    TEMPER_RETURN_IF_ERROR((way == 0 ? executor_ : *executors_[way - 1].executor).Run(batch.io()));
    batch.AddReports(&report.reports);
    if (!batch.also().empty()) of_classes.Add(batch.values(0, kLabelColumn), batch.also());
    if (!std::isfinite(sums[0])) {
      Suspects suspects;
      AddSuspects(store_, packing_, first, filled, rows_of_way_[way], peers_, batch.report(0), &suspects);
      return Numerical(fmt::format(
          "the loss on the evaluation data is not a finite number ({}), in {}: the model's weights are corrupt, or its "
          "training diverged",
          std::fabs(sums[0]), Places(suspects.samples(), place_)));
    }
  }
  TEMPER_RETURN_IF_ERROR(peers_.SumOfLastStage(sums));
  std::array<int64_t, 4> counts = {own.supervised, own.weight, own.tokens, own.samples};
  TEMPER_RETURN_IF_ERROR(peers_.SumExact(counts));
  report.tokens = counts[0];
  report.all_tokens = counts[2];
  if (report.tokens == 0) return InvalidArgument("the evaluation data has no supervised token");
  for (double& sum : sums) sum /= DivisorOf(objective_, counts[1], counts[3]);
  report.loss = sums[0];
  if (classes_ > 0) {
    TEMPER_RETURN_IF_ERROR(peers_.SumOfLastStage(of_classes.counts()));
    report.of_classes.push_back({kMacroF1, of_classes.MacroF1()});
    if (classes_ == 2) report.of_classes.push_back({kBinaryF1, of_classes.F1(1)});
  }
  report.time = Seconds{std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
  return report;
}

}  // namespace temper
