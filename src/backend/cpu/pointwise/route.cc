// route and its backward: threads share the tokens; then one counts the rows of each expert and places them, which
// costs a pass over P integers.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "base/team.h"
#include "graph/ops/route.h"
#include "graph/ops/routed_rows.h"

namespace temper {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kLeast = std::numeric_limits<float>::lowest() / 4;  // two of them are no -infinity

// Softmax or logistic function of a token's logits.
template <class T>
void ScoresOf(const T* logit_E, const RouteSpec& s, float* score_E) {
  const int64_t E = s.experts;
  for (int64_t e = 0; e < E; ++e) score_E[e] = ToFloat(logit_E[e]);
  if (s.sigmoid) {
    for (int64_t e = 0; e < E; ++e) score_E[e] = 1 / (1 + std::exp(-score_E[e]));
    return;
  }
  const float largest = *std::max_element(score_E, score_E + E);
  float sum = 0;
  for (int64_t e = 0; e < E; ++e) sum += score_E[e] = std::exp(score_E[e] - largest);
  for (int64_t e = 0; e < E; ++e) score_E[e] /= sum;
}

// The place of the largest that is not kNever, the first of equals, or -1. NaN may be chosen: a run that has diverged
// shows it in its loss.
int64_t Best(const float* choice_E, int64_t E) {
  int64_t best = -1;
  for (int64_t e = 0; e < E; ++e) {
    if (choice_E[e] != kNever && (best < 0 || choice_E[e] > choice_E[best])) best = e;
  }
  return best;
}

// How good a group is: its best expert, or by sigmoid its two best together.
float Goodness(const float* choice_E, int64_t size, bool two) {
  const int64_t first = Best(choice_E, size);
  int64_t second = -1;
  for (int64_t e = 0; e < size && two; ++e) {
    if (e != first && (second < 0 || choice_E[e] > choice_E[second])) second = e;
  }
  return choice_E[first] + (second < 0 ? 0 : choice_E[second]);
}

// Sets experts outside the best groups to kNever. goodness_G: scratch.
void KeepBestGroups(const RouteSpec& s, float* choice_E, float* goodness_G) {
  const int64_t size = s.experts / s.groups;
  for (int64_t g = 0; g < s.groups; ++g) goodness_G[g] = Goodness(choice_E + g * size, size, s.sigmoid);
  for (int64_t i = 0; i < s.top_groups; ++i) goodness_G[Best(goodness_G, s.groups)] = kNever;
  for (int64_t g = 0; g < s.groups; ++g) {
    if (goodness_G[g] != kNever) std::fill_n(choice_E + g * size, size, kNever);
  }
}

// Of one token: its experts, best first, and their weights. scratch: 3 E floats.
template <class T>
void Choose(const T* logit_E, const float* bias_E, const RouteSpec& s, float* scratch, int32_t* chosen_A,
            float* weight_A) {
  float *const score_E = scratch, *const choice_E = score_E + s.experts;
  ScoresOf(logit_E, s, score_E);
  for (int64_t e = 0; e < s.experts; ++e) {
    const float choice = score_E[e] + (bias_E == nullptr ? 0 : bias_E[e]);
    choice_E[e] = choice < kLeast ? kLeast : choice;  // a bias of -infinity is no mark; NaN stays
  }
  if (s.groups > 0) KeepBestGroups(s, choice_E, choice_E + s.experts);
  float sum = s.least_sum();
  for (int64_t a = 0; a < s.active; ++a) {
    const int64_t e = Best(choice_E, s.experts);
    choice_E[e] = kNever;
    chosen_A[a] = static_cast<int32_t>(e);
    sum += weight_A[a] = score_E[e];
  }
  const float factor = static_cast<float>(s.scale) / (s.normalise ? sum : 1);
  for (int64_t a = 0; a < s.active; ++a) weight_A[a] *= factor;
}

// The gradient of one token's logits, the choice fixed. score_E: scratch. With p the scores, S the sum of those chosen
// and g the gradients of weights: of p, normalised, (g - sum of g p / S) / S, else g; then through the logistic
// function or the softmax.
template <class T, class ExpertOf>
void ChooseBackward(const float* d_weight_A, const T* logit_E, const RouteSpec& s, const ExpertOf& expert_of,
                    float* score_E, T* d_logit_E) {
  ScoresOf(logit_E, s, score_E);
  float sum = s.least_sum(), mean = 0;
  for (int64_t a = 0; a < s.active; ++a) sum += score_E[expert_of(a)];
  for (int64_t a = 0; a < s.active && s.normalise; ++a) mean += d_weight_A[a] * score_E[expert_of(a)] / sum;
  const float factor = static_cast<float>(s.scale) / (s.normalise ? sum : 1);
  const auto d_score = [&](int64_t a) { return factor * (d_weight_A[a] - mean); };
  float of_all = 0;
  for (int64_t a = 0; a < s.active; ++a) of_all += d_score(a) * score_E[expert_of(a)];
  for (int64_t e = 0; e < s.experts; ++e) d_logit_E[e] = FromFloat<T>(s.sigmoid ? 0 : -score_E[e] * of_all);
  for (int64_t a = 0; a < s.active; ++a) {
    const float p = score_E[expert_of(a)];
    const float d = s.sigmoid ? d_score(a) * p * (1 - p) : p * (d_score(a) - of_all);
    d_logit_E[expert_of(a)] = FromFloat<T>(d);
  }
}

constexpr int64_t kTokensPerRange = 16;

// Calls body(t, scratch) for each token; each thread has `floats` of scratch.
template <class Body>
void ForTokens(int threads, int64_t tokens, float* scratch, int64_t floats, const Body& body) {
  RunTeam(threads, [&](TeamMember self) {
    const int64_t blocks = (tokens + kTokensPerRange - 1) / kTokensPerRange;
    const int64_t begin = blocks * self.index / self.size * kTokensPerRange;
    const int64_t end = std::min(tokens, blocks * (self.index + 1) / self.size * kTokensPerRange);
    for (int64_t t = begin; t < end; ++t) body(t, scratch + self.index * floats);
  });
}

}  // namespace

