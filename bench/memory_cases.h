// The memory-bound kernels, [T, D] each, that memory_bench and gpu_kernels compare with the speed of the memory.
#pragma once

#include <string>
#include <vector>

#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::bench {

struct MemoryCase {
  const char* name;
  Op op;
  Types inputs;
  Attributes attributes;
  int output = -1, input = -1;  // in place, where the rule allows it
};

inline std::vector<MemoryCase> MemoryCases(DType dtype, int64_t T, int64_t D) {
  const TensorType x{dtype, {T, D}}, w{dtype, {D}}, rows{DType::kF32, {T}};
  const TensorType table{DType::kF32, {T, 64}}, rng{DType::kI64, {kNumRngWords}}, index{DType::kI32, {T}};
  const TensorType f32{DType::kF32, {T, D}}, clip{DType::kF32, {2}}, scalars{DType::kF64, {kNumScalars}};
  const int64_t one = 1;
  const std::string other = dtype == DType::kF32 ? "bf16" : "f32";
  std::vector<MemoryCase> cases = {
      {"add", Op::kAdd, {x, x}, {}},
      {"add in place", Op::kAdd, {x, x}, {}, 0, 0},
      {"cast", Op::kCast, {x}, {{"dtype", other}}},
      {"embedding", Op::kEmbedding, {x, index}, {}},
      {"embedding_backward in place", Op::kEmbeddingBackward, {x, index, f32}, {{"acc", one}, {"vocab", T}}, 0, 2},
      {"rms_norm", Op::kRmsNorm, {x, w}, {{"eps", 1e-5}}},
      {"rms_norm_backward", Op::kRmsNormBackward, {x, x, w, rows, x}, {{"acc", one}}, 0, 4},
      {"rms_norm_backward, d_w", Op::kRmsNormBackward, {x, x, w, rows, x}, {{"acc", one}, {"grad_w", one}}, 0, 4},
      {"layer_norm", Op::kLayerNorm, {x, w, w}, {{"eps", 1e-5}}},
      {"layer_norm_backward, d_w",
       Op::kLayerNormBackward,
       {x, x, w, rows, rows, x},
       {{"acc", one}, {"grad_w", one}},
       0,
       5},
      {"rope in place", Op::kRope, {x, table}, {{"head_dim", int64_t{64}}}, 0, 0},
      {"glu", Op::kGlu, {x, x}, {}},
      {"glu_backward in place", Op::kGluBackward, {x, x, x}, {}, 0, 1},
      {"relu", Op::kRelu, {x}, {}},
      {"gelu erf", Op::kGelu, {x}, {}},
      {"gelu erf backward", Op::kGeluBackward, {x, x}, {}},
      {"gelu tanh", Op::kGelu, {x}, {{"tanh", one}}},
      {"gelu tanh backward", Op::kGeluBackward, {x, x}, {{"tanh", one}}},
      {"dropout", Op::kDropout, {x, rng}, {{"p", 0.1}}},
      {"sum_rows", Op::kSumRows, {x}, {}},
      {"sum_squares", Op::kSumSquares, {x}, {}},
  };
  MemoryCase adamw{"adamw",
                   Op::kAdamw,
                   {f32, f32, f32, f32, clip, scalars},
                   {{"beta1", 0.9},
                    {"beta2", 0.999},
                    {"eps", 1e-8},
                    {"weight_decay", 0.1},
                    {"weight", one},
                    {"dtype", std::string(ToString(dtype))}}};
  cases.push_back(adamw);
  return cases;
}

}  // namespace temper::bench
