// What tokens ask of experts, and the loss that balances it: graph/ops/balance.cc has the formulas.
#include "graph/ops/balance.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/reference/call.h"
#include "graph/ops/routed_rows.h"

namespace temper::reference {
namespace {

// The softmax of the logits of token `t`.
void ProbabilitiesOf(const Operand& logits_TE, int64_t t, double* p_E) {
  const int64_t E = logits_TE.columns();
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t e = 0; e < E; ++e) largest = std::max(largest, logits_TE[t * E + e]);
  for (int64_t e = 0; e < E; ++e) sum += p_E[e] = std::exp(logits_TE[t * E + e] - largest);
  for (int64_t e = 0; e < E; ++e) p_E[e] /= sum;
}

// E / n^2 times the load of expert `e` over all blocks; n: the tokens of all blocks. 0 of no tokens.
double FactorOf(const Operand& load_LE, int64_t e, int64_t active) {
  const int64_t E = load_LE.columns();
  double load = 0, rows = 0;
  for (int64_t i = 0; i < load_LE.elements(); ++i) {
    rows += load_LE[i];
    if (i % E == e) load += load_LE[i];
  }
  const double tokens = rows / static_cast<double>(active);
  return tokens == 0 ? 0 : static_cast<double>(E) * load / (tokens * tokens);
}

}  // namespace

Status ExpertLoad(const Call& call) {
  const Operand expert_P = call.In(0), place_TA = call.In(1), present_T = call.In(2), load_LE = call.Out(0);
  const int64_t E = call.attributes().Int("experts"), A = place_TA.columns();
  const int64_t block = call.attributes().IntOr("block", 0);
  double* const sum_LE = call.Scratch(load_LE.elements());
  for (int64_t i = 0; i < load_LE.elements(); ++i) sum_LE[i] = call.attributes().Flag("acc") ? call.In(3)[i] : 0;
  TEMPER_RETURN_IF_ERROR(
      CheckPlaces(reinterpret_cast<const int32_t*>(place_TA.data()), place_TA.elements(), expert_P.elements()));
  for (int64_t i = 0; i < place_TA.elements(); ++i) {
    const int64_t e = expert_P.Int(place_TA.Int(i));
    if (e < 0 || e >= E) return Corrupt("a row is of an expert that is not there");
    sum_LE[block * E + e] += present_T[i / A];
  }
  for (int64_t i = 0; i < load_LE.elements(); ++i) load_LE.Store(i, sum_LE[i]);
  return OkStatus();
}

Status RouterSum(const Call& call) {
  const Operand logits_TE = call.In(0), present_T = call.In(1), sum_V = call.Out(0);
  const ExpertPart part = ExpertPartOf(logits_TE.columns(), call.attributes());
  double* const p_E = call.Scratch(part.experts + part.count);
  double* const total_V = p_E + part.experts;
  for (int64_t v = 0; v < part.count; ++v) total_V[v] = call.attributes().Flag("acc") ? call.In(2)[v] : 0;
  for (int64_t t = 0; t < logits_TE.rows(); ++t) {
    if (present_T[t] == 0) continue;
    ProbabilitiesOf(logits_TE, t, p_E);
    for (int64_t v = 0; v < part.count; ++v) total_V[v] += present_T[t] * p_E[part.begin + v];
  }
  for (int64_t v = 0; v < part.count; ++v) sum_V.Store(v, total_V[v]);
  return OkStatus();
}

// d_logit_e = present p_e (d_e - sum over V of d p).
Status RouterSumBackward(const Call& call) {
  const Operand d_sum_V = call.In(0), logits_TE = call.In(1), present_T = call.In(2), d_logits_TE = call.Out(0);
  const ExpertPart part = ExpertPartOf(logits_TE.columns(), d_sum_V.elements(), call.attributes());
  double* const p_E = call.Scratch(part.experts);
  for (int64_t t = 0; t < logits_TE.rows(); ++t) {
    const bool present = present_T[t] != 0;
    if (present) ProbabilitiesOf(logits_TE, t, p_E);
    double of_all = 0;
    for (int64_t v = 0; v < part.count && present; ++v) of_all += d_sum_V[v] * p_E[part.begin + v];
    for (int64_t e = 0; e < part.experts; ++e) {
      const int64_t v = e - part.begin;
      const double d = v >= 0 && v < part.count ? d_sum_V[v] : 0;
      d_logits_TE.Store(t * part.experts + e, present ? present_T[t] * p_E[e] * (d - of_all) : 0);
    }
  }
  return OkStatus();
}

Status Balance(const Call& call) {
  const Operand load_LE = call.In(0), sum_V = call.In(1);
  const int64_t begin = call.attributes().IntOr("begin", 0), active = call.attributes().Int("active");
  double loss = 0;
  for (int64_t v = 0; v < sum_V.elements(); ++v) loss += FactorOf(load_LE, begin + v, active) * sum_V[v];
  call.Out(0).Store(0, loss);
  return OkStatus();
}

Status BalanceBackward(const Call& call) {
  const Operand d_loss = call.In(0), load_LE = call.In(1), d_sum_V = call.Out(0);
  const int64_t begin = call.attributes().IntOr("begin", 0), active = call.attributes().Int("active");
  for (int64_t v = 0; v < d_sum_V.elements(); ++v) {
    d_sum_V.Store(v, d_loss[0] * FactorOf(load_LE, begin + v, active));
  }
  return OkStatus();
}

}  // namespace temper::reference
