#include "train/trainer.h"

#include <fmt/format.h>

#include <cmath>

#include "model/forward.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

int64_t TokensOf(const Executor& executor) {
  const Program& program = executor.program();
  const int token = program.FindBuffer(kTokenInput);
  TEMPER_CHECK(token >= 0) << "program " << program.name << " takes no tokens";
  return program.buffers[static_cast<size_t>(token)].type.shape[0];
}

}  // namespace

HostBatches::HostBatches(const Executor& executor, int64_t micro_batches)
    : tokens_(TokensOf(executor)), micro_batches_(micro_batches) {
  const auto add = [&](const char* name, auto& array, int64_t per_micro_batch) {
    array.assign(static_cast<size_t>(per_micro_batch * micro_batches), {});
    // A Program lacks what its model does not read (positions where nothing is rotated, draws where nothing is
    // dropped).
    const int buffer = executor.program().FindBuffer(name);
    if (buffer >= 0) io_.push_back({buffer, std::as_writable_bytes(std::span(array))});
  };
  add(kTokenInput, token_, tokens_);
  add(kTargetInput, target_, tokens_);
  add(kPositionInput, position_, tokens_);
  add(kDocumentStartInput, document_start_, tokens_);
  add(kRngInput, rng_, kNumRngWords);
  add(kLossOutput, loss_, tokens_);
}

BatchArrays HostBatches::Arrays(int64_t m) {
  const auto part = [&](std::vector<int32_t>& v) {
    return std::span(v).subspan(static_cast<size_t>(m * tokens_), static_cast<size_t>(tokens_));
  };
  return {part(token_), part(target_), part(position_), part(document_start_)};
}

void HostBatches::SetRng(uint64_t seed, int64_t step) {
  for (int64_t m = 0; m < micro_batches_; ++m) {
    int64_t* const words = rng_.data() + m * kNumRngWords;
    words[kRngSeed] = static_cast<int64_t>(seed);
    words[kRngStep] = step;
    words[kRngFirstToken] = m * tokens_;
  }
}

Trainer::Trainer(Executor& executor, const TokenStore& store, std::span<const int32_t> samples,
                 const PackingOptions& packing, const TrainerSpec& spec)
    : executor_(executor),
      store_(store),
      spec_(spec),
      sampler_(store, samples, packing, spec.seed),
      batches_(executor, spec.micro_batches) {
  const Program& program = executor.program();
  scalars_ = executor.BufferView(program.FindBuffer(kScalarsBuffer));
  clip_ = executor.BufferView(program.FindBuffer(kClipBuffer));
}

Status Trainer::Restore(int64_t step, const SamplerState& sampler) {
  TEMPER_RETURN_IF_ERROR(sampler_.Restore(sampler));
  step_ = step;
  return OkStatus();
}

Result<StepReport> Trainer::Step(const Executor::RunOptions& options) {
  const Sampler::Batch batch = sampler_.NextBatch(spec_.micro_batches * spec_.rows_per_micro_batch);
  BatchCounts counts;
  StepReport report{.step = step_ + 1};
  for (int64_t m = 0; m < spec_.micro_batches; ++m) {
    // The last batch of an epoch may lack rows: its places are padding.
    const int64_t first = std::min(m * spec_.rows_per_micro_batch, batch.rows);
    const int64_t rows = std::min(spec_.rows_per_micro_batch, batch.rows - first);
    counts += FillBatch(store_, sampler_.packing(), batch.first_row + first, rows, batches_.Arrays(m));
  }
  for (int64_t r = 0; r < batch.rows; ++r) {
    for (const int32_t sample : sampler_.packing().row(batch.first_row + r)) {
      const double length = static_cast<double>(store_.length(sample));
      report.attended_pairs += length * (length + 1) / 2;
    }
  }
  batches_.SetRng(spec_.seed, step_);
  const double t = static_cast<double>(step_ + 1);
  report.learning_rate = spec_.schedule.At(step_);
  const std::span<double> scalars = scalars_.as<double>();
  scalars[kScalarLearningRate] = report.learning_rate;
  scalars[kScalarBiasCorrection1] = 1 - std::pow(spec_.beta1, t);
  scalars[kScalarBiasCorrection2] = 1 - std::pow(spec_.beta2, t);
  // A batch can hold no supervised token at all (every target of its rows was cut off): a step of zero gradients.
  scalars[kScalarTokenCount] = static_cast<double>(std::max<int64_t>(counts.supervised, 1));

  TEMPER_RETURN_IF_ERROR(executor_.Run(batches_.io(), options));

  double sum = 0;
  for (const float loss : batches_.losses()) sum += loss;
  report.loss = sum / scalars[kScalarTokenCount];
  report.grad_norm = clip_.as<float>()[1];
  report.tokens = counts.tokens;
  report.epoch = sampler_.epochs_done();
  TEMPER_RETURN_IF_ERROR(CheckFinite(batch, report));
  ++step_;
  return report;
}

Status Trainer::CheckFinite(const Sampler::Batch& batch, const StepReport& report) const {
  if (std::isfinite(report.loss) && std::isfinite(report.grad_norm)) return OkStatus();
  const int64_t row_tokens = batches_.tokens_per_micro_batch() / spec_.rows_per_micro_batch;
  std::string where;
  for (int64_t r = 0; r < batch.rows; ++r) {
    const auto losses = batches_.losses().subspan(static_cast<size_t>(r * row_tokens), static_cast<size_t>(row_tokens));
    size_t begin = 0;
    for (const int32_t sample : sampler_.packing().row(batch.first_row + r)) {
      const auto length = static_cast<size_t>(store_.length(sample));
      const auto own = losses.subspan(begin, length);
      begin += length;
      if (std::all_of(own.begin(), own.end(), [](float x) { return std::isfinite(x); })) continue;
      where += fmt::format("{}{}", where.empty() ? "" : ", ", sample);
    }
  }
  return Numerical(fmt::format(
      "step {}: the {} is not a finite number{}. The run stops here; checkpoints written so far are good. Try a lower "
      "--learning_rate, more warmup, or --dtype f32",
      step_ + 1, std::isfinite(report.loss) ? "gradient norm" : "loss",
      where.empty() ? "" : " in data sample(s) " + where + " (counted from 0)"));
}

Evaluator::Evaluator(Executor& executor, const TokenStore& store, std::span<const int32_t> samples,
                     const PackingOptions& packing)
    : executor_(executor), store_(store), packing_(store, samples, packing), batch_(executor, 1) {
  packing_.Pack(0, 0);
}

Result<EvaluationReport> Evaluator::Run() {
  EvaluationReport report;
  double sum = 0;
  const int64_t rows = batch_.tokens_per_micro_batch() / packing_.options().max_seq_len;
  for (int64_t first = 0; first < packing_.rows(); first += rows) {
    const BatchCounts counts =
        FillBatch(store_, packing_, first, std::min(rows, packing_.rows() - first), batch_.Arrays(0));
    TEMPER_RETURN_IF_ERROR(executor_.Run(batch_.io()));
    for (const float loss : batch_.losses()) sum += loss;
    report.tokens += counts.supervised;
  }
  if (report.tokens == 0) return InvalidArgument("the evaluation data has no supervised token");
  report.loss = sum / static_cast<double>(report.tokens);
  return report;
}

}  // namespace temper
