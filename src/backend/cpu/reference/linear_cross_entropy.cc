// The head and its loss in one: logits = x w^T + x2 w2^T + bias (the second pair is a LoRA of the head), and
// loss[t] = logsumexp(logits[t]) - logits[t, target[t]]; a token with target < 0 is not supervised: no loss, no
// gradient. A token's weight, where there are some, scales its loss. The gradients are those of the SUM of the losses:
// d_logits = weight * (softmax(logits) - onehot(target)), times the slope of the cap where logits are capped.
// With smoothing s labels are (1 - s) onehot(target) + s / V instead of onehot(target), in the loss and in its
// gradient. token_logprob stores -loss. Where ranks share the vocabulary, w has the words from `begin` on; ranks gather
// the statistics of each chunk of rows (graph/ops/loss_scratch.h) between its logits and its gradients.
// correct[t], where it is asked for, is the token's weight if target[t] is the first of the row's largest logits, else
// 0.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "backend/cpu/products/loss_statistics.h"
#include "backend/cpu/reference/call.h"
#include "backend/cpu/reference/softcap.h"
#include "graph/ops/loss_operands.h"
#include "graph/ops/loss_scratch.h"

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

// The word of target `t` among this rank's V, or -1.
int64_t WordOf(const Operand& target_T, int64_t t, int64_t begin, int64_t V) {
  const int64_t word = target_T.Int(t) - begin;
  return word >= 0 && word < V ? word : -1;
}

// The largest logit so far, and its word.
struct Top {
  double logit = -INFINITY;
  int64_t word = -1;
  void Take(double x, int64_t v) {
    if (x > logit) *this = {x, v};
  }
};

RowOfLogits RowOf(const double* logit_V, int64_t V, int64_t target, double top, const SmoothLabels<double>& labels) {
  const double largest = *std::max_element(logit_V, logit_V + V);
  double sum = 0, logits = 0;
  for (int64_t v = 0; v < V; ++v) {
    sum += std::exp(logit_V[v] - largest);
    logits += logit_V[v];
  }
  return {largest, sum, std::log(sum) + (largest - labels.Expected(logit_V[target], logits)),
          static_cast<int64_t>(top)};
}

void TakeStatistics(const double* logit_V, int64_t V, int64_t word, LossStatistics takes, float* statistics) {
  float largest = -INFINITY;
  for (int64_t v = 0; v < V; ++v) largest = std::max(largest, static_cast<float>(logit_V[v]));
  double sum = 0, logits = 0;
  for (int64_t v = 0; v < V; ++v) {
    sum += std::exp(logit_V[v] - largest);
    logits += logit_V[v];
  }
  statistics[kLossLargest] = largest;
  statistics[kLossSum] = static_cast<float>(sum);
  statistics[kLossTarget] = word < 0 ? -INFINITY : static_cast<float>(logit_V[word]);
  if (takes.smooth) statistics[kLossLogits] = static_cast<float>(logits);
}

}  // namespace

