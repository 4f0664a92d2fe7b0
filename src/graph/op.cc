#include "graph/op.h"

#include <array>

namespace temper {
namespace {

constexpr std::array<std::string_view, kNumOps> kNames = {"embedding",
                                                          "linear",
                                                          "add",
                                                          "cast",
                                                          "slice_rows",
                                                          "rms_norm",
                                                          "layer_norm",
                                                          "rope_table",
                                                          "rope",
                                                          "attention",
                                                          "attention_cached",
                                                          "attention_step",
                                                          "swiglu",
                                                          "relu",
                                                          "gelu",
                                                          "dropout",
                                                          "linear_cross_entropy",
                                                          "embedding_backward",
                                                          "linear_dx",
                                                          "linear_dw",
                                                          "sum_rows",
                                                          "rms_norm_backward",
                                                          "layer_norm_backward",
                                                          "attention_backward",
                                                          "attention_step_backward",
                                                          "swiglu_backward",
                                                          "relu_backward",
                                                          "gelu_backward",
                                                          "sum_squares",
                                                          "sum_scalars",
                                                          "clip",
                                                          "adamw",
                                                          "fetch",
                                                          "evict",
                                                          "all_gather",
                                                          "reduce_scatter",
                                                          "all_reduce",
                                                          "broadcast",
                                                          "shift",
                                                          "send",
                                                          "recv"};

}  // namespace

std::string_view ToString(Op op) {
  return kNames[static_cast<size_t>(op)];
}

std::optional<Op> ParseOp(std::string_view text) {
  for (int i = 0; i < kNumOps; ++i) {
    if (kNames[i] == text) return static_cast<Op>(i);
  }
  return std::nullopt;
}

}  // namespace temper
