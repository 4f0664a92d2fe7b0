// A rank's part of a small tensor may be empty: kernels accept operands without rows, and sums without terms are zero.
#include <gtest/gtest.h>

#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "graph/update_rule.h"
#include "op_case.h"
#include "tensor/dynamic_blocks.h"

namespace temper::empty_test {
namespace {

double Exact(int, int64_t) {
  return 0;
}

Tensor Of(DType dtype, const Shape& shape) {
  return Tensor::Random({dtype, shape}, 1);
}

Tensor Scalars() {
  return Tensor::Of({DType::kF64, {kNumScalars}}, {1e-3, 0.1, 0.001, 10});
}

TEST(EmptyOperands, OfElementwiseOps) {
  for (DType dtype : kCompute) {
    for (const Shape& shape : {Shape{0, 7}, Shape{7, 0}, Shape{0, 0}}) {
      const Tensor x = Of(dtype, shape);
      ExpectConforms({Op::kAdd, {x, x}, {}}, Exact);
      ExpectConforms({Op::kAdd, {x, Of(dtype, {shape[1]})}, {}}, Exact);
      ExpectConforms({Op::kScale, {x}, {{"factor", 2.0}}}, Exact);
      ExpectConforms({Op::kRelu, {x}, {}}, Exact);
      ExpectConforms({Op::kReluBackward, {x, x}, {}}, Exact);
      ExpectConforms({Op::kReluSquared, {x}, {}}, Exact);
      ExpectConforms({Op::kReluSquaredBackward, {x, x}, {}}, Exact);
      ExpectConforms({Op::kGelu, {x}, {}}, Exact);
      ExpectConforms({Op::kGeluBackward, {x, x}, {}}, Exact);
      ExpectConforms({Op::kGlu, {x, x}, {}}, Exact);
      ExpectConforms({Op::kGluBackward, {x, x, x}, {}}, Exact);
      ExpectConforms({Op::kSoftcap, {x}, {{"cap", 2.0}}}, Exact);
      const Tensor rng = Tensor::Of({DType::kI64, {kNumRngWords}}, {1, 2, 3});
      ExpectConforms({Op::kDropout, {x, rng}, {{"p", 0.5}}}, Exact);
      for (const char* to : {"f32", "bf16"}) ExpectConforms({Op::kCast, {x}, {{"dtype", std::string(to)}}}, Exact);
    }
  }
}

TEST(EmptyOperands, OfTheUpdate) {
  for (const Shape& shape : {Shape{0}, Shape{0, 7}}) {
    for (DType dtype : kCompute) {
      const OpCase sum{Op::kSumSquares, {Of(dtype, shape)}, {}};
      ExpectConforms(sum, Exact);
      EXPECT_EQ(RunOn(ReferenceKernels(), sum, 1)[0][0], 0);
      const Tensor master = Of(DType::kF32, shape), clip = Tensor::Of({DType::kF32, {2}}, {1, 1});
      for (int64_t weight : {0, 1}) {
        OpCase adamw{Op::kAdamw,
                     {master, master, master, master, clip, Scalars()},
                     {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", 0.1}, {"weight", weight}}};
        if (weight) adamw.attributes.Set("dtype", std::string(ToString(dtype)));
        ExpectConforms(adamw, Exact);
        OpCase sgd{Op::kSgd, {master, master, master, clip, Scalars()}, UpdateSettings(Op::kSgd)};
        sgd.attributes.Set("weight_decay", 0.1);
        sgd.attributes.Set("weight", weight);
        if (weight) sgd.attributes.Set("dtype", std::string(ToString(dtype)));
        ExpectConforms(sgd, Exact);
        OpCase lion{Op::kLion, {master, master, master, clip, Scalars()}, UpdateSettings(Op::kLion)};
        lion.attributes.Set("weight_decay", 0.1);
        lion.attributes.Set("weight", weight);
        if (weight) lion.attributes.Set("dtype", std::string(ToString(dtype)));
        ExpectConforms(lion, Exact);
        ExpectConforms({Op::kAverage, {master, master, clip, Tensor::Of({DType::kF64, {1}}, {0.1})}, {}}, Exact);
        const Tensor blocks = Of(DType::kU8, DynamicBlocksOf(shape).shape);
        OpCase adamw_8bit{
            Op::kAdamw8bit, {master, master, blocks, blocks, clip, Scalars()}, UpdateSettings(Op::kAdamw8bit)};
        adamw_8bit.attributes.Set("weight_decay", 0.1);
        adamw_8bit.attributes.Set("weight", weight);
        if (weight) adamw_8bit.attributes.Set("dtype", std::string(ToString(dtype)));
        ExpectConforms(adamw_8bit, Exact);
        if (shape.rank() < 2) {
          OpCase adafactor{Op::kAdafactor, {master, master, master, clip, Scalars()}, UpdateSettings(Op::kAdafactor)};
          adafactor.attributes.Set("vector", int64_t{1});
          adafactor.attributes.Set("weight_decay", 0.1);
          adafactor.attributes.Set("weight", weight);
          if (weight) adafactor.attributes.Set("dtype", std::string(ToString(dtype)));
          ExpectConforms(adafactor, Exact);
          continue;
        }
        OpCase muon{Op::kMuon, {master, master, master, clip, Scalars()}, UpdateSettings(Op::kMuon)};
        muon.attributes.Set("weight_decay", 0.1);
        muon.attributes.Set("weight", weight);
        if (weight) muon.attributes.Set("dtype", std::string(ToString(dtype)));
        ExpectConforms(muon, Exact);
      }
    }
  }
}

// If there are terms, few, in f32.
double Few(int, int64_t) {
  return 16 * kU;
}

TEST(EmptyOperands, OfMatrixProducts) {
  struct Product {
    int64_t T, I, O;
  };
  for (DType dtype : kCompute) {
    for (const Product& p : {Product{0, 5, 7}, Product{5, 7, 0}, Product{5, 0, 7}, Product{0, 0, 7}, Product{0, 0, 0},
                             Product{100, 90, 0}, Product{0, 90, 100}, Product{100, 0, 90}}) {
      const Tensor x = Of(dtype, {p.T, p.I}), w = Of(dtype, {p.O, p.I}), y = Of(dtype, {p.T, p.O});
      for (int64_t acc : {0, 1}) {
        const auto with = [&](std::vector<Tensor> inputs, const Tensor& last) {
          if (acc) inputs.push_back(last);
          return inputs;
        };
        ExpectConforms({Op::kLinear, with({x, w}, y), {{"acc", acc}, {"scale", 0.5}}}, Few);
        const Attributes bias{{"acc", acc}, {"bias", int64_t{1}}};
        ExpectConforms({Op::kLinear, with({x, w, Of(dtype, {p.O})}, y), bias}, Few);
        ExpectConforms({Op::kLinearDx, with({y, w}, x), {{"acc", acc}}}, Few);
        ExpectConforms({Op::kLinearDw, with({y, x}, Of(DType::kF32, {p.O, p.I})), {{"acc", acc}}}, Few);
        ExpectConforms({Op::kLinears, {x, w, w}}, Few);
        ExpectConforms({Op::kLinearsDx, with({y, y, w, w}, x), {{"acc", acc}}}, Few);
        const Tensor d_w = Of(DType::kF32, {p.O, p.I});
        std::vector<Tensor> of_w = {y, y, x};
        for (int64_t i = 0; i < 2 * acc; ++i) of_w.push_back(d_w);
        ExpectConforms({Op::kLinearsDw, of_w, {{"acc", acc}}}, Few);
        ExpectConforms({Op::kSumRows, with({y}, Of(DType::kF32, {p.O})), {{"acc", acc}}},
                       [](int, int64_t) { return 100 * kU; });
      }
    }
  }
}

TEST(EmptyOperands, OfNorms) {
  const Attributes eps{{"eps", 1e-5}}, both{{"grad_w", int64_t{1}}, {"acc_w", int64_t{1}}};
  for (DType dtype : kCompute) {
    const Tensor x = Of(dtype, {0, 9}), w = Of(dtype, {9}), statistic = Of(DType::kF32, {0}),
                 d_w = Of(DType::kF32, {9});
    ExpectConforms({Op::kRmsNorm, {x, w}, eps}, Exact);
    ExpectConforms({Op::kLayerNorm, {x, w, w}, eps}, Exact);
    ExpectConforms({Op::kRmsNormBackward, {x, x, w, statistic}, {{"grad_w", int64_t{1}}}}, Exact);
    ExpectConforms({Op::kRmsNormBackward, {x, x, w, statistic, d_w}, both}, Exact);
    ExpectConforms({Op::kLayerNormBackward, {x, x, w, statistic, statistic}, {{"grad_w", int64_t{1}}}}, Exact);
    ExpectConforms({Op::kLayerNormBackward, {x, x, w, statistic, statistic, d_w, d_w}, both}, Exact);
  }
}

TEST(EmptyOperands, OfTables) {
  for (DType dtype : kCompute) {
    const Tensor none = Tensor::Ints({}), some = Tensor::Ints({0, 3, 1});
    const Attributes part{{"begin", int64_t{2}}, {"whole", int64_t{9}}, {"vocab", int64_t{0}}};
    ExpectConforms({Op::kEmbedding, {Of(dtype, {4, 5}), none}, {}}, Exact);
    ExpectConforms({Op::kEmbedding, {Of(dtype, {0, 5}), some}, {{"begin", int64_t{2}}, {"whole", int64_t{9}}}}, Exact);
    ExpectConforms({Op::kEmbeddingBackward, {Of(dtype, {0, 5}), none}, {{"vocab", int64_t{4}}}}, Exact);
    ExpectConforms({Op::kEmbeddingBackward, {Of(dtype, {3, 5}), some}, part}, Exact);
  }
}

TEST(EmptyOperands, OfTheLoss) {
  for (DType dtype : kCompute) {
    const Tensor x = Of(dtype, {0, 5}), w = Of(dtype, {6, 5}), d_w = Of(DType::kF32, {6, 5});
    for (int64_t acc : {0, 1}) {
      OpCase loss{Op::kLinearCrossEntropy,
                  {x, w, Tensor::Ints({})},
                  {{"grad_x", int64_t{1}}, {"grad_w", int64_t{1}}, {"acc_w", acc}, {"correct", acc}}};
      if (acc) loss.inputs.push_back(d_w);
      ExpectConforms(loss, Exact);
    }
  }
}

}  // namespace
}  // namespace temper::empty_test