namespace {

// What is stored of a row is `sign` times its loss.
Status Run(const Call& call, double sign) {
  const Attributes& a = call.attributes();
  const LossOperands operands(a);
  const Operand target_T = call.In(LossOperands::kTarget);
  const bool pair2 = operands.num_pairs == 2;
  const auto weight_of = [&](int64_t t) { return operands.weight < 0 ? 1.0 : call.In(operands.weight)[t]; };
  const int64_t T = call.In(0).type().shape[0], V = call.In(1).type().shape[0];
  const int64_t begin = a.IntOr("begin", 0), whole = a.IntOr("whole", V);
  const double cap = a.DoubleOr("softcap", 0);
  const SmoothLabels<double> labels{a.DoubleOr("smoothing", 0), whole};
  int64_t supervised = 0;
  for (int64_t t = 0; t < T; ++t) {
    if (target_T.Int(t) >= whole) {
      return InvalidArgument(
          fmt::format("target {} of row {} is outside of the vocabulary of {}", target_T.Int(t), t, whole));
    }
    supervised += target_T.Int(t) >= 0;
  }
  Exchange* const exchange = call.exchange();
  const int64_t ranks = exchange == nullptr ? 1 : exchange->size();
  LossScratch chunks = LossScratchOf(call.input_types(), a, 1);
  if (exchange == nullptr) chunks.chunk = 1;  // a row needs no other

  // Scratch: a chunk's logits, first words of the largest and statistics, then the sums that are rounded only when
  // complete: a row of d_x, all of d_w, for each pair; d_bias.
  const int64_t D = call.In(0).columns(), R = pair2 ? call.In(3).columns() : 0;
  const LossStatistics takes = LossStatisticsOf(a);
  const int64_t statistics = chunks.chunk * takes.count();
  const bool sums_bias = operands.d_bias >= 0;
  double* const logit_NV =
      call.Scratch(chunks.chunk * (V + 1) + statistics * (1 + ranks) + (1 + V) * (D + R) + (sums_bias ? V : 0));
  double* const top_N = logit_NV + chunks.chunk * V;
  double* const sum_x = top_N + chunks.chunk;
  double *const sum_x2 = sum_x + D, *const sum_w = sum_x2 + R, *const sum_w2 = sum_w + V * D;
  double* const sum_bias = sum_w2 + V * R;
  float* const mine_NS = reinterpret_cast<float*>(sum_bias + (sums_bias ? V : 0));
  float* const all_RNS = mine_NS + statistics;
  const auto pair_of = [&](const LossOperands::Pair& o, double* sum_x_I, double* sum_w_VI) {
    return Pair{call.In(o.x), call.In(o.w), o.d_x >= 0 ? sum_x_I : nullptr, o.d_w >= 0 ? sum_w_VI : nullptr};
  };
  const Pair both[] = {pair_of(operands.pairs[0], sum_x, sum_w), pair_of(operands.pairs[pair2], sum_x2, sum_w2)};
  const std::span pairs(both, operands.num_pairs);
  for (size_t p = 0; p < pairs.size(); ++p) {
    if (pairs[p].sum_w_VI == nullptr) continue;
    const int64_t elements = pairs[p].w_VI.elements();
    const int acc = operands.pairs[p].acc;
    for (int64_t i = 0; i < elements; ++i) pairs[p].sum_w_VI[i] = acc >= 0 ? call.In(acc)[i] : 0;
  }

  for (int64_t v = 0; sums_bias && v < V; ++v) {
    sum_bias[v] = operands.acc_bias >= 0 ? call.In(operands.acc_bias)[v] : 0;
  }

  const auto store_row = [&](int64_t t, double loss, double correct) {
    call.Out(LossOperands::kLoss).Store(t, loss);
    if (operands.correct >= 0) call.Out(operands.correct).Store(t, correct);
    for (size_t p = 0; p < pairs.size(); ++p) {
      const int64_t I = pairs[p].x_TI.columns();
      const int d_x = operands.pairs[p].d_x;
      for (int64_t i = 0; d_x >= 0 && i < I; ++i) call.Out(d_x).Store(t * I + i, pairs[p].sum_x_I[i]);
    }
  };
  std::fill(sum_x, sum_x + D + R, 0.0);
  for (int64_t t = 0; t < T; ++t) {
    if (target_T.Int(t) < 0) store_row(t, 0, 0);
  }
  int64_t next = 0;  // token after those of the chunks so far
  for (int64_t c = 0; c < NumLossChunks(chunks, supervised); ++c) {
    const int64_t n = LossChunkBegin(chunks, supervised, c + 1) - LossChunkBegin(chunks, supervised, c);
    // Calls body(t, i) for the i-th row of the chunk; returns the token after the last.
    const auto for_rows = [&](const auto& body) {
      int64_t t = next;
      for (int64_t i = 0; i < n; ++t) {
        if (target_T.Int(t) >= 0) body(t, i++);
      }
      return t;
    };
    for_rows([&](int64_t t, int64_t i) {
      double* const logit_V = logit_NV + i * V;
      Top top;
      for (int64_t v = 0; v < V; ++v) {
        const double bias = operands.bias >= 0 ? call.In(operands.bias)[v] : 0;
        const double logit = pairs[0].Logit(t, v) + (pair2 ? pairs[1].Logit(t, v) : 0) + bias;
        top.Take(logit, v);
        logit_V[v] = Capped(logit, cap);
      }
      top_N[i] = static_cast<double>(top.word);
      if (exchange == nullptr) return;
      float* const mine = mine_NS + i * takes.count();
      TakeStatistics(logit_V, V, WordOf(target_T, t, begin, V), takes, mine);
      if (!takes.top) return;
      mine[takes.top_logit()] = static_cast<float>(top.logit);
      mine[takes.top_word()] = top.word < 0 ? -1.0f : static_cast<float>(begin + top.word);
    });
    if (exchange != nullptr) {
      const auto count = static_cast<size_t>(n * takes.count());
      TEMPER_RETURN_IF_ERROR(exchange->AllGather({mine_NS, count}, {all_RNS, count * static_cast<size_t>(ranks)}));
    }
    next = for_rows([&](int64_t t, int64_t i) {
      const double* const logit_V = logit_NV + i * V;
      const int64_t word = WordOf(target_T, t, begin, V);
      const RowOfLogits row = exchange == nullptr ? RowOf(logit_V, V, word, top_N[i], labels)
                                                  : AddUpRow(all_RNS, ranks, n, i, takes, labels);
      std::fill(sum_x, sum_x + D + R, 0.0);
      for (int64_t v = 0; v < V; ++v) {
        const double label = (v == word ? labels.more() : 0) + labels.every();
        const double d_logit = weight_of(t) * (std::exp(logit_V[v] - row.largest) / row.sum - label);
        const double d_sum = d_logit * CapSlope(logit_V[v], cap);  // of what the cap takes
        for (const Pair& pair : pairs) pair.AddGradient(t, v, d_sum);
        if (sums_bias) sum_bias[v] += d_sum;
      }
      // Ranks store the same bits whatever kernels they have: these multiply in f32.
      const double loss = exchange == nullptr ? weight_of(t) * row.loss
                                              : static_cast<float>(weight_of(t)) * static_cast<float>(row.loss);
      store_row(t, sign * loss, row.top == target_T.Int(t) ? weight_of(t) : 0);
    });
  }
  for (size_t p = 0; p < pairs.size(); ++p) {
    const int64_t elements = pairs[p].w_VI.elements();
    const int d_w = operands.pairs[p].d_w;
    for (int64_t i = 0; d_w >= 0 && i < elements; ++i) call.Out(d_w).Store(i, pairs[p].sum_w_VI[i]);
  }
  for (int64_t v = 0; sums_bias && v < V; ++v) call.Out(operands.d_bias).Store(v, sum_bias[v]);
  return OkStatus();
}

}  // namespace

Status LinearCrossEntropy(const Call& call) {
  return Run(call, 1);
}
Status TokenLogprob(const Call& call) {
  return Run(call, -1);
}

}  // namespace temper::reference
