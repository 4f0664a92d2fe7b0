// A token's experts by their scores, their weights, and the places of its rows among all experts'; and the gradient of
// the weights, the choice fixed.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/logistic.h"
#include "graph/ops/route.h"

namespace temper::reference {
namespace {

// score_E of the logits of token `t`.
void ScoresOf(const Operand& logits_TE, int64_t t, const RouteSpec& s, double* score_E) {
  const int64_t E = s.experts;
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t e = 0; e < E; ++e) largest = std::max(largest, logits_TE[t * E + e]);
  for (int64_t e = 0; e < E; ++e) {
    const double l = logits_TE[t * E + e];
    score_E[e] = s.sigmoid ? Sigmoid(l) : std::exp(l - largest);
    sum += score_E[e];
  }
  for (int64_t e = 0; e < E && !s.sigmoid; ++e) score_E[e] /= sum;
}

constexpr double kNever = -std::numeric_limits<double>::infinity();
constexpr double kLeast = std::numeric_limits<float>::lowest() / 4;  // two of them are no f32 -infinity

// The place of the largest that may be chosen, the first of equals, or -1. NaN may, too: a run that has diverged shows
// it in its loss.
int64_t Largest(const double* choice_E, int64_t E) {
  int64_t best = -1;
  for (int64_t e = 0; e < E; ++e) {
    if (choice_E[e] != kNever && (best < 0 || choice_E[e] > choice_E[best])) best = e;
  }
  return best;
}

// Sets the choice of experts outside the best groups to -infinity. A group is as good as its best expert, or by
// sigmoid as its two best together.
void KeepBestGroups(const RouteSpec& s, double* choice_E) {
  const int64_t size = s.experts / s.groups;
  std::vector<double> group_G, sorted;
  for (int64_t g = 0; g < s.groups; ++g) {
    sorted.assign(choice_E + g * size, choice_E + (g + 1) * size);
    const int64_t first = Largest(sorted.data(), size);
    double sum = sorted[static_cast<size_t>(first)];
    sorted[static_cast<size_t>(first)] = kNever;
    if (const int64_t second = Largest(sorted.data(), size); s.sigmoid && second >= 0) {
      sum += sorted[static_cast<size_t>(second)];
    }
    group_G.push_back(sum);
  }
  std::vector<bool> kept(static_cast<size_t>(s.groups));
  for (int64_t i = 0; i < s.top_groups; ++i) {
    const int64_t g = Largest(group_G.data(), s.groups);
    group_G[static_cast<size_t>(g)] = kNever;
    kept[static_cast<size_t>(g)] = true;
  }
  for (int64_t e = 0; e < s.experts; ++e) {
    if (!kept[static_cast<size_t>(e / size)]) choice_E[e] = kNever;
  }
}

}  // namespace

Status Route(const Call& call) {
  const Operand logits_TE = call.In(0), weight_TA = call.Out(0);
  const RouteSpec s = RouteSpecOf(logits_TE.type(), call.attributes());
  auto* const place_TA = reinterpret_cast<int32_t*>(call.Out(1).data());
  auto* const expert_P = reinterpret_cast<int32_t*>(call.Out(2).data());
  const int64_t E = s.experts, A = s.active;
  double* const score_E = call.Scratch(2 * E + s.rows());
  double *const choice_E = score_E + E, *const chosen_TA = choice_E + E;
  for (int64_t t = 0; t < s.tokens; ++t) {
    ScoresOf(logits_TE, t, s, score_E);
    for (int64_t e = 0; e < E; ++e) {
      const double choice = score_E[e] + (s.bias ? call.In(1)[e] : 0);
      choice_E[e] = choice < kLeast ? kLeast : choice;  // a bias of -infinity is no mark; NaN stays
    }
    if (s.groups > 0) KeepBestGroups(s, choice_E);
    double sum = s.least_sum();
    for (int64_t a = 0; a < A; ++a) {
      const int64_t e = Largest(choice_E, E);
      choice_E[e] = kNever;
      chosen_TA[t * A + a] = static_cast<double>(e);
      sum += score_E[e];
    }
    for (int64_t a = 0; a < A; ++a) {
      const double w = score_E[static_cast<int64_t>(chosen_TA[t * A + a])];
      weight_TA.Store(t * A + a, s.scale * (s.normalise ? w / sum : w));
    }
  }
  int32_t row = 0;
  for (int64_t e = 0; e < E; ++e) {
    for (int64_t i = 0; i < s.rows(); ++i) {
      if (static_cast<int64_t>(chosen_TA[i]) != e) continue;
      place_TA[i] = row;
      expert_P[row++] = static_cast<int32_t>(e);
    }
  }
  return OkStatus();
}

// With p the scores, S the sum of those chosen and g the gradients of weights, times scale:
//   of p, normalised: (g_a - sum of g p / S) / S, else g_a; then through the logistic function or the softmax.
Status RouteBackward(const Call& call) {
  const Operand d_weight_TA = call.In(0), logits_TE = call.In(1), place_TA = call.In(2), expert_P = call.In(3),
                d_logits_TE = call.Out(0);
  const RouteSpec s = RouteSpecOf(logits_TE.type(), call.attributes());
  const int64_t E = s.experts, A = s.active;
  double* const score_E = call.Scratch(2 * E);
  double* const d_score_E = score_E + E;
  for (int64_t t = 0; t < s.tokens; ++t) {
    ScoresOf(logits_TE, t, s, score_E);
    std::fill_n(d_score_E, E, 0.0);
    const auto expert = [&](int64_t a) { return expert_P.Int(place_TA.Int(t * A + a)); };
    double sum = s.least_sum(), mean = 0;
    for (int64_t a = 0; a < A; ++a) sum += score_E[expert(a)];
    for (int64_t a = 0; a < A; ++a) mean += d_weight_TA[t * A + a] * score_E[expert(a)] / sum;
    for (int64_t a = 0; a < A; ++a) {
      const double g = d_weight_TA[t * A + a];
      d_score_E[expert(a)] = s.scale * (s.normalise ? (g - mean) / sum : g);
    }
    double of_all = 0;
    for (int64_t e = 0; e < E; ++e) of_all += d_score_E[e] * score_E[e];
    for (int64_t e = 0; e < E; ++e) {
      const double p = score_E[e];
      d_logits_TE.Store(t * E + e, s.sigmoid ? d_score_E[e] * p * (1 - p) : p * (d_score_E[e] - of_all));
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
