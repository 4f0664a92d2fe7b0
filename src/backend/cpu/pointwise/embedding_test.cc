// embedding of int8 rows. Of numbers: tests/conformance.
#include <gtest/gtest.h>

#include "backend/cpu/kernel_twin.h"
#include "graph/named_ops.h"

namespace temper::embedding_test {
namespace {

struct Dims {
  int64_t T, V, D;
};

TEST(Embedding, GivesTheNumbersOfInt8Rows) {
  for (const auto& [T, V, D] : {Dims{1, 1, 1}, {5, 3, 7}, {70, 50, 65}, {129, 300, 768}}) {
    TestTensors kept, values;
    for (TestTensors* inputs : {&kept, &values}) {
      inputs->push_back(RandomQuantised(ElementFormat::Int8Rows(), {V, D}, 1));
      inputs->emplace_back(TensorType{DType::kI32, {T}});
      for (int64_t t = 0; t < T; ++t) (*inputs)[1].Set(t, static_cast<double>(t * 7 % V));
    }
    values[0] = InBf16(values[0]);
    // The whole table, and a part of one: rows that others hold are zeros.
    for (const Attributes& a : {Attributes{}, {{"begin", V}, {"whole", 3 * V}, {"offset", 2 * V - 1 - V / 2}}}) {
      const TestTensors want = RunReference({Op::kEmbedding, a, &values});
      for (const Isa isa : RunnableIsas()) {
        for (const int threads : {1, 3}) {
          const TestTensors got = RunFast({Op::kEmbedding, a, &kept}, isa, threads);
          EXPECT_TRUE(got[0].SameBits(want[0])) << V << " rows of " << D << " on " << ToString(isa);
        }
      }
    }
  }
}

}  // namespace
}  // namespace temper::embedding_test
