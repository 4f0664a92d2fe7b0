#include "infer/generator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace temper {

int32_t SampleToken(std::span<const float> logits, const SamplingSpec& spec, uint64_t draw) {
  const auto best = std::max_element(logits.begin(), logits.end());
  // An infinite logit leaves nothing to draw from.
  if (spec.temperature <= 0 || std::isinf(*best)) return static_cast<int32_t>(best - logits.begin());

  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto by_logit = [&](int32_t a, int32_t b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la != lb ? la > lb : a < b;
  };
  if (spec.top_k > 0 && static_cast<size_t>(spec.top_k) < order.size()) {
    // The whole vocabulary in order costs ten times as much as its best part.
    const auto last = order.begin() + spec.top_k - 1;
    std::nth_element(order.begin(), last, order.end(), by_logit);
    const float least = logits[static_cast<size_t>(*last)];
    order.erase(
        std::partition(last + 1, order.end(), [&](int32_t i) { return logits[static_cast<size_t>(i)] == least; }),
        order.end());
  }
  if (spec.top_k > 0 || spec.top_p < 1) std::sort(order.begin(), order.end(), by_logit);

  std::vector<double> weight(order.size());
  double sum = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    weight[i] = std::exp((static_cast<double>(logits[static_cast<size_t>(order[i])]) - *best) / spec.temperature);
    sum += weight[i];
  }
  if (spec.top_p < 1) {
    double reached = 0;
    size_t n = 0;
    while (n < weight.size() && reached < spec.top_p * sum) reached += weight[n++];
    weight.resize(std::max<size_t>(n, 1));
    sum = std::accumulate(weight.begin(), weight.end(), 0.0);
  }
  if (spec.min_p > 0) {
    size_t kept = 0;
    sum = 0;
    for (size_t i = 0; i < weight.size(); ++i) {
      if (weight[i] < spec.min_p) continue;  // the most probable has the weight 1
      sum += weight[kept] = weight[i];
      order[kept++] = order[i];
    }
    weight.resize(kept);
  }
  const double target = sum * UniformAt({.seed = spec.seed, .name_hash = HashName("sample"), .step = draw}, 0);
  double reached = 0;
  for (size_t i = 0; i < weight.size(); ++i) {
    reached += weight[i];
    if (target < reached) return order[i];
  }
  return order[weight.size() - 1];
}

void PenalizeRepetition(std::span<float> logits, std::span<const int32_t> seen, double penalty) {
  std::vector<int32_t> ids(seen.begin(), seen.end());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  for (const int32_t id : ids) {
    float& logit = logits[static_cast<size_t>(id)];
    logit = static_cast<float>(logit < 0 ? logit * penalty : logit / penalty);
  }
}

namespace {

// Feeds all of *next but its last step. False: `stopped` said so between two steps.
Result<bool> FeedUpToLastStep(DecodeSession& decoder, std::span<const int32_t>* next,
                              const std::function<bool()>& stopped) {
  while (static_cast<int64_t>(next->size()) > decoder.longest_step()) {
    if (stopped()) return false;
    const auto piece = static_cast<size_t>(decoder.longest_step());
    TEMPER_RETURN_IF_ERROR(decoder.Feed(next->first(piece)).status());
    *next = next->subspan(piece);
  }
  return true;
}

}  // namespace

Result<std::vector<int32_t>> GenerateTokens(DecodeSession& decoder, std::span<const int32_t> prompt,
                                            int64_t max_new_tokens, const SamplingSpec& sampling,
                                            std::span<const int32_t> stop, const std::function<bool(int32_t)>& on_token,
                                            const std::function<bool()>& stopped) {
  if (prompt.empty()) return InvalidArgument("there is nothing to continue: the prompt has no tokens");
  if (static_cast<int64_t>(prompt.size()) > decoder.context()) {
    return InvalidArgument(
        fmt::format("the prompt has {} tokens, but the context holds only {}", prompt.size(), decoder.context()));
  }
  std::vector<int32_t> produced;
  std::vector<int32_t> seen(prompt.begin(), prompt.end());
  std::vector<float> penalized;
  std::span<const int32_t> next = prompt.subspan(static_cast<size_t>(decoder.KeepPrefixOf(prompt)));
  int32_t last = 0;
  while (static_cast<int64_t>(produced.size()) < max_new_tokens &&
         decoder.length() + static_cast<int64_t>(next.size()) <= decoder.context()) {
    if (decoder.MakesCacheAgainFor(static_cast<int64_t>(seen.size()))) {
      next = std::span(seen).subspan(static_cast<size_t>(decoder.KeepPrefixOf(seen)));
    }
    if (stopped) {
      TEMPER_ASSIGN_OR_RETURN(const bool fed, FeedUpToLastStep(decoder, &next, stopped));
      if (!fed) return produced;
    }
    TEMPER_ASSIGN_OR_RETURN(std::span<const float> logits, decoder.Feed(next));
    if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); })) {
      return Numerical(
          "the model's logits are not numbers (NaN): its weights are damaged or the run that made it diverged");
    }
    if (sampling.repetition_penalty != 1) {
      penalized.assign(logits.begin(), logits.end());
      PenalizeRepetition(penalized, seen, sampling.repetition_penalty);
      logits = penalized;
    }
    last = SampleToken(logits, sampling, static_cast<uint64_t>(decoder.length()));
    if (std::find(stop.begin(), stop.end(), last) != stop.end()) break;
    produced.push_back(last);
    seen.push_back(last);
    if (!on_token(last)) break;
    next = {&last, 1};
  }
  return produced;
}

}  // namespace temper
