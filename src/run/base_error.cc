#include "run/base_error.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "compile/run/compiled_run.h"
#include "infer/decode_engine.h"
#include "model/base_format.h"
#include "run/machine.h"
#include "run/processor.h"

namespace temper {
namespace {

// Enough to see whether a base loses 3 or 6 %; the tokens are two runs of the longest Program of decoding.
constexpr int64_t kTexts = 16, kTokens = 32;

std::vector<std::vector<int32_t>> Beginnings(const TokenStore& samples) {
  std::vector<std::vector<int32_t>> beginnings;
  for (int64_t i = 0; i < samples.size() && static_cast<int64_t>(beginnings.size()) < kTexts; ++i) {
    std::vector<int32_t> tokens = samples.sample(i).tokens();
    tokens.resize(std::min<size_t>(tokens.size(), kTokens));
    if (!tokens.empty()) beginnings.push_back(std::move(tokens));
  }
  return beginnings;
}

BaseFormat FormatOfFiles(const ModelFacts& facts, const RunConfig& config) {
  return BaseFormatOf(facts, std::nullopt, std::nullopt, ComputeDType(config), /*dequantised_first=*/false);
}

// The logits behind each of `texts`, or nullopt where memory has no room for the weights.
Result<std::optional<std::vector<std::vector<float>>>> LogitsBehind(const std::vector<std::vector<int32_t>>& texts,
                                                                    const OpenedModel& model, const RunConfig& config,
                                                                    Bytes arena, BaseFormat base) {
  const int threads = static_cast<int>(*config.machine.threads);
  DecodeSpec spec{.dtype = ComputeDType(config),
                  .context = kTokens,
                  .sequences = static_cast<int64_t>(texts.size()),
                  .base = std::move(base),
                  .threads = threads};
  if (const Bytes limit = MemorySpecOf(config).device; limit != kNoLimit) {
    if (limit <= arena) return {std::nullopt};
    spec.memory.device = limit - arena;
  }
  TEMPER_ASSIGN_OR_RETURN(const Processor processor, Processor::Open(ProcessorChoice{}, threads));
  TEMPER_ASSIGN_OR_RETURN(const ProcessMemory available, MemoryFor(processor));
  const auto no_room = [](const Status& status) { return status.code() == StatusCode::kOutOfMemory; };
  Result<ProgramSet> programs = CompileDecoding(model.model(), spec, &available);
  if (no_room(programs.status())) return {std::nullopt};
  TEMPER_RETURN_IF_ERROR(programs.status());
  // Where weights have no room the compiler would put them into farther tiers.
  if (programs->first().host.bytes + programs->first().disk.bytes > Bytes{}) return {std::nullopt};
  auto made = DecodeEngine::Create(*std::move(programs), spec.context, processor.kernels());
  if (no_room(made.status())) return {std::nullopt};
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<DecodeEngine> engine, std::move(made));
  TEMPER_RETURN_IF_ERROR(model.LoadBase([&](const std::string& name) { return engine->Buffer(name); }));
  std::vector<DecodeEngine::Fed> batch;
  for (const std::vector<int32_t>& text : texts) batch.push_back({engine->Open(), text});
  TEMPER_RETURN_IF_ERROR(engine->Step(batch));
  std::vector<std::vector<float>> logits;
  for (const DecodeEngine::Fed& fed : batch) {
    logits.emplace_back(fed.sequence->logits().begin(), fed.sequence->logits().end());
  }
  return {std::move(logits)};
}

void SubtractMean(std::vector<float>* logits) {
  const double mean = std::accumulate(logits->begin(), logits->end(), 0.0) / static_cast<double>(logits->size());
  for (float& logit : *logits) logit -= static_cast<float>(mean);
}

int64_t MostProbable(const std::vector<float>& logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

}  // namespace

std::string BaseError::Describe(const RunConfig& config) const {
  std::vector<std::string> kept;
  if (const auto format = FormatOf(config.model.base_dtype)) kept.push_back(fmt::format("in {}", ToString(*format)));
  if (const auto format = FormatOf(config.model.embedding_dtype)) {
    kept.push_back(fmt::format("embedding and head in {}", ToString(*format)));
  }
  return fmt::format(
      "base        {}: logits differ by {:.2g} % from those of the model's files; the most probable token is the same "
      "behind {} of {} beginnings of samples",
      fmt::join(kept, ", "), 100 * relative, alike, texts);
}

bool QuantisesBase(const ModelFacts& facts, const RunConfig& config) {
  const BaseFormat of_files = FormatOfFiles(facts, config);
  const bool plain = !of_files.modules && !of_files.embedding && !of_files.experts;
  return plain && (FormatOf(config.model.base_dtype) || FormatOf(config.model.embedding_dtype));
}

Result<std::optional<BaseError>> MeasureBaseError(const OpenedModel& model, const RunConfig& config, Bytes arena,
                                                  const TokenStore& samples) {
  const ModelFacts& facts = model.model().facts();
  const std::vector<std::vector<int32_t>> texts = Beginnings(samples);
  TEMPER_CHECK(QuantisesBase(facts, config) && !texts.empty());
  TEMPER_ASSIGN_OR_RETURN(auto exact, LogitsBehind(texts, model, config, arena, FormatOfFiles(facts, config)));
  if (!exact) return {std::nullopt};
  TEMPER_ASSIGN_OR_RETURN(
      auto quantised,
      LogitsBehind(texts, model, config, arena,
                   BaseFormatOf(facts, FormatOf(config.model.base_dtype), FormatOf(config.model.embedding_dtype),
                                ComputeDType(config), /*dequantised_first=*/false)));
  if (!quantised) return {std::nullopt};
  BaseError error{.texts = static_cast<int64_t>(texts.size())};
  double difference = 0, size = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    std::vector<float>&z = (*exact)[i], &q = (*quantised)[i];
    error.alike += MostProbable(z) == MostProbable(q) ? 1 : 0;
    SubtractMean(&z);
    SubtractMean(&q);
    for (size_t v = 0; v < z.size(); ++v) {
      difference += (static_cast<double>(q[v]) - z[v]) * (static_cast<double>(q[v]) - z[v]);
      size += static_cast<double>(z[v]) * z[v];
    }
  }
  error.relative = size > 0 ? std::sqrt(difference / size) : 0;
  return {error};
}

}  // namespace temper
