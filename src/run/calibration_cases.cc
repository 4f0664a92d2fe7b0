#include "run/calibration_cases.h"

#include <array>
#include <span>

namespace temper {
namespace {

struct Dims {
  int64_t T, I, O;  // tokens, in, out
};

// Of small and large models, with rows too few, enough and many.
constexpr Dims kWide[] = {{128, 512, 2048}, {256, 512, 512},   {512, 1024, 1024},
                          {2048, 512, 512}, {1024, 768, 3072}, {2048, 2048, 768}};
// LoRA's A ([r, in]) and B ([out, r]).
constexpr Dims kNarrow[] = {{256, 512, 8}, {1024, 1024, 16}, {2048, 2048, 8},
                            {256, 8, 512}, {1024, 16, 1024}, {2048, 8, 2048}};

Attributes Acc(bool acc) {
  return {{"acc", int64_t{acc}}, {"bias", int64_t{0}}};
}

// x w^T (+ acc, as a residual or a LoRA branch is added), d_y w, d_y^T x + acc.
RateCases Products(Op op, OpClass op_class, DType dtype) {
  RateCases rate{.op = op, .op_class = op_class, .dtype = dtype, .computes = true};
  const auto add = [&](const Dims& d) {
    const TensorType x{dtype, {d.T, d.I}}, w{dtype, {d.O, d.I}}, y{dtype, {d.T, d.O}};
    TimedCase c{.op = op, .op_class = op_class};
    switch (op) {
      case Op::kLinear:
        c.inputs = {x, w, y};
        c.attributes = Acc(true);
        break;
      case Op::kLinearDx:
        c.inputs = {y, w, x};
        c.attributes = {{"acc", int64_t{1}}};
        break;
      default:
        c.inputs = {y, x, {DType::kF32, {d.O, d.I}}};
        c.attributes = {{"acc", int64_t{1}}};
    }
    rate.cases.push_back(std::move(c));
  };
  for (const Dims& d : op_class == OpClass::kNarrow ? std::span<const Dims>(kNarrow) : std::span<const Dims>(kWide))
    add(d);
  return rate;
}

RateCases Loss(DType dtype) {
  RateCases rate{.op = Op::kLinearCrossEntropy, .op_class = OpClass::kProduct, .dtype = dtype, .computes = true};
  for (const auto& [T, D, V] : {Dims{512, 256, 8192}, Dims{512, 1024, 8192}, Dims{1024, 512, 16384}}) {
    for (const int64_t grad_w : {0, 1}) {
      const TensorType x{dtype, {T, D}}, w{dtype, {V, D}}, target{DType::kI32, {T}};
      rate.cases.push_back({.op = Op::kLinearCrossEntropy,
                            .op_class = OpClass::kProduct,
                            .inputs = {x, w, target},
                            .attributes = {{"pair2", int64_t{0}},
                                           {"grad_x", int64_t{1}},
                                           {"grad_w", grad_w},
                                           {"grad_x2", int64_t{0}},
                                           {"grad_w2", int64_t{0}},
                                           {"acc_w", int64_t{0}},
                                           {"acc_w2", int64_t{0}}}});
    }
  }
  return rate;
}

RateCases Attention(Op op, DType dtype) {
  RateCases rate{.op = op, .op_class = OpClass::kAttention, .dtype = dtype, .computes = true};
  constexpr int64_t kTokens = 2048;
  for (const auto& [heads, kv_heads, head_dim] :
       {std::array<int64_t, 3>{8, 4, 64}, std::array<int64_t, 3>{8, 2, 128}}) {
    for (const int64_t row : {128, 512, 2048}) {
      const TensorType q{dtype, {kTokens, heads * head_dim}}, k{dtype, {kTokens, kv_heads * head_dim}};
      const TensorType start{DType::kI32, {kTokens}}, lse{DType::kF32, {kTokens, heads}};
      TimedCase c{.op = op,
                  .op_class = OpClass::kAttention,
                  .inputs = {q, k, k, start},
                  .attributes = {{"heads", heads}, {"kv_heads", kv_heads}, {"scale", 0.125}, {"row", row}}};
      if (op == Op::kAttentionBackward) c.inputs = {q, q, k, k, q, lse, start};
      rate.cases.push_back(std::move(c));
    }
  }
  return rate;
}

// Sizes at which ops that only move are timed: one vector, then operands that fit the second, the third and no cache.
struct Extent {
  int64_t T, D;
};
constexpr Extent kExtents[] = {{1, 64}, {64, 512}, {1024, 512}, {8192, 1024}};

template <class InputsOf>
RateCases Moving(Op op, DType dtype, Attributes attributes, const InputsOf& inputs_of) {
  RateCases rate{.op = op, .op_class = OpClass::kMemory, .dtype = dtype};
  for (const Extent& e : kExtents) {
    rate.cases.push_back({.op = op,
                          .op_class = OpClass::kMemory,
                          .inputs = inputs_of(TensorType{dtype, {e.T, e.D}}, e),
                          .attributes = attributes});
  }
  return rate;
}

TensorType Vector(DType dtype, int64_t n) {
  return {dtype, {n}};
}

}  // namespace

std::vector<RateCases> CalibrationCases(DType dtype) {
  std::vector<RateCases> all;
  for (const OpClass c : {OpClass::kProduct, OpClass::kNarrow}) {
    for (const Op op : {Op::kLinear, Op::kLinearDx, Op::kLinearDw}) all.push_back(Products(op, c, dtype));
  }
  all.push_back(Loss(dtype));
  for (const Op op : {Op::kAttention, Op::kAttentionBackward}) all.push_back(Attention(op, dtype));

  constexpr DType kF32 = DType::kF32;
  const auto add = [&](Op op, Attributes attributes, const auto& inputs_of) {
    all.push_back(Moving(op, dtype, std::move(attributes), inputs_of));
  };
  const auto one = [](const TensorType& x, const Extent&) { return Types{x}; };
  const auto two = [](const TensorType& x, const Extent&) { return Types{x, x}; };
  const auto three = [](const TensorType& x, const Extent&) { return Types{x, x, x}; };
  add(Op::kAdd, {}, two);
  add(Op::kRmsNorm, {{"eps", 1e-5}}, [&](const TensorType& x, const Extent& e) {
    return Types{x, Vector(dtype, e.D)};
  });
  add(Op::kRmsNormBackward, {{"acc", int64_t{1}}, {"grad_w", int64_t{0}}, {"acc_w", int64_t{0}}},
      [&](const TensorType& x, const Extent& e) {
        return Types{x, x, Vector(dtype, e.D), Vector(kF32, e.T), x};
      });
  add(Op::kLayerNorm, {{"eps", 1e-5}}, [&](const TensorType& x, const Extent& e) {
    return Types{x, Vector(dtype, e.D), Vector(dtype, e.D)};
  });
  add(Op::kLayerNormBackward, {{"acc", int64_t{1}}, {"grad_w", int64_t{0}}, {"acc_w", int64_t{0}}},
      [&](const TensorType& x, const Extent& e) {
        return Types{x, x, Vector(dtype, e.D), Vector(kF32, e.T), Vector(kF32, e.T), x};
      });
  add(Op::kSwiglu, {}, two);
  add(Op::kSwigluBackward, {}, three);
  add(Op::kRelu, {}, one);
  add(Op::kReluBackward, {}, two);
  add(Op::kGelu, {{"tanh", int64_t{0}}}, one);
  add(Op::kGeluBackward, {{"tanh", int64_t{0}}}, two);
  add(Op::kDropout, {{"p", 0.1}}, [](const TensorType& x, const Extent&) {
    return Types{x, {DType::kI64, {kNumRngWords}}};
  });
  add(Op::kRope, {{"head_dim", int64_t{64}}, {"inverse", int64_t{0}}}, [&](const TensorType& x, const Extent& e) {
    return Types{x, {kF32, {e.T, 64}}};
  });
  add(Op::kSumRows, {{"acc", int64_t{0}}}, one);
  add(Op::kEmbedding, {{"offset", int64_t{0}}}, [&](const TensorType&, const Extent& e) {
    return Types{{dtype, {512, e.D}}, Vector(DType::kI32, e.T)};
  });
  add(Op::kCast, {{"dtype", std::string(ToString(kF32))}}, one);
  if (dtype == kF32) {
    add(Op::kSumSquares, {}, one);
    add(Op::kAdamw, {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.0}, {"weight", int64_t{0}}},
        [&](const TensorType& x, const Extent&) {
          return Types{x, x, x, x, Vector(kF32, 2), {DType::kF64, {kNumScalars}}};
        });
  }
  return all;
}

}  // namespace temper
