// The closed set of operations. Each has its rules in graph/ops/<op>.cc and a kernel per backend.
// Dim letters: T tokens of a micro-batch (rows flattened), D model, I/O in/out of a linear, H heads, K kv-heads,
// E head dim, F ffn, V vocabulary, R LoRA rank, C cache length.
#pragma once

#include <optional>
#include <string_view>

namespace temper {

enum class Op : unsigned char {
  // Forward. "[x]" is present where the attribute of that name is 1.
  kEmbedding,        // (table_VD, index_T) -> x_TD; row index_T + offset.            attrs: offset
                     //   table: rows [begin, begin+V) of `whole`; other rows give 0  attrs: whole, begin,
                     //   split (mesh axes that cut the whole, outermost first)
  kLinear,           // (x_TI, w_OI, [bias_O], [acc_TO]) -> scale*x w^T + bias + acc.  attrs: bias, acc, scale, out
  kAdd,              // (a, b) -> a + b; b may be a vector, added to every row
  kCast,             // (x) -> x in attrs.dtype
  kSliceRows,        // (x_TD) -> rows [begin, begin+count).                          attrs: begin, count
  kRmsNorm,          // (x_TD, w_D) -> y_TD, rstd_T                                   attrs: eps
  kLayerNorm,        // (x_TD, w_D, b_D) -> y_TD, mean_T, rstd_T                      attrs: eps
  kRopeTable,        // (position_T) -> table_TE: cos in [0,E/2), sin in [E/2,E)      attrs: inv_freq (E/2)
  kRope,             // (x_T(H*E), table_TE) -> y, half-split pairs                   attrs: head_dim, inverse
  kAttention,        // (q_T(H*E), k_T(K*E), v_T(K*E), document_start_T) -> o_T(H*E), lse_TH
                     //                                              attrs: heads, kv_heads, scale, window (0: none)
                     //   tokens dealt over cp, before compile/ring makes it steps:  attrs: row, axes, ranks, index
  kAttentionCached,  // (q_S(H*E), k_S(K*E), v_S(K*E), k_cache_C(K*E), v_cache_C(K*E), length_1)
                     //   -> o_S(H*E), k_cache', v_cache': rows length..length+S written, then attended causally
  kAttentionStep,    // (q_T(H*E), k_T(K*E), v_T(K*E), document_start_T, [o, lse_TH]) -> o_T(H*E) f32, lse_TH: of this
                     //   rank's queries to the keys of rank `origin`, and to those that the o and lse given are of;
                     //   document_start: places in whole rows     attrs: as kAttention, row, ranks, index, origin, acc
  kSwiglu,           // (gate_TF, up_TF) -> silu(gate) * up
  kRelu,             // (x) -> max(x, 0)
  kGelu,             // (x) -> gelu(x)                                                attrs: tanh (0: erf)
  kDropout,          // (x, rng_3) -> x * mask / (1-p); its own adjoint               attrs: p; draws by rng name
                     //   x: from `row`, `column` on of a whole `columns` wide        attrs: row, column, columns
                     //   of tokens dealt over cp                                     attrs: packed_row, ranks, index
  kLinearCrossEntropy,  // (x_TD, w_VD, target_T, [x2_TR, w2_VR], [acc_w], [acc_w2])
                        //   -> loss_T, [d_x], [d_w], [d_x2], [d_w2]; logits = x w^T + x2 w2^T; target -1: no loss
                        //      attrs: pair2, grad_x, grad_w, grad_x2, grad_w2, acc_w, acc_w2, chunk
                        //   w, w2: rows [begin, begin+V) of `whole`, the others on the group's other ranks; the loss is
                        //   over all, d_x this rank's term of a sum               attrs: axes, ranks, begin, whole
  // Backward.
  kEmbeddingBackward,  // (d_x_TD, index_T, [acc_VD]) -> d_table_VD f32                 attrs: offset, acc, vocab,
                       //                                                                      whole, begin, split
  kLinearDx,           // (d_y_TO, w_OI, [acc_TI]) -> scale * d_y w + acc               attrs: acc, scale
  kLinearDw,           // (d_y_TO, x_TI, [acc_OI]) -> scale * d_y^T x + acc, f32        attrs: acc, scale
  kSumRows,            // (d_y_TO, [acc_O]) -> column sums, f32                         attrs: acc
  kRmsNormBackward,    // (d_y_TD, x_TD, w_D, rstd_T, [acc_TD], [acc_w_D]) -> d_x, [d_w]     attrs: acc, grad_w, acc_w
  kLayerNormBackward,  // (d_y, x, w, mean, rstd, [acc_TD], [acc_w, acc_b]) -> d_x, [d_w, d_b]  attrs: acc, grad_w,
                       // acc_w
  kAttentionBackward,  // (d_o, q, k, v, o, lse, document_start) -> d_q, d_k, d_v       attrs: as kAttention
  kAttentionStepBackward,  // (d_o, q, k, v, o, lse, document_start, [d_q f32]) -> d_q (+ the one given), and of this
                           // step alone d_k, d_v, in f32                            attrs: as kAttentionStep
  kSwigluBackward,         // (d_h, gate, up) -> d_gate, d_up
  kReluBackward,           // (d_y, y) -> d_x
  kGeluBackward,           // (d_y, x) -> d_x                                               attrs: tanh
  // Update.
  kSumSquares,  // (g) -> sum of squares, f64[1]
  kSumScalars,  // (x f64[1]...) -> f64[1], added up in order; 0 of none
  kClip,        // (sums f64[1]..., scalars) -> f32[2]: {factor on every gradient, norm of the mean gradient}
                //                                                               attrs: max_norm (0: no clipping)
  kAdamw,       // (master, g, m, v, clip_2, scalars) -> master', m', v', [weight']
                //                                               attrs: beta1, beta2, eps, weight_decay, weight
  // Moves: the same bytes in another tier (Value::tier), towards the device or away from it. With `background` the
  // executor may run them beside the kernels that follow. compile/residency/residency.h places them.
  kFetch,  // (x) -> x
  kEvict,  // (x) -> x
  // Collectives: between the ranks that differ along the mesh axes `axes` (a group of `ranks`). One node may carry many
  // tensors; n-th output from n-th input. What they do to a gradient: tensor/sharding.h. With `background`
  // (compile/mesh/collectives.h) the executor may run them beside the kernels that follow, and with `soon`, too, not
  // behind
  // others of these.
  kAllGather,  // (part...) -> whole...: parts of dim `dim` side by side; adjoint: reduce_scatter
               //                                              attrs: axes, ranks, dim, sizes (of dim in the outputs)
  kReduceScatter,  // (term..., [acc...]) -> part... of the sum (+ acc), cut along dim `dim`; adjoint: all_gather
                   //                                              attrs: axes, ranks, dim, sizes, acc
  kAllReduce,      // (term...) -> sum..., the same bits on every rank; adjoint: none needed, the gradient is whole
                   //                                              attrs: axes, ranks
  kBroadcast,      // (x) -> x: from here on ranks do different things with x; adjoint: all_reduce. attrs: axes, ranks
  kShift,  // (x...) -> x... of the rank before in the group; the first has those of the last. attrs: axes, ranks
  // From one rank to another: `peer` is its place along the axis. Both ends have the same tag and type.
  kSend,  // (x) ->                                                            attrs: axes, peer, tag
  kRecv,  // () -> x                                                           attrs: axes, peer, tag, dtype, shape
};

inline constexpr int kNumOps = static_cast<int>(Op::kRecv) + 1;

// Carried out by a communicator.
constexpr bool IsCollective(Op op) {
  return op >= Op::kAllGather;
}
// Carried out by the runtime.
constexpr bool IsMove(Op op) {
  return op == Op::kFetch || op == Op::kEvict;
}
constexpr bool IsTransfer(Op op) {
  return op == Op::kSend || op == Op::kRecv;
}

std::string_view ToString(Op op);                  // "linear_cross_entropy"
std::optional<Op> ParseOp(std::string_view text);  // the inverse

// Layout of the `scalars` input (f64[kNumScalars]), written by the host before each step.
enum Scalar : int {
  kScalarLearningRate,
  kScalarBiasCorrection1,  // 1 - beta1^t
  kScalarBiasCorrection2,  // 1 - beta2^t
  kScalarTokenCount,       // supervised tokens of the whole batch: all micro-batches, all ranks
  kNumScalars,
};

// Layout of the `rng` input (i64[kNumRngWords]). Draws are keyed by an element's place in the whole batch, so that they
// do not depend on how the batch is cut into micro-batches or dealt to ranks.
enum RngWord : int {
  kRngSeed,
  kRngStep,        // optimizer steps done
  kRngFirstToken,  // place in the batch of the micro-batch's first token
  kNumRngWords,
};

}  // namespace temper
