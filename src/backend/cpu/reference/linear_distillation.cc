// A head and its loss in one, as linear_cross_entropy, whose loss is the divergence of a token's distribution from a
// frozen teacher's: with p = softmax(logits / t), q = softmax(teacher's logits / t), m = (1 - beta) p + beta q,
//   beta 0: KL(q | p)      beta 1: KL(p | q)      else beta KL(q | m) + (1 - beta) KL(p | m)
// The gradient of the logits / t is p - q at beta 0; else, with r = log(p / m) (at beta 1 log(p / q)) and its mean k
// under p, (1 - beta) p (r - k), at beta 1 without the factor. A token with target < 0 has no loss and no gradient.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/softcap.h"
#include "graph/ops/loss_operands.h"

namespace temper::reference {
namespace {

// Log-softmax of n numbers divided by the temperature, in place.
void Normalise(double* logit_V, int64_t V, double temperature) {
  const double largest = *std::max_element(logit_V, logit_V + V) / temperature;
  double sum = 0;
  for (int64_t v = 0; v < V; ++v) {
    logit_V[v] = logit_V[v] / temperature - largest;
    sum += std::exp(logit_V[v]);
  }
  for (int64_t v = 0; v < V; ++v) logit_V[v] -= std::log(sum);
}

// The divergence of log p from log q; log p becomes its gradient.
double Diverge(double* log_p_V, const double* log_q_V, int64_t V, double beta) {
  double loss = 0, k = 0;
  const auto log_m = [&](int64_t v) {
    if (beta == 1) return log_q_V[v];
    const double p = std::log1p(-beta) + log_p_V[v], q = std::log(beta) + log_q_V[v];
    return std::max(p, q) + std::log1p(std::exp(-std::abs(p - q)));
  };
  for (int64_t v = 0; v < V; ++v) {
    const double p = std::exp(log_p_V[v]), q = std::exp(log_q_V[v]);
    if (beta == 0) {
      loss += q * (log_q_V[v] - log_p_V[v]);
      continue;
    }
    const double r = log_p_V[v] - log_m(v);
    k += p * r;
    loss += beta == 1 ? p * r : beta * q * (log_q_V[v] - log_m(v)) + (1 - beta) * p * r;
  }
  for (int64_t v = 0; v < V; ++v) {
    const double p = std::exp(log_p_V[v]);
    log_p_V[v] = beta == 0 ? p - std::exp(log_q_V[v]) : (beta == 1 ? 1 : 1 - beta) * p * (log_p_V[v] - log_m(v) - k);
  }
  return loss;
}

}  // namespace

Status LinearDistillation(const Call& call) {
  const Attributes& a = call.attributes();
  const LossOperands operands(a);
  const int64_t T = call.In(0).type().shape[0], V = call.In(1).type().shape[0];
  const Operand target_T = call.In(LossOperands::kTarget);
  const Operand y_TE = call.In(operands.teacher_x), u_VE = call.In(operands.teacher_w);
  const int64_t E = y_TE.columns();
  const double cap = a.DoubleOr("softcap", 0), teacher_cap = a.DoubleOr("teacher_softcap", 0);
  const double temperature = a.Double("temperature"), beta = a.Double("beta");
  for (int64_t t = 0; t < T; ++t) {
    if (target_T.Int(t) < V) continue;
    return InvalidArgument(
        fmt::format("target {} of row {} is outside of the vocabulary of {}", target_T.Int(t), t, V));
  }

  // Scratch: logits, the teacher's, slopes of the cap, and the sums that are rounded when complete.
  int64_t sums = V;
  for (size_t p = 0; p < operands.num_pairs; ++p) sums += (V + 1) * call.In(operands.pairs[p].x).columns();
  double* next = call.Scratch(3 * V + sums);
  const auto take = [&next](int64_t n) {
    double* const taken = next;
    next += n;
    return taken;
  };
  double *const logit_V = take(V), *const teacher_V = take(V), *const slope_V = take(V), *const sum_bias_V = take(V);
  double *sum_x[2] = {}, *sum_w[2] = {};
  for (size_t p = 0; p < operands.num_pairs; ++p) {
    const LossOperands::Pair& pair = operands.pairs[p];
    const int64_t I = call.In(pair.x).columns();
    sum_x[p] = take(I);
    sum_w[p] = take(V * I);
    for (int64_t i = 0; i < V * I; ++i) sum_w[p][i] = pair.acc >= 0 ? call.In(pair.acc)[i] : 0;
  }
  for (int64_t v = 0; v < V; ++v) sum_bias_V[v] = operands.acc_bias >= 0 ? call.In(operands.acc_bias)[v] : 0;

  for (int64_t t = 0; t < T; ++t) {
    double loss = 0;
    for (size_t p = 0; p < operands.num_pairs; ++p) std::fill_n(sum_x[p], call.In(operands.pairs[p].x).columns(), 0.0);
    if (target_T.Int(t) >= 0) {
      const double weight = operands.weight < 0 ? 1 : call.In(operands.weight)[t];
      for (int64_t v = 0; v < V; ++v) {
        double logit = operands.bias >= 0 ? call.In(operands.bias)[v] : 0;
        for (size_t p = 0; p < operands.num_pairs; ++p) {
          const Operand x = call.In(operands.pairs[p].x), w = call.In(operands.pairs[p].w);
          logit += Dot(x, t * x.columns(), w, v * x.columns(), x.columns());
        }
        logit_V[v] = Capped(logit, cap);
        slope_V[v] = CapSlope(logit_V[v], cap) / temperature;
        const double bias = operands.teacher_bias >= 0 ? call.In(operands.teacher_bias)[v] : 0;
        teacher_V[v] = Capped(Dot(y_TE, t * E, u_VE, v * E, E) + bias, teacher_cap);
      }
      Normalise(logit_V, V, temperature);
      Normalise(teacher_V, V, temperature);
      loss = weight * Diverge(logit_V, teacher_V, V, beta);
      for (int64_t v = 0; v < V; ++v) {
        const double d_logit = weight * logit_V[v] * slope_V[v];
        sum_bias_V[v] += d_logit;
        for (size_t p = 0; p < operands.num_pairs; ++p) {
          const Operand x = call.In(operands.pairs[p].x), w = call.In(operands.pairs[p].w);
          const int64_t I = x.columns();
          for (int64_t i = 0; i < I; ++i) {
            sum_x[p][i] += d_logit * w[v * I + i];
            sum_w[p][v * I + i] += d_logit * x[t * I + i];
          }
        }
      }
    }
    call.Out(LossOperands::kLoss).Store(t, loss);
    for (size_t p = 0; p < operands.num_pairs; ++p) {
      const int64_t I = call.In(operands.pairs[p].x).columns();
      const int d_x = operands.pairs[p].d_x;
      for (int64_t i = 0; d_x >= 0 && i < I; ++i) call.Out(d_x).Store(t * I + i, sum_x[p][i]);
    }
  }
  for (size_t p = 0; p < operands.num_pairs; ++p) {
    const int64_t elements = V * call.In(operands.pairs[p].x).columns();
    const int d_w = operands.pairs[p].d_w;
    for (int64_t i = 0; d_w >= 0 && i < elements; ++i) call.Out(d_w).Store(i, sum_w[p][i]);
  }
  for (int64_t v = 0; operands.d_bias >= 0 && v < V; ++v) call.Out(operands.d_bias).Store(v, sum_bias_V[v]);
  return OkStatus();
}

}  // namespace temper::reference
