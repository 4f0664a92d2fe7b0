// What attention's ops share: how columns of q, k and v are divided into heads.
#pragma once

#include "graph/ops/rules.h"

namespace temper {

struct AttentionHeads {
  int64_t tokens, heads, kv_heads, head_dim;
};

// The head layout of q_T(H*E), k_T(K*E), v_T(K*E); heads == 0 if they have none.
inline AttentionHeads HeadsOf(const TensorType& q, const TensorType& k, const TensorType& v, const Attributes& a) {
  const int64_t h = a.Int("heads"), kv = a.Int("kv_heads");
  const bool good = IsMatrix(q) && IsFloat(q) && IsMatrix(k) && k == v && q.dtype == k.dtype && h > 0 && kv > 0 &&
                    h % kv == 0 && q.shape[1] % h == 0 && k.shape[1] == q.shape[1] / h * kv &&
                    q.shape[0] == k.shape[0] && a.DoubleOr("softcap", 0) >= 0;
  return good ? AttentionHeads{q.shape[0], h, kv, q.shape[1] / h} : AttentionHeads{};
}

inline TensorType LseType(const TensorType& q, const Attributes& a) {
  return {StatisticDType(q.dtype), {q.shape[0], a.Int("heads")}};
}

}  // namespace temper
