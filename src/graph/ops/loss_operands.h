// The places of the operands of linear_cross_entropy, token_logprob and linear_distillation: x_TI, w_VI, target_T,
// [x2, w2], [bias_V], [y_TE, u_VE, [teacher_bias_V]], [weight_T], [acc_w], [acc_w2], [acc_bias], [w_of_d_x] -> loss_T,
// [correct_T], [d_x], [d_w], [d_x2], [d_w2], [d_bias]. Attributes say which of those in brackets are present. For the
// rule and for every kernel.
#pragma once

#include <array>

#include "graph/attributes.h"

namespace temper {

// Indices of operands; -1: absent.
struct LossOperands {
  struct Pair {  // of factors, whose product is a term of the logits
    int x = -1, w = -1;
    int d_x = -1, d_w = -1;  // outputs
    int acc = -1;            // what d_w is added to
  };
  static constexpr int kTarget = 2, kLoss = 0;

  std::array<Pair, 2> pairs;
  size_t num_pairs = 1;
  int bias = -1;                                          // of the logits
  int teacher_x = -1, teacher_w = -1, teacher_bias = -1;  // of linear_distillation
  int d_bias = -1, acc_bias = -1;
  int weight = -1;
  int correct = -1;   // an output: the token's weight where its target is the row's largest logit, else 0
  int w_of_d_x = -1;  // the first pair's w once more, packed as d_x reads it (OpRule::packed)
  int num_inputs = 3, num_outputs = 1;
  bool gradient = false;  // whether any gradient is made

  explicit LossOperands(const Attributes& a) {
    constexpr const char* kGradX[2] = {"grad_x", "grad_x2"};
    constexpr const char* kGradW[2] = {"grad_w", "grad_w2"};
    constexpr const char* kAccW[2] = {"acc_w", "acc_w2"};
    pairs[0] = {.x = 0, .w = 1};
    if (a.Flag("pair2")) {
      num_pairs = 2;
      pairs[1].x = num_inputs++;
      pairs[1].w = num_inputs++;
    }
    if (a.Flag("bias")) bias = num_inputs++;
    if (a.Has("temperature")) {
      teacher_x = num_inputs++;
      teacher_w = num_inputs++;
      if (a.Flag("teacher_bias")) teacher_bias = num_inputs++;
    }
    if (a.Flag("weighted")) weight = num_inputs++;
    if (a.Flag("correct")) correct = num_outputs++;
    const int reports = num_outputs;
    for (size_t p = 0; p < num_pairs; ++p) {
      if (a.Flag(kGradX[p])) pairs[p].d_x = num_outputs++;
      if (!a.Flag(kGradW[p])) continue;
      pairs[p].d_w = num_outputs++;
      if (a.Flag(kAccW[p])) pairs[p].acc = num_inputs++;
    }
    if (a.Flag("grad_bias")) {
      d_bias = num_outputs++;
      if (a.Flag("acc_bias")) acc_bias = num_inputs++;
    }
    if (a.Flag("w_of_d_x")) w_of_d_x = num_inputs++;
    gradient = num_outputs > reports;
  }
};

}  // namespace temper
