// preference: one thread goes through the tokens twice, a pair at a time; beside a step's products that is nothing.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "graph/ops/preference_kind.h"

namespace temper {
namespace {

using Kind = PreferenceKind;

struct Terms {
  const PreferenceFacts& facts;
  double beta, smoothing, gamma;
  bool nll, whole, odds;
  double nll_weight;
};

// log(1 + exp(x))
double SoftPlus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

// The odds of an answer that is certain are infinite: at most those of the largest likelihood below 1 in f32.
constexpr double kCertain = -0x1p-24;

// log(1 - exp(x)) of x < 0
double LogOneMinusExp(double x) {
  return x < -0.6931471805599453 ? std::log1p(-std::exp(x)) : std::log(-std::expm1(x));
}

// The loss of a pair whose answers differ by z (kOrpo: by the log of their odds), and its derivative.
std::pair<double, double> LossOf(const Terms& terms, double z) {
  const double x = terms.beta * z, e = terms.smoothing;
  switch (terms.facts.kind) {
    case Kind::kSigmoid:
    case Kind::kSigmoidNorm:
      return {SoftPlus(-x), -terms.beta / (1 + std::exp(x))};
    case Kind::kRobust:
      return {((1 - e) * SoftPlus(-x) - e * SoftPlus(x)) / (1 - 2 * e),
              -terms.beta * ((1 - e) / (1 + std::exp(x)) + e / (1 + std::exp(-x))) / (1 - 2 * e)};
    case Kind::kHinge:
      return {x >= 1 ? 0 : 1 - x, x >= 1 ? 0 : -terms.beta};  // of NaN: NaN
    case Kind::kSimpo: {
      const double y = x - terms.gamma;
      return {(1 - e) * SoftPlus(-y) + e * SoftPlus(y),
              -terms.beta * ((1 - e) / (1 + std::exp(y)) - e / (1 + std::exp(-y)))};
    }
    case Kind::kOrpo:
      return {terms.beta * SoftPlus(-z), -terms.beta / (1 + std::exp(z))};
    case Kind::kIpo:
      break;
  }
  const double off = z - 0.5 / terms.beta;
  return {off * off, 2 * off};
}

struct Answer {
  int64_t begin = 0, end = 0;
  double logprob = 0;  // sum
  int64_t count = 0;   // of predicted tokens
};

class Pairs {
 public:
  Pairs(const Terms& terms, int64_t tokens, const KernelArgs& args)
      : terms_(terms),
        tokens_(tokens),
        logprob_(In<float>(args, 0)),
        target_(In<int32_t>(args, 1)),
        reference_(In<float>(args, 2)),
        document_(In<int32_t>(args, 3)),
        sample_(In<int32_t>(args, 4)),
        nll_scale_(terms.nll ? In<float>(args, 5) : nullptr),
        outputs_(kOfAll + (terms.nll ? 1 : 0) + (terms.odds ? 2 : 0)) {
    for (size_t k = 0; k < outputs_; ++k) {
      out_[k] = Out<float>(args, static_cast<int>(k));
      std::fill_n(out_[k], tokens, 0.0f);
    }
  }

  void Run() {
    for (int64_t at = 0; at < tokens_;) {
      const Answer chosen = AnswerAt(at);
      at = chosen.end;
      if (at == tokens_ || sample_[at] != sample_[chosen.begin]) continue;  // padding
      const Answer rejected = AnswerAt(at);
      at = rejected.end;
      Write(chosen, rejected);
    }
  }

 private:
  Answer AnswerAt(int64_t begin) const {
    Answer answer{.begin = begin, .end = begin};
    for (int64_t& t = answer.end; t < tokens_ && document_[t] == document_[begin]; ++t) {
      if (target_[t] < 0) continue;
      answer.logprob += logprob_[t];
      ++answer.count;
    }
    answer.logprob = static_cast<float>(answer.logprob);
    return answer;
  }

