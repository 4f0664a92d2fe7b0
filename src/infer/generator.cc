#include "infer/generator.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/philox.h"

namespace temper {

int32_t SampleToken(std::span<const float> logits, const SamplingSpec& spec, uint64_t draw, uint64_t stream) {
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
  const double target = sum * UniformAt({.seed = spec.seed, .name_hash = HashName("sample"), .step = draw}, stream);
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

Status CheckPrompt(std::span<const int32_t> prompt, int64_t context) {
  if (prompt.empty()) return InvalidArgument("there is nothing to continue: the prompt has no tokens");
  if (static_cast<int64_t>(prompt.size()) <= context) return OkStatus();
  return InvalidArgument(
      fmt::format("the prompt has {} tokens, but the context holds only {}", prompt.size(), context));
}

// The token after those of `seen`, of a sequence that has `length` of them in its cache.
Result<int32_t> NextToken(std::span<const float> logits, std::span<const int32_t> seen, const SamplingSpec& sampling,
                          int64_t length, uint64_t stream, std::vector<float>* penalized) {
  if (std::any_of(logits.begin(), logits.end(), [](float x) { return std::isnan(x); })) {
    return Numerical(
        "the model's logits are not numbers (NaN): its weights are damaged or the run that made it diverged");
  }
  if (sampling.repetition_penalty != 1) {
    penalized->assign(logits.begin(), logits.end());
    PenalizeRepetition(*penalized, seen, sampling.repetition_penalty);
    logits = *penalized;
  }
  return SampleToken(logits, sampling, static_cast<uint64_t>(length), stream);
}

// Feeds all of *next but its last step. False: `stopped` said so between two steps.
Result<bool> FeedUpToLastStep(DecodeSequence& decoder, std::span<const int32_t>* next,
                              const std::function<bool()>& stopped) {
  const int64_t longest = decoder.engine().longest_step();
  while (static_cast<int64_t>(next->size()) > longest) {
    if (stopped()) return false;
    const auto piece = static_cast<size_t>(longest);
    TEMPER_RETURN_IF_ERROR(decoder.Feed(next->first(piece)).status());
    *next = next->subspan(piece);
  }
  return true;
}

}  // namespace

Result<std::vector<int32_t>> GenerateTokens(DecodeSequence& decoder, std::span<const int32_t> prompt,
                                            int64_t max_new_tokens, const SamplingSpec& sampling,
                                            std::span<const int32_t> stop, const std::function<bool(int32_t)>& on_token,
                                            const std::function<bool()>& stopped) {
  TEMPER_RETURN_IF_ERROR(CheckPrompt(prompt, decoder.context()));
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
    TEMPER_ASSIGN_OR_RETURN(const std::span<const float> logits, decoder.Feed(next));
    TEMPER_ASSIGN_OR_RETURN(last, NextToken(logits, seen, sampling, decoder.length(), /*stream=*/0, &penalized));
    if (std::find(stop.begin(), stop.end(), last) != stop.end()) break;
    produced.push_back(last);
    seen.push_back(last);
    if (!on_token(last)) break;
    next = {&last, 1};
  }
  return produced;
}

Status GenerateAll(DecodeEngine& engine, std::span<const std::vector<int32_t>> prompts, int64_t max_new_tokens,
                   const SamplingSpec& sampling, std::span<const int32_t> stop,
                   const std::function<void(size_t, std::vector<int32_t>)>& on_answer) {
  for (const std::vector<int32_t>& prompt : prompts) TEMPER_RETURN_IF_ERROR(CheckPrompt(prompt, engine.context()));
  TEMPER_CHECK(max_new_tokens > 0) << max_new_tokens;
  struct Answering {
    DecodeSequence* sequence;
    size_t prompt = 0, prompt_tokens = 0;
    std::vector<int32_t> seen = {};  // prompt and answer
    size_t fed = 0;                  // of them
    bool busy = false;
  };
  struct Closing {
    DecodeEngine& engine;
    std::vector<Answering> all;
    ~Closing() {
      for (const Answering& a : all) engine.Close(a.sequence);
    }
  } closing{engine, {}};
  std::vector<Answering>& all = closing.all;
  while (DecodeSequence* sequence = engine.Open()) all.push_back({sequence});
  TEMPER_CHECK(static_cast<int64_t>(all.size()) == engine.sequences());
  size_t begun = 0;
  const auto begin_next = [&](Answering& a) {
    a.busy = begun < prompts.size();
    if (!a.busy) return;
    a.prompt = begun++;
    a.seen = prompts[a.prompt];
    a.prompt_tokens = a.seen.size();
    a.fed = 0;
  };
  for (Answering& a : all) begin_next(a);
  std::vector<DecodeEngine::Fed> batch;
  std::vector<Answering*> fed;
  std::vector<float> penalized;
  while (std::any_of(all.begin(), all.end(), [](const Answering& a) { return a.busy; })) {
    batch.clear();
    fed.clear();
    auto room = static_cast<size_t>(engine.longest_step());
    const auto feed = [&](Answering& a) {
      if (room == 0) return;
      // Only now: meanwhile others may have fed what it begins with.
      if (a.fed == 0) a.fed = static_cast<size_t>(a.sequence->KeepPrefixOf(a.seen));
      const size_t n = std::min(a.seen.size() - a.fed, room);
      batch.push_back({a.sequence, std::span<const int32_t>(a.seen).subspan(a.fed, n)});
      fed.push_back(&a);
      room -= n;
    };
    // Those that answer wait for no prompt.
    const auto answers = [](const Answering& a) { return a.seen.size() - a.fed == 1; };
    for (Answering& a : all) {
      if (a.busy && answers(a)) feed(a);
    }
    for (Answering& a : all) {
      if (a.busy && !answers(a)) feed(a);
    }
    TEMPER_RETURN_IF_ERROR(engine.Step(batch));
    for (size_t i = 0; i < fed.size(); ++i) {
      Answering& a = *fed[i];
      a.fed += batch[i].tokens.size();
      if (a.fed < a.seen.size()) continue;
      TEMPER_ASSIGN_OR_RETURN(const int32_t token, NextToken(a.sequence->logits(), a.seen, sampling,
                                                             a.sequence->length(), a.prompt, &penalized));
      bool ended = std::find(stop.begin(), stop.end(), token) != stop.end();
      if (!ended) {
        a.seen.push_back(token);
        const auto produced = static_cast<int64_t>(a.seen.size() - a.prompt_tokens);
        ended = produced >= max_new_tokens || static_cast<int64_t>(a.seen.size()) > engine.context();
      }
      if (!ended) continue;
      on_answer(a.prompt, {a.seen.begin() + static_cast<std::ptrdiff_t>(a.prompt_tokens), a.seen.end()});
      begin_next(a);
    }
  }
  return OkStatus();
}

}  // namespace temper
