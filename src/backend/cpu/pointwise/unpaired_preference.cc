// unpaired_preference: one thread goes through the tokens twice, an answer at a time; beside a step's products that is
// nothing.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"

namespace temper {
namespace {

struct RatedTerms {
  double beta, good_weight, bad_weight;
};

void RunRated(const RatedTerms& terms, int64_t tokens, const KernelArgs& args) {
  const float* const logprob = In<float>(args, 0);
  const int32_t* const target = In<int32_t>(args, 1);
  const float* const reference = In<float>(args, 2);
  const int32_t* const document = In<int32_t>(args, 3);
  const float *const rating = In<float>(args, 4), *const kl = In<float>(args, 5);
  std::array<float*, 6> out;  // weight, loss, rewards of good and bad answers, margin, kl
  for (size_t k = 0; k < out.size(); ++k) {
    out[k] = Out<float>(args, static_cast<int>(k));
    std::fill_n(out[k], tokens, 0.0f);
  }
  for (int64_t begin = 0, end = 0; begin < tokens; begin = end) {
    double sum = 0;
    for (end = begin; end < tokens && document[end] == document[begin]; ++end) {
      if (target[end] >= 0) sum += logprob[end];
    }
    if (rating[begin] == 0) continue;  // padding
    const double of_batch = rating[begin], sign = of_batch > 0 ? 1 : -1;
    const double weight = of_batch > 0 ? terms.good_weight : terms.bad_weight;
    const double ratio = static_cast<float>(sum) - static_cast<double>(reference[begin]);
    const double x = terms.beta * sign * (ratio - static_cast<double>(kl[begin]));
    const double win = 1 / (1 + std::exp(-x)), lose = 1 / (1 + std::exp(x));
    for (int64_t t = begin; t < end; ++t) {
      if (target[t] >= 0) out[0][t] = static_cast<float>(weight * terms.beta * sign * win * lose);
    }
    const double reward = terms.beta * ratio;
    out[1][begin] = static_cast<float>(weight * lose);
    out[of_batch > 0 ? 2 : 3][begin] = static_cast<float>(reward * std::abs(of_batch));
    out[4][begin] = static_cast<float>(reward * of_batch);
    out[5][begin] = kl[begin];
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeUnpairedPreference(const KernelSpec& spec, Isa) {
  if (spec.inputs[0].dtype != DType::kF32) return nullptr;
  const RatedTerms terms{.beta = spec.attributes.Double("beta"),
                         .good_weight = spec.attributes.Double("good_weight"),
                         .bad_weight = spec.attributes.Double("bad_weight")};
  return MakeKernel([terms, tokens = spec.inputs[0].shape[0]](const KernelArgs& args) {
    RunRated(terms, tokens, args);
    return OkStatus();
  });
}

}  // namespace temper