std::unique_ptr<Kernel> MakeRoute(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const RouteSpec s = RouteSpecOf(spec.inputs[0], spec.attributes);
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) {
      const T* const logits_TE = In<T>(args, 0);
      const float* const bias_E = s.bias ? In<float>(args, 1) : nullptr;
      float* const weight_TA = Out<float>(args, 0);
      int32_t *const place_TA = Out<int32_t>(args, 1), *const expert_P = Out<int32_t>(args, 2);
      auto* const chosen_TA = reinterpret_cast<int32_t*>(args.workspace);
      int32_t* const next_E = chosen_TA + s.rows();  // the row that an expert's next token takes
      auto* const scratch = reinterpret_cast<float*>(next_E + s.experts);
      ForTokens(threads, s.tokens, scratch, 3 * s.experts, [&](int64_t t, float* own) {
        Choose(logits_TE + t * s.experts, bias_E, s, own, chosen_TA + t * s.active, weight_TA + t * s.active);
      });
      std::fill_n(next_E, s.experts, 0);
      for (int64_t i = 0; i < s.rows(); ++i) ++next_E[chosen_TA[i]];
      for (int64_t e = 0, row = 0; e < s.experts; ++e) {
        const int64_t rows = next_E[e];
        std::fill_n(expert_P + row, rows, static_cast<int32_t>(e));
        next_E[e] = static_cast<int32_t>(row);
        row += rows;
      }
      for (int64_t i = 0; i < s.rows(); ++i) place_TA[i] = next_E[chosen_TA[i]]++;
      return OkStatus();
    });
  });
}

std::unique_ptr<Kernel> MakeRouteBackward(const KernelSpec& spec, Isa) {
  if (!AllFast({spec.inputs[1]})) return nullptr;
  return DispatchFloat(spec.inputs[1].dtype, [&]<class T>() {
    const RouteSpec s = RouteSpecOf(spec.inputs[1], spec.attributes);
    return MakeKernel([=, threads = spec.threads](const KernelArgs& args) -> Status {
      const int32_t *const place_TA = In<int32_t>(args, 2), *const expert_P = In<int32_t>(args, 3);
      TEMPER_RETURN_IF_ERROR(CheckPlaces(place_TA, s.rows(), s.rows()));
      for (int64_t p = 0; p < s.rows(); ++p) {
        if (expert_P[p] < 0 || expert_P[p] >= s.experts) return Corrupt("a row is of an expert that is not there");
      }
      ForTokens(threads, s.tokens, reinterpret_cast<float*>(args.workspace), s.experts, [&](int64_t t, float* own) {
        const auto expert_of = [&](int64_t a) { return expert_P[place_TA[t * s.active + a]]; };
        ChooseBackward(In<float>(args, 0) + t * s.active, In<T>(args, 1) + t * s.experts, s, expert_of, own,
                       Out<T>(args, 0) + t * s.experts);
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
