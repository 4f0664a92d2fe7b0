// row_squares on every kernel table; weights in other forms: src/backend/cpu/products/row_squares_test.cc.
#include <gtest/gtest.h>

#include "backend/cpu/reference/reference.h"
#include "graph/named_ops.h"
#include "op_case.h"

namespace temper::row_squares_test {
namespace {

// Ranks of one and more, rows that are no whole block, an inner dim of more than a block's threads.
constexpr int64_t kDims[][3] = {{1, 1, 1}, {3, 21, 33}, {16, 130, 64}, {5, 9, 300}};

TEST(RowSquares, AgreesWithItsTwin) {
  for (const DType dtype : kCompute) {
    for (const auto& [R, O, I] : kDims) {
      for (const int64_t acc : {0, 1}) {
        OpCase squares{Op::kRowSquares,
                       {Tensor::Random({dtype, {R, I}}, 1), Tensor::Random({dtype, {O, I}}, 2),
                        Tensor::Random({dtype, {O, R}}, 3)},
                       {{"scale", 0.7}, {"acc", acc}}};
        if (acc != 0) squares.inputs.push_back(Tensor::Random({DType::kF32, {O}}, 4));
        OpCase magnitudes = squares;
        for (Tensor& t : magnitudes.inputs) {
          for (int64_t i = 0; i < t.type().shape.elements(); ++i) t.Set(i, t[i] < 0 ? -t[i] : t[i]);
        }
        const Tensor scale = RunOn(ReferenceKernels(), magnitudes, 1)[0];
        // Sums over I and, twice, over R.
        ExpectConforms(
            squares, [&, R = R, I = I](int, int64_t i) { return static_cast<double>(I + 2 * R + 8) * kU * scale[i]; });
      }
    }
  }
}

}  // namespace
}  // namespace temper::row_squares_test
