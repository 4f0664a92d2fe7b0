// The rules of fetch and evict, where they move a part of a value.
#include <gtest/gtest.h>

#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::moves_test {
namespace {

const TensorType kX{DType::kBF16, {6, 8}};

TEST(Moves, OfAPartStayWithinTheValue) {
  const int64_t all = kX.shape.elements();
  const auto number = [](const char* key, int64_t n) { return std::pair<std::string, AttributeValue>(key, n); };
  for (const Op op : {Op::kFetch, Op::kEvict}) {
    const auto out = [&](int64_t begin, int64_t count) {
      return InferTypes(op, {kX}, {number("begin", begin), number("count", count)});
    };
    const auto in = [&](int64_t begin, const TensorType& part) {
      return InferTypes(op, {part, kX}, {number("begin", begin)});
    };
    EXPECT_EQ(out(8, 40)->front().ToString(), "bf16[40]");
    EXPECT_EQ(out(0, all)->front().ToString(), "bf16[48]");
    for (const auto& [begin, count] :
         {std::pair<int64_t, int64_t>{9, 40}, {0, all + 1}, {all, 1}, {0, 0}, {1, INT64_MAX}}) {
      EXPECT_FALSE(out(begin, count).ok()) << begin << " " << count;
    }
    EXPECT_FALSE(InferTypes(op, {kX}, {number("begin", 8)}).ok()) << "a part of how many?";
    EXPECT_EQ(in(8, {DType::kBF16, {40}})->front(), kX);
    EXPECT_FALSE(in(9, {DType::kBF16, {40}}).ok());
    EXPECT_FALSE(in(INT64_MAX, {DType::kBF16, {40}}).ok());
    EXPECT_FALSE(in(0, {DType::kF32, {40}}).ok()) << "of another dtype";
    EXPECT_FALSE(InferTypes(op, {{DType::kBF16, {40}}, kX}, {}).ok()) << "where?";
    EXPECT_EQ(OverwritableInput(op, {number("begin", 8)}, 2, 0), 1) << "what is not replaced stays";
    EXPECT_EQ(OverwritableInput(op, {}, 1, 0), -1);
    const Cost cost = RuleOf(op).cost({kX}, {{DType::kBF16, {40}}}, {number("begin", 8), number("count", 40)});
    EXPECT_EQ(cost.read, Bytes{80});
    EXPECT_EQ(cost.written, Bytes{80});
  }
}

TEST(Moves, OfAStackMoveTheMatricesThatRowsNeed) {
  const TensorType stack{DType::kBF16, {6, 4, 8}}, expert{DType::kI32, {2}}, more{DType::kI32, {7}};
  const Attributes routed{{"routed", int64_t{1}}};
  EXPECT_EQ(InferTypes(Op::kFetch, {stack, expert}, routed)->front(), stack);
  EXPECT_EQ(OverwritableInput(Op::kFetch, routed, 2, 0), -1) << "the copy begins with nothing";
  EXPECT_EQ(RuleOf(Op::kFetch).cost({stack, expert}, {stack}, routed).read, Bytes{2 * 4 * 8 * 2});
  EXPECT_EQ(RuleOf(Op::kFetch).cost({stack, more}, {stack}, routed).read, stack.bytes());
  EXPECT_FALSE(InferTypes(Op::kEvict, {stack, expert}, routed).ok());
  EXPECT_FALSE(InferTypes(Op::kFetch, {kX, expert}, routed).ok()) << "no stack";
  EXPECT_FALSE(InferTypes(Op::kFetch, {stack, {DType::kF32, {2}}}, routed).ok());
  EXPECT_FALSE(InferTypes(Op::kFetch, {stack}, routed).ok()) << "whose rows?";
}

}  // namespace
}  // namespace temper::moves_test
