// What attention's ops share: how columns of q, k and v are divided into heads.
#pragma once

#include <vector>

#include "graph/ops/operand_types.h"
#include "graph/rule.h"

namespace temper {

struct AttentionHeads {
  int64_t tokens, heads, kv_heads, head_dim;
  int64_t v_head_dim;  // of v and of the output
};

// The head layout of q_T(H*E), k_T(K*E), v_T(K*W); heads == 0 if they have none. W is E but in latent attention.
inline AttentionHeads HeadsOf(const TensorType& q, const TensorType& k, const TensorType& v, const Attributes& a) {
  const int64_t h = a.Int("heads"), kv = a.Int("kv_heads");
  const bool good = IsMatrix(q) && IsFloat(q) && IsMatrix(k) && IsMatrix(v) && q.dtype == k.dtype &&
                    v.dtype == k.dtype && h > 0 && kv > 0 && h % kv == 0 && q.shape[1] % h == 0 &&
                    k.shape[1] == q.shape[1] / h * kv && v.shape[1] % kv == 0 && q.shape[0] == k.shape[0] &&
                    v.shape[0] == k.shape[0] && a.DoubleOr("softcap", 0) >= 0;
  return good ? AttentionHeads{q.shape[0], h, kv, q.shape[1] / h, v.shape[1] / kv} : AttentionHeads{};
}

// The type of o_T(H*W). REQUIRES: HeadsOf found heads.
inline TensorType AttendedType(const TensorType& q, const TensorType& v, const Attributes& a) {
  return {q.dtype, {q.shape[0], v.shape[1] / a.Int("kv_heads") * a.Int("heads")}};
}

// ALiBi (Press et al. 2021): before they are scaled, slope * (position of the key - position of the query) is added to
// scores, with a slope for each head. `rounded`: as Falcon's class has it, places in the document and
// the slope times each are rounded to bf16, and the difference of both counts.
struct AttentionSlopes {
  static constexpr const char kKey[] = "slopes", kRoundedKey[] = "rounded_slopes";
  // Makes those of the heads from `begin` on; nothing without slopes.
  static void Cut(int64_t begin, int64_t heads, Attributes* a) {
    if (!a->Has(kKey)) return;
    const std::vector<double> all(a->Doubles(kKey).begin(), a->Doubles(kKey).end());
    a->Set(kKey, std::vector<double>(all.begin() + begin, all.begin() + begin + heads));
  }
  // One for each head; neither with a cap, whose slope depends on the score alone, nor in a window, where the first key
  // is not that of the document.
  static bool Good(const Attributes& a) {
    if (!a.Has(kKey)) return !a.Flag(kRoundedKey);
    return static_cast<int64_t>(a.Doubles(kKey).size()) == a.Int("heads") && a.DoubleOr("softcap", 0) == 0 &&
           a.IntOr("window", 0) == 0 && !a.Flag("last");
  }
};

// Where a node's optional operands are; -1: absent.
struct AttentionOptions {
  int sink = -1;  // a logit per head, [H], that joins the sum of a row's exponentials and carries no value
  int last = -1;  // [T]: the last key that a query sees, where that is not itself
  int inputs = 0;
};
// `first`: how many operands come before them.
inline AttentionOptions AttentionOptionsOf(const Attributes& a, int first) {
  AttentionOptions o;
  if (a.Flag("sink")) o.sink = first++;
  if (a.Flag("last")) o.last = first++;
  o.inputs = first;
  return o;
}
inline bool GoodOptions(const Types& in, const Attributes& a, const AttentionOptions& o, const AttentionHeads& heads) {
  return static_cast<int>(in.size()) == o.inputs && AttentionSlopes::Good(a) &&
         (o.sink < 0 || IsFloatVector(in[static_cast<size_t>(o.sink)], heads.heads)) &&
         (o.last < 0 || IsIndex(in[static_cast<size_t>(o.last)], heads.tokens));
}

inline TensorType LseType(const TensorType& q, const Attributes& a) {
  return {StatisticDType(q.dtype), {q.shape[0], a.Int("heads")}};
}

}  // namespace temper
