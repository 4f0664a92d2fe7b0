// reward_loss: one thread goes through the tokens, a pair at a time; beside a step's products that is nothing.
#include <algorithm>
#include <array>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "tensor/dtype.h"

namespace temper {
namespace {

struct RewardTerms {
  int64_t tokens, begin, end;  // gradients are of [begin, end)
  double center;
  int first;  // operand: the rewards
  bool grad;
};

template <class T>
void PairsOfRewards(const RewardTerms& terms, const KernelArgs& args) {
  const T* const reward = In<T>(args, terms.first);
  const int32_t *const document = In<int32_t>(args, terms.first + 1), *const sample =
                                                                          In<int32_t>(args, terms.first + 2);
  const float* const margin = In<float>(args, terms.first + 3);
  for (int k = 0; k < 5; ++k) std::fill_n(Out<float>(args, k), terms.tokens, 0.0f);
  T* const d_reward = terms.grad ? Out<T>(args, 5) : nullptr;
  if (terms.grad) std::fill_n(d_reward, terms.tokens, FromFloat<T>(0));
  const auto end_of_document = [&](int64_t at) {
    int64_t end = at + 1;
    while (end < terms.tokens && document[end] == document[at]) ++end;
    return end;
  };
  for (int64_t at = 0; at < terms.tokens;) {
    const int64_t start = at, last_chosen = end_of_document(at) - 1;
    at = last_chosen + 1;
    if (at == terms.tokens || sample[at] != sample[start]) continue;  // padding
    const int64_t last_rejected = end_of_document(at) - 1;
    at = last_rejected + 1;
    const double chosen = ToFloat(reward[last_chosen]), rejected = ToFloat(reward[last_rejected]);
    const double z = chosen - rejected - margin[start], sum = chosen + rejected;
    const double loss = std::max(-z, 0.0) + std::log1p(std::exp(-std::abs(z)));  // of NaN: NaN
    const std::array<double, 5> of_pair = {std::isnan(z) ? z : loss + terms.center * sum * sum, chosen, rejected,
                                           chosen > rejected ? 1.0 : 0.0, chosen - rejected};
    for (size_t k = 0; k < of_pair.size(); ++k)
      Out<float>(args, static_cast<int>(k))[start] = static_cast<float>(of_pair[k]);
    if (!terms.grad) continue;
    const double slope = -1 / (1 + std::exp(z)), pull = 2 * terms.center * sum;
    const auto write = [&](int64_t t, double d) {
      if (t >= terms.begin && t < terms.end) d_reward[t] = FromFloat<T>(static_cast<float>(d));
    };
    write(last_chosen, slope + pull);
    write(last_rejected, pull - slope);
  }
}

}  // namespace

std::unique_ptr<Kernel> MakeRewardLoss(const KernelSpec& spec, Isa) {
  const int first = spec.attributes.Flag("own") ? 1 : 0;
  const TensorType& reward = spec.inputs[static_cast<size_t>(first)];
  if (!AllFast({reward})) return nullptr;
  const int64_t begin = spec.attributes.IntOr("begin", 0);
  const RewardTerms terms{.tokens = reward.shape[0],
                          .begin = begin,
                          .end = first == 1 ? begin + spec.inputs[0].shape[0] : reward.shape[0],
                          .center = spec.attributes.DoubleOr("center", 0),
                          .first = first,
                          .grad = spec.attributes.Flag("grad")};
  return MakeKernel([terms, is_f32 = reward.dtype == DType::kF32](const KernelArgs& args) {
    is_f32 ? PairsOfRewards<float>(terms, args) : PairsOfRewards<bf16>(terms, args);
    return OkStatus();
  });
}

}  // namespace temper
