// preference: one thread goes through the tokens twice, a pair at a time; beside a step's products that is nothing.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"

namespace temper {
namespace {

enum class Kind { kSigmoid, kHinge, kIpo, kRobust };

struct Terms {
  Kind kind;
  bool means;  // over the tokens of an answer, not sums
  double beta, smoothing;
};

// log(1 + exp(x))
double SoftPlus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
}

// The loss of a pair whose answers differ by z, and its derivative.
std::pair<double, double> LossOf(const Terms& terms, double z) {
  const double x = terms.beta * z, e = terms.smoothing;
  switch (terms.kind) {
    case Kind::kSigmoid:
      return {SoftPlus(-x), -terms.beta / (1 + std::exp(x))};
    case Kind::kRobust:
      return {((1 - e) * SoftPlus(-x) - e * SoftPlus(x)) / (1 - 2 * e),
              -terms.beta * ((1 - e) / (1 + std::exp(x)) + e / (1 + std::exp(-x))) / (1 - 2 * e)};
    case Kind::kHinge:
      return {x >= 1 ? 0 : 1 - x, x >= 1 ? 0 : -terms.beta};  // of NaN: NaN
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
        sample_(In<int32_t>(args, 4)) {
    for (size_t k = 0; k < out_.size(); ++k) {
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
    return terms_.means ? 1 / static_cast<double>(std::max<int64_t>(answer.count, 1)) : 1;
  }

  void Write(const Answer& chosen, const Answer& rejected) const {
    const double of_chosen = ScaleOf(chosen), of_rejected = ScaleOf(rejected);
    const double better = chosen.logprob - reference_[chosen.begin],
                 worse = rejected.logprob - reference_[rejected.begin];
    const auto [loss, slope] = LossOf(terms_, better * of_chosen - worse * of_rejected);
    Weigh(chosen, -slope * of_chosen);
    Weigh(rejected, slope * of_rejected);
    const std::array<double, 5> of_pair = {loss, terms_.beta * better, terms_.beta * worse, better > worse ? 1.0 : 0.0,
                                           terms_.beta * (better - worse)};
    for (size_t k = 0; k < of_pair.size(); ++k) out_[k + 1][chosen.begin] = static_cast<float>(of_pair[k]);
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
  std::array<float*, 6> out_;  // weight, loss, rewards of chosen and rejected, accuracy, margin
};

}  // namespace

std::unique_ptr<Kernel> MakePreference(const KernelSpec& spec, Isa) {
  if (spec.inputs[0].dtype != DType::kF32) return nullptr;
  const std::string kind = spec.attributes.String("kind");
  const Terms terms{.kind = kind == "hinge"    ? Kind::kHinge
                            : kind == "ipo"    ? Kind::kIpo
                            : kind == "robust" ? Kind::kRobust
                                               : Kind::kSigmoid,
                    .means = kind == "ipo" || kind == "sigmoid_norm",
                    .beta = spec.attributes.Double("beta"),
                    .smoothing = spec.attributes.DoubleOr("smoothing", 0)};
  return MakeKernel([terms, tokens = spec.inputs[0].shape[0]](const KernelArgs& args) {
    Pairs(terms, tokens, args).Run();
    return OkStatus();
  });
}

}  // namespace temper
