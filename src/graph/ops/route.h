// Sizes and choices of `route` by its operands and attributes: for its rule and for every kernel.
#pragma once

#include "graph/rule.h"

namespace temper {

// How a token's logits become its experts and their weights. Sources: transformers, MixtralTopKRouter (softmax over
// all, then the largest, normalised), Qwen3MoeTopKRouter (`norm_topk_prob`), DeepseekV3TopkRouter (sigmoid, a bias that
// only the choice sees, groups by the sum of their two best).
struct RouteSpec {
  int64_t tokens = 0, experts = 0, active = 0;
  bool sigmoid = false;    // score of an expert: the logistic function of its logit; else the softmax over all
  bool normalise = false;  // the weights of a token add up to `scale`
  bool bias = false;       // added to scores where experts are chosen
  double scale = 1;        // of weights
  int64_t groups = 0;      // experts e * groups / experts are a group; 0: no groups
  int64_t top_groups = 0;  // of which so many are chosen from
  bool operator==(const RouteSpec&) const = default;

  int64_t rows() const { return tokens * active; }
  // What the sum of the chosen scores begins with: logistic ones may all be 0 (DeepseekV3TopkRouter).
  float least_sum() const { return sigmoid ? 1e-20f : 0; }
};

// Of kRoute and kRouteBackward with logits_TE; active is 0 where they do not fit.
inline RouteSpec RouteSpecOf(const TensorType& logits, const Attributes& a) {
  if (logits.shape.rank() != 2) return {};
  RouteSpec s{.tokens = logits.shape[0],
              .experts = logits.shape[1],
              .active = a.Int("active"),
              .sigmoid = a.Flag("sigmoid"),
              .normalise = a.Flag("normalise"),
              .bias = a.Flag("bias"),
              .scale = a.DoubleOr("scale", 1),
              .groups = a.IntOr("groups", 0),
              .top_groups = a.IntOr("top_groups", 0)};
  const bool grouped = s.groups > 0;
  // Enough experts in the chosen groups.
  const bool groups_fit = !grouped ? s.top_groups == 0
                                   : s.top_groups > 0 && s.top_groups <= s.groups && s.experts % s.groups == 0 &&
                                         s.active <= s.experts / s.groups * s.top_groups;
  if (s.active <= 0 || s.active > s.experts || !groups_fit) s.active = 0;
  return s;
}

}  // namespace temper
