// Preference by its definition: for each token, the pair that it belongs to is found and summed anew.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"
#include "graph/ops/preference_kind.h"

namespace temper::reference {
namespace {

double LogSigmoid(double x) {
  return x < 0 ? x - std::log1p(std::exp(x)) : -std::log1p(std::exp(-x));
}
double SigmoidOf(double x) {
  return std::exp(LogSigmoid(x));
}

struct Answer {
  double logprob = 0, reference = 0;  // sums
  double count = 0;                   // of predicted tokens
  double nll = 0;                     // of those that count toward it
  bool there = false;
};

}  // namespace

Status Preference(const Call& call) {
  const Operand logprob = call.In(0), target = call.In(1), reference = call.In(2), document = call.In(3),
                sample = call.In(4);
  const PreferenceFacts& facts = *FindPreference(call.attributes().String("kind"));
  using Kind = PreferenceKind;
  const Attributes& attributes = call.attributes();
  const double beta = attributes.Double("beta"), smoothing = attributes.DoubleOr("smoothing", 0),
               gamma = attributes.DoubleOr("gamma", 0), nll_weight = attributes.DoubleOr("nll_weight", 0);
  const bool nll = attributes.Flag("nll"), whole = attributes.Flag("whole"), odds = attributes.Flag("odds");
  // Of a chosen answer's token.
  const auto counts_toward_nll = [&](int64_t i) {
    const bool last = i + 1 == target.elements() || document.Int(i + 1) != document.Int(i);
    return whole ? !last : target.Int(i) >= 0;
  };
  const int64_t T = logprob.elements();
  for (int64_t t = 0; t < T; ++t) {
    const int64_t start = sample.Int(t);
    Answer answers[2];  // chosen, rejected
    for (int64_t i = 0; i < T; ++i) {
      if (sample.Int(i) != start) continue;
      Answer& answer = answers[document.Int(i) == start ? 0 : 1];
      if (!answer.there) answer.reference = reference[i];
      answer.there = true;
      if (nll && counts_toward_nll(i)) answer.nll -= logprob[i];
      if (target.Int(i) < 0) continue;
      answer.logprob += logprob[i];
      answer.count += 1;
    }
    for (int k = 0; k < call.num_outputs(); ++k) call.Out(k).Store(t, 0);
    if (!answers[0].there || !answers[1].there) continue;  // padding
    for (Answer& answer : answers) {
      if (logprob.type().dtype == DType::kF32) answer.logprob = static_cast<float>(answer.logprob);
    }
    double ratios[2], per_token[2] = {1, 1}, z = 0;
    for (int k = 0; k < 2; ++k) {
      if (facts.of_means) per_token[k] = 1 / std::max(answers[k].count, 1.0);
      ratios[k] = answers[k].logprob - answers[k].reference;
      double of_answer = ratios[k] * per_token[k];
      if (facts.rewards_means) ratios[k] = of_answer;
      if (facts.of_odds) {
        of_answer = ratios[k] = std::min(of_answer, -0x1p-24);  // odds of certain answers are infinite
        const double p = std::exp(of_answer);
        of_answer -= std::log(-std::expm1(of_answer));
        per_token[k] /= 1 - p;
      }
      z += (k == 0 ? 1 : -1) * of_answer;
    }
    double loss = 0, slope = 0;  // d loss / d z
    if (facts.kind == Kind::kHinge) {
      loss = beta * z >= 1 ? 0 : 1 - beta * z;  // of NaN: NaN
      slope = beta * z >= 1 ? 0 : -beta;
    } else if (facts.kind == Kind::kIpo) {
      const double off = z - 1 / (2 * beta);
      loss = off * off;
      slope = 2 * off;
    } else if (facts.kind == Kind::kRobust) {
      loss = (-(1 - smoothing) * LogSigmoid(beta * z) + smoothing * LogSigmoid(-beta * z)) / (1 - 2 * smoothing);
      slope = -beta * ((1 - smoothing) * SigmoidOf(-beta * z) + smoothing * SigmoidOf(beta * z)) / (1 - 2 * smoothing);
    } else if (facts.kind == Kind::kSimpo) {
      const double y = beta * z - gamma;
      loss = -(1 - smoothing) * LogSigmoid(y) - smoothing * LogSigmoid(-y);
      slope = -beta * ((1 - smoothing) * SigmoidOf(-y) - smoothing * SigmoidOf(y));
    } else if (facts.kind == Kind::kOrpo) {
      loss = -beta * LogSigmoid(z);
      slope = -beta * SigmoidOf(-z);
    } else {
      loss = -LogSigmoid(beta * z);
      slope = -beta * SigmoidOf(-beta * z);
    }
    const int own = document.Int(t) == start ? 0 : 1;
    double weight = target.Int(t) >= 0 ? (own == 0 ? -slope : slope) * per_token[own] : 0;
    const double scale = nll ? call.In(5)[t] : 0;
    if (nll && own == 0 && counts_toward_nll(t)) weight += nll_weight * scale;
    call.Out(0).Store(t, weight);
    if (t != start) continue;
    call.Out(1).Store(t, loss + nll_weight * scale * answers[0].nll);
    call.Out(2).Store(t, beta * ratios[0]);
    call.Out(3).Store(t, beta * ratios[1]);
    call.Out(4).Store(t, ratios[0] > ratios[1] ? 1 : 0);
    call.Out(5).Store(t, beta * (ratios[0] - ratios[1]));
    int more = 6;
    if (nll) call.Out(more++).Store(t, scale * answers[0].nll);
    if (odds) call.Out(more++).Store(t, LogSigmoid(z));
    if (odds) call.Out(more++).Store(t, z);
  }
  return OkStatus();
}

}  // namespace temper::reference