  double ScaleOf(const Answer& answer) const {
    return terms_.facts.of_means ? 1 / static_cast<double>(std::max<int64_t>(answer.count, 1)) : 1;
  }

  void Write(const Answer& chosen, const Answer& rejected) const {
    double of_chosen = ScaleOf(chosen), of_rejected = ScaleOf(rejected);
    double better = chosen.logprob - reference_[chosen.begin], worse = rejected.logprob - reference_[rejected.begin];
    double z = better * of_chosen - worse * of_rejected;
    if (terms_.facts.rewards_means) {
      better *= of_chosen;
      worse *= of_rejected;
    }
    if (terms_.facts.of_odds) {
      better = std::min(better, kCertain);
      worse = std::min(worse, kCertain);
      z = better - worse;
      z -= LogOneMinusExp(better) - LogOneMinusExp(worse);
      of_chosen /= -std::expm1(better);  // d log odds / d log p = 1 / (1 - p)
      of_rejected /= -std::expm1(worse);
    }
    const auto [loss, slope] = LossOf(terms_, z);
    Weigh(chosen, -slope * of_chosen);
    Weigh(rejected, slope * of_rejected);
    const double nll = terms_.nll ? AddNll(chosen) : 0;
    std::array<double, kMostOutputs> of_pair = {0,
                                                loss + terms_.nll_weight * nll,
                                                terms_.beta * better,
                                                terms_.beta * worse,
                                                better > worse ? 1.0 : 0.0,
                                                terms_.beta * (better - worse)};
    size_t k = kOfAll;
    if (terms_.nll) of_pair[k++] = nll;
    if (terms_.odds) of_pair[k++] = -SoftPlus(-z);
    if (terms_.odds) of_pair[k++] = z;
    for (size_t i = 1; i < k; ++i) out_[i][chosen.begin] = static_cast<float>(of_pair[i]);
  }

  // The cross-entropy of a chosen answer, scaled; adds to its weights.
  double AddNll(const Answer& chosen) const {
    const double scale = nll_scale_[chosen.begin];
    double sum = 0;
    for (int64_t t = chosen.begin; t < chosen.end; ++t) {
      if (terms_.whole ? t + 1 == chosen.end : target_[t] < 0) continue;
      sum -= logprob_[t];
      out_[0][t] = static_cast<float>(out_[0][t] + terms_.nll_weight * scale);
    }
    return scale * sum;
  }

  void Weigh(const Answer& answer, double weight) const {
    for (int64_t t = answer.begin; t < answer.end; ++t) {
      if (target_[t] >= 0) out_[0][t] = static_cast<float>(weight);
    }
  }

  const Terms& terms_;
  const int64_t tokens_;
  const float* const logprob_;
  const int32_t* const target_;
  const float* const reference_;
  const int32_t *const document_, *const sample_;
  const float* const nll_scale_;
  static constexpr size_t kOfAll = 6, kMostOutputs = 9;
  const size_t outputs_;
  std::array<float*, kMostOutputs>
      out_;  // weight, loss, rewards of chosen and rejected, accuracy, margin; see the rule
};

}  // namespace

std::unique_ptr<Kernel> MakePreference(const KernelSpec& spec, Isa) {
  if (spec.inputs[0].dtype != DType::kF32) return nullptr;
  const Terms terms{.facts = *FindPreference(spec.attributes.String("kind")),
                    .beta = spec.attributes.Double("beta"),
                    .smoothing = spec.attributes.DoubleOr("smoothing", 0),
                    .gamma = spec.attributes.DoubleOr("gamma", 0),
                    .nll = spec.attributes.Flag("nll"),
                    .whole = spec.attributes.Flag("whole"),
                    .odds = spec.attributes.Flag("odds"),
                    .nll_weight = spec.attributes.DoubleOr("nll_weight", 0)};
  return MakeKernel([terms, tokens = spec.inputs[0].shape[0]](const KernelArgs& args) {
    Pairs(terms, tokens, args).Run();
    return OkStatus();
  });
}

}  // namespace temper
