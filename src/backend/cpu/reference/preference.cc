// Preference by its definition: for each token, the pair that it belongs to is found and summed anew.
#include <algorithm>
#include <cmath>

#include "backend/cpu/reference/call.h"

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
  bool there = false;
};

}  // namespace

Status Preference(const Call& call) {
  const Operand logprob = call.In(0), target = call.In(1), reference = call.In(2), document = call.In(3),
                sample = call.In(4);
  const std::string kind = call.attributes().String("kind");
  const double beta = call.attributes().Double("beta"), smoothing = call.attributes().DoubleOr("smoothing", 0);
  const int64_t T = logprob.elements();
  for (int64_t t = 0; t < T; ++t) {
    const int64_t start = sample.Int(t);
    Answer answers[2];  // chosen, rejected
    for (int64_t i = 0; i < T; ++i) {
      if (sample.Int(i) != start) continue;
      Answer& answer = answers[document.Int(i) == start ? 0 : 1];
      if (!answer.there) answer.reference = reference[i];
      answer.there = true;
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
      if (kind == "ipo" || kind == "sigmoid_norm") per_token[k] = 1 / std::max(answers[k].count, 1.0);
      ratios[k] = answers[k].logprob - answers[k].reference;
      z += (k == 0 ? 1 : -1) * ratios[k] * per_token[k];
    }
    double loss = 0, slope = 0;  // d loss / d z
    if (kind == "hinge") {
      loss = beta * z >= 1 ? 0 : 1 - beta * z;  // of NaN: NaN
      slope = beta * z >= 1 ? 0 : -beta;
    } else if (kind == "ipo") {
      const double off = z - 1 / (2 * beta);
      loss = off * off;
      slope = 2 * off;
    } else if (kind == "robust") {
      loss = (-(1 - smoothing) * LogSigmoid(beta * z) + smoothing * LogSigmoid(-beta * z)) / (1 - 2 * smoothing);
      slope = -beta * ((1 - smoothing) * SigmoidOf(-beta * z) + smoothing * SigmoidOf(beta * z)) / (1 - 2 * smoothing);
    } else {
      loss = -LogSigmoid(beta * z);
      slope = -beta * SigmoidOf(-beta * z);
    }
    const int own = document.Int(t) == start ? 0 : 1;
    if (target.Int(t) >= 0) call.Out(0).Store(t, (own == 0 ? -slope : slope) * per_token[own]);
    if (t != start) continue;
    call.Out(1).Store(t, loss);
    call.Out(2).Store(t, beta * ratios[0]);
    call.Out(3).Store(t, beta * ratios[1]);
    call.Out(4).Store(t, ratios[0] > ratios[1] ? 1 : 0);
    call.Out(5).Store(t, beta * (ratios[0] - ratios[1]));
  }
  return OkStatus();
}

}  // namespace temper::reference
