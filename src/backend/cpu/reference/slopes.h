// ALiBi (graph/ops/attention_heads.h). Internal to reference/.
#pragma once

#include <vector>

#include "graph/ops/attention_heads.h"

namespace temper::reference {

class Slopes {
 public:
  explicit Slopes(const Attributes& a) : rounded_(a.Flag(AttentionSlopes::kRoundedKey)) {
    if (a.Has(AttentionSlopes::kKey)) {
      of_heads_.assign(a.Doubles(AttentionSlopes::kKey).begin(), a.Doubles(AttentionSlopes::kKey).end());
    }
  }
  // What the product of query and key grows by; `first` is where their document begins.
  double At(int64_t head, int64_t key, int64_t query, int64_t first) const {
    if (of_heads_.empty()) return 0;
    const double slope = of_heads_[static_cast<size_t>(head)];
    const auto in_bf16 = [](double x) { return static_cast<double>(ToFloat(FromFloat<bf16>(static_cast<float>(x)))); };
    const auto rounded = [&](int64_t place) { return in_bf16(slope * in_bf16(static_cast<double>(place))); };
    if (rounded_) return rounded(key - first) - rounded(query - first);
    return slope * static_cast<double>(key - query);
  }

 private:
  const bool rounded_;
  std::vector<double> of_heads_;
};

}  // namespace temper::reference
