// The head and its loss in one: logits = x w^T + x2 w2^T (the second pair is a LoRA of the head), and
// loss[t] = logsumexp(logits[t]) - logits[t, target[t]]; a token with target < 0 is not supervised: no loss, no
// gradient. The gradients are those of the SUM of the losses: d_logits = softmax(logits) - onehot(target).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

// One factor pair of the logits with what is wanted of its gradients.
struct Pair {
  Operand x_TI, w_VI;
  double *sum_x_I, *sum_w_VI;  // nullptr: not wanted

  double Logit(int64_t t, int64_t v) const {
    const int64_t I = x_TI.columns();
    double dot = 0;
    for (int64_t i = 0; i < I; ++i) dot += x_TI[t * I + i] * w_VI[v * I + i];
    return dot;
  }
  void AddGradient(int64_t t, int64_t v, double d_logit) const {
    const int64_t I = x_TI.columns();
    for (int64_t i = 0; i < I; ++i) {
      if (sum_x_I != nullptr) sum_x_I[i] += d_logit * w_VI[v * I + i];
      if (sum_w_VI != nullptr) sum_w_VI[v * I + i] += d_logit * x_TI[t * I + i];
    }
  }
};

}  // namespace

Status LinearCrossEntropy(const Call& call) {
  const Attributes& a = call.attributes();
  const Operand target_T = call.In(2);
  const bool pair2 = a.Flag("pair2");
  const int64_t T = call.In(0).rows(), V = call.In(1).rows();
  for (int64_t t = 0; t < T; ++t) {
    if (target_T.Int(t) >= V) {
      return InvalidArgument(
          fmt::format("target {} of row {} is outside of the vocabulary of {}", target_T.Int(t), t, V));
    }
  }

  // Scratch: logits, then the sums that are rounded only when complete: a row of d_x, all of d_w, for each pair.
  const int64_t D = call.In(0).columns(), R = pair2 ? call.In(3).columns() : 0;
  double* const logit_V = call.Scratch(V + (1 + V) * (D + R));
  double *const sum_x = logit_V + V, *const sum_x2 = sum_x + D, *const sum_w = sum_x2 + R,
                *const sum_w2 = sum_w + V * D;
  Pair pairs[2] = {{call.In(0), call.In(1), a.Flag("grad_x") ? sum_x : nullptr, a.Flag("grad_w") ? sum_w : nullptr},
                   {call.In(pair2 ? 3 : 0), call.In(pair2 ? 4 : 1), a.Flag("grad_x2") ? sum_x2 : nullptr,
                    a.Flag("grad_w2") ? sum_w2 : nullptr}};
  const int num_pairs = pair2 ? 2 : 1;
  int next_in = pair2 ? 5 : 3, next_out = 1;
  const char* const grad_x[] = {"grad_x", "grad_x2"};
  const char* const grad_w[] = {"grad_w", "grad_w2"};
  const char* const acc_w[] = {"acc_w", "acc_w2"};
  int d_x_out[2] = {-1, -1}, d_w_out[2] = {-1, -1};
  for (int p = 0; p < num_pairs; ++p) {
    if (a.Flag(grad_x[p])) d_x_out[p] = next_out++;
    if (a.Flag(grad_w[p])) d_w_out[p] = next_out++;
    if (pairs[p].sum_w_VI == nullptr) continue;
    const int64_t elements = V * pairs[p].w_VI.columns();
    const int acc = a.Flag(acc_w[p]) ? next_in++ : -1;
    for (int64_t i = 0; i < elements; ++i) pairs[p].sum_w_VI[i] = acc >= 0 ? call.In(acc)[i] : 0;
  }

  for (int64_t t = 0; t < T; ++t) {
    const int64_t target = target_T.Int(t);
    std::fill(sum_x, sum_x + D + R, 0.0);
    double loss = 0;
    if (target >= 0) {
      double max = -INFINITY, sum = 0;
      for (int64_t v = 0; v < V; ++v) {
        logit_V[v] = pairs[0].Logit(t, v) + (pair2 ? pairs[1].Logit(t, v) : 0);
        max = std::max(max, logit_V[v]);
      }
      for (int64_t v = 0; v < V; ++v) sum += std::exp(logit_V[v] - max);
      const double lse = max + std::log(sum);
      loss = lse - logit_V[target];
      for (int64_t v = 0; v < V; ++v) {
        const double d_logit = std::exp(logit_V[v] - lse) - (v == target ? 1 : 0);
        for (int p = 0; p < num_pairs; ++p) pairs[p].AddGradient(t, v, d_logit);
      }
    }
    call.Out(0).Store(t, loss);
    for (int p = 0; p < num_pairs; ++p) {
      const int64_t I = pairs[p].x_TI.columns();
      for (int64_t i = 0; d_x_out[p] >= 0 && i < I; ++i) call.Out(d_x_out[p]).Store(t * I + i, pairs[p].sum_x_I[i]);
    }
  }
  for (int p = 0; p < num_pairs; ++p) {
    const int64_t elements = V * pairs[p].w_VI.columns();
    for (int64_t i = 0; d_w_out[p] >= 0 && i < elements; ++i) call.Out(d_w_out[p]).Store(i, pairs[p].sum_w_VI[i]);
  }
  return OkStatus();
}

}  // namespace temper::reference
