// attention_cached: attention of new tokens over a cache of earlier keys and values: the decoding form of attention.
// The tokens of one step may belong to several sequences, each in a slot. A slot's tokens lie in pages of the cache:
// page_table_NP has the pages of each slot in the order of positions, so that slots may share the pages of a common
// beginning.
//
// How a page holds its tokens is the kernels' own affair (rows, or panels that a product reads as they lie): caches are
// read by this op alone. Values are as wide in it as whole panels, hence the padding.
//
// With `stored` the step's keys and values are in the pages already: another block has put them there, whose k, v and
// caches this one attends to. It writes nothing but o.
#include <algorithm>

#include "graph/ops/attention_cache.h"
#include "graph/ops/attention_heads.h"
#include "graph/ops/attention_scratch.h"
#include "graph/ops/rules.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  const auto good = [&] {
    if (in.size() < 8) return false;
    const AttentionHeads heads = HeadsOf(in[0], in[1], in[2], a);
    if (heads.heads == 0 || !GoodOptions(in, a, AttentionOptionsOf(a, 8), heads)) return false;
    const TensorType &k_cache = in[3], &pages = in[7];
    const int64_t page = a.Int("page");
    return IsMatrix(k_cache) && page > 0 && page % kCachePanel == 0 && k_cache.shape[0] % page == 0 &&
           k_cache == KeyCacheType(in[1].dtype, k_cache.shape[0], heads.kv_heads, heads.head_dim) &&
           in[4] == ValueCacheType(in[1].dtype, k_cache.shape[0], heads.kv_heads, heads.v_head_dim) &&
           IsIndex(in[5], heads.tokens) && IsIndex(in[6], heads.tokens) && IsMatrix(pages) &&
           pages.dtype == DType::kI32;
  };
  if (!good()) {
    return BadOperands(Op::kAttentionCached,
                       "(q_S(H*E), k_S(K*E), v_S(K*W), k_cache_R(K*E), v_cache_R(K*W'), slot_S, position_S, "
                       "page_table_NP, [sink_H]), W' being W rounded up to 32 and R whole pages",
                       in, a);
  }
  if (a.Flag("stored")) return Types{AttendedType(in[0], in[2], a)};
  return Types{AttendedType(in[0], in[2], a), in[3], in[4]};
}

// Of full slots, an upper bound: a step reads what its sequences hold.
Cost CostOfStep(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, {out[0]}, 0);
  cost.flops = {2.0 * static_cast<double>(in[0].shape.elements() + out[0].shape.elements()) *
                static_cast<double>(in[7].shape[1] * a.Int("page"))};
  return cost;
}

Bytes Workspace(const Types& in, const Types&, const Attributes& a, int threads) {
  const int64_t E = in[0].shape[1] / a.Int("heads"), W = in[2].shape[1] / a.Int("kv_heads");
  return CachedScratchOf(in[0].shape[0], std::max(E, W), threads).bytes;
}

// The caches grow where they are.
int Overwrites(const Attributes&, int, int output) {
  return output == 0 ? -1 : 2 + output;
}

constexpr AttributeSpec kAttributes[] = {Size("heads"),
                                         Size("kv_heads"),
                                         Double("scale"),
                                         OptionalSize("window"),
                                         OptionalDouble("softcap"),
                                         Flag("sink"),
                                         Flag("stored"),
                                         Size("page"),
                                         {AttentionSlopes::kKey, AttributeSpec::Kind::kDoubles},
                                         Flag(AttentionSlopes::kRoundedKey)};

}  // namespace

const OpRule kAttentionCachedRule = {.kind = OpKind::kAttention,
                                     .attributes = kAttributes,
                                     .infer = Infer,
                                     .cost = CostOfStep,
                                     .workspace = Workspace,
                                     .overwrites = Overwrites,
                                     .measured_as = Op::kAttention};

}  // namespace temper
