#include "compile/step/fuse.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "graph/builder.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::fuse_test {
namespace {

int Count(const Graph& graph, Op op) {
  return static_cast<int>(
      std::count_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) { return n.op == op; }));
}

// x, and w for products of it, in block 0.
struct Residual {
  Graph graph;
  GraphBuilder build{&graph};
  ValueId x, w, bias;
  Residual() {
    x = build.Source("x", {DType::kF32, {4, 8}}, Role::kInput);
    w = build.Source("w.weight", {DType::kF32, {8, 8}}, Role::kWeight);
    bias = build.Source("w.bias", {DType::kF32, {8}}, Role::kWeight);
    build.EnterBlock(0, "");
  }
};

TEST(Fuse, FoldsTheResidualIntoTheProduct) {
  for (const bool with_bias : {false, true}) {
    for (const bool product_first : {false, true}) {
      Residual r;
      const ValueId y = r.build.Linear(r.x, r.w, with_bias ? r.bias : kNoValue, "y");
      const ValueId sum = product_first ? r.build.Sum(y, r.x, "sum") : r.build.Sum(r.x, y, "sum");
      r.build.Add(Op::kRelu, {sum}, {}, "out", Role::kOutput);
      const Graph fused = Fuse(r.graph);
      ASSERT_TRUE(Verify(fused).ok()) << Verify(fused).message();
      ASSERT_EQ(fused.nodes().size(), 2u);
      const Node& linear = fused.nodes()[0];
      EXPECT_TRUE(linear.attributes.Flag("acc"));
      EXPECT_EQ(linear.attributes.Flag("bias"), with_bias);
      EXPECT_EQ(linear.inputs.back(), r.x);
      EXPECT_EQ(linear.outputs, std::vector<ValueId>{sum}) << "readers still read the same value";
      EXPECT_EQ(fused.nodes()[1].inputs[0], sum);
    }
  }
}

// y = base(x) + s B A x, then x + y: the residual goes into the base product, which the branch adds to.
TEST(Fuse, FoldsTheResidualUnderALoraBranch) {
  Residual r;
  const ValueId a = r.build.Source("A", {DType::kF32, {2, 8}}, Role::kAdapter);
  const ValueId b = r.build.Source("B", {DType::kF32, {8, 2}}, Role::kAdapter);
  const ValueId base = r.build.Linear(r.x, r.w, r.bias, "base");
  const ValueId down = r.build.Linear(r.x, a, kNoValue, "down");
  const ValueId y =
      r.build.Add(Op::kLinear, {down, b, base}, {{"acc", int64_t{1}}, {"bias", int64_t{0}}, {"scale", 2.0}}, "y")[0];
  const ValueId sum = r.build.Sum(r.x, y, "sum");
  r.build.Add(Op::kRelu, {sum}, {}, "out", Role::kOutput);
  const Graph fused = Fuse(r.graph);
  ASSERT_TRUE(Verify(fused).ok()) << Verify(fused).message();
  EXPECT_EQ(Count(fused, Op::kAdd), 0);
  ASSERT_EQ(fused.nodes().size(), 4u);
  EXPECT_EQ(fused.nodes()[0].inputs, (std::vector<ValueId>{r.x, r.w, r.bias, r.x}));
  EXPECT_TRUE(fused.nodes()[0].attributes.Flag("acc"));
  EXPECT_EQ(fused.nodes()[0].outputs[0], base);
  EXPECT_EQ(fused.nodes()[2].inputs, (std::vector<ValueId>{down, b, base}));
  EXPECT_EQ(fused.nodes()[2].outputs[0], sum);
}

TEST(Fuse, LeavesAVectorThatIsAddedToEveryRow) {
  Residual r;
  const ValueId sum = r.build.Sum(r.build.Linear(r.x, r.w, kNoValue, "y"), r.bias, "sum");
  r.build.Add(Op::kRelu, {sum}, {}, "out", Role::kOutput);
  const Graph fused = Fuse(r.graph);
  ASSERT_TRUE(Verify(fused).ok()) << Verify(fused).message();
  EXPECT_EQ(fused.nodes().size(), 3u);
}

TEST(Fuse, LeavesAProductThatIsUsedElsewhere) {
  Residual r;
  const ValueId y = r.build.Linear(r.x, r.w, kNoValue, "y");
  r.build.Sum(r.x, y, "sum");
  r.build.Add(Op::kRelu, {y}, {}, "other", Role::kOutput);
  const Graph fused = Fuse(r.graph);
  EXPECT_EQ(PrintGraph(fused), PrintGraph(r.graph));
}

TEST(Fuse, LeavesAProductThatTheHostReads) {
  Residual r;
  const ValueId y = r.build.Add(Op::kLinear, {r.x, r.w}, {}, "y", Role::kOutput)[0];
  r.build.Sum(r.x, y, "sum");
  const Graph fused = Fuse(r.graph);
  EXPECT_EQ(PrintGraph(fused), PrintGraph(r.graph));
}

TEST(Fuse, LeavesAResidualThatIsMadeLater) {
  Residual r;
  const ValueId y = r.build.Linear(r.x, r.w, kNoValue, "y");
  const ValueId late = r.build.Add(Op::kRelu, {r.x}, {}, "late")[0];
  r.build.Sum(late, y, "sum");
  const Graph fused = Fuse(r.graph);
  EXPECT_EQ(PrintGraph(fused), PrintGraph(r.graph));
}

TEST(Fuse, LeavesProductsOfAnotherBlock) {
  Residual r;
  const ValueId y = r.build.Linear(r.x, r.w, kNoValue, "y");
  r.build.EnterBlock(1, "");
  r.build.Sum(r.x, y, "sum");
  EXPECT_EQ(PrintGraph(Fuse(r.graph)), PrintGraph(r.graph));
}

TEST(Fuse, FoldsOneResidualPerProduct) {
  Residual r;
  const ValueId y = r.build.Linear(r.x, r.w, kNoValue, "y");
  const ValueId sum = r.build.Sum(r.x, y, "sum");
  const ValueId twice = r.build.Sum(sum, r.x, "twice");
  r.build.Add(Op::kRelu, {twice}, {}, "out", Role::kOutput);
  const Graph fused = Fuse(r.graph);
  ASSERT_TRUE(Verify(fused).ok()) << Verify(fused).message();
  EXPECT_EQ(Count(fused, Op::kAdd), 1);
  EXPECT_EQ(Count(fused, Op::kLinear), 1);
}

TEST(Fuse, FoldsIntoTheLaterOfTwoProducts) {
  Residual r;
  const ValueId y = r.build.Linear(r.x, r.w, kNoValue, "y");
  const ValueId z = r.build.Linear(r.x, r.w, kNoValue, "z");
  const ValueId sum = r.build.Sum(y, z, "sum");
  r.build.Add(Op::kRelu, {sum}, {}, "out", Role::kOutput);
  const Graph fused = Fuse(r.graph);
  ASSERT_TRUE(Verify(fused).ok()) << Verify(fused).message();
  EXPECT_EQ(Count(fused, Op::kAdd), 0);
  EXPECT_FALSE(fused.nodes()[0].attributes.Flag("acc"));
  EXPECT_EQ(fused.nodes()[1].inputs.back(), y);
}

// x + factor (base(x) + s B A x): each product of the sum has the factor, and the residual has none.
TEST(Fuse, ScalesTheProductsOfASum) {
  for (const bool lora : {false, true}) {
    Residual r;
    ValueId y = r.build.Linear(r.x, r.w, kNoValue, "base");
    if (lora) {
      const ValueId a = r.build.Source("A", {DType::kF32, {2, 8}}, Role::kAdapter);
      const ValueId b = r.build.Source("B", {DType::kF32, {8, 2}}, Role::kAdapter);
      const ValueId down = r.build.Linear(r.x, a, kNoValue, "down");
      y = r.build.Add(Op::kLinear, {down, b, y}, {{"acc", int64_t{1}}, {"bias", int64_t{0}}, {"scale", 2.0}}, "y")[0];
    }
    const ValueId sum = r.build.Sum(r.x, r.build.Scale(y, 0.25, "scaled"), "sum");
    r.build.Add(Op::kRelu, {sum}, {}, "out", Role::kOutput);
    const Graph fused = Fuse(r.graph);
    ASSERT_TRUE(Verify(fused).ok()) << Verify(fused).message();
    EXPECT_EQ(Count(fused, Op::kScale), 0);
    EXPECT_EQ(Count(fused, Op::kAdd), 0);
    const Node& base = fused.nodes()[0];
    EXPECT_EQ(base.attributes.Double("scale"), 0.25);
    EXPECT_EQ(base.inputs.back(), r.x);
    if (!lora) continue;
    EXPECT_FALSE(fused.nodes()[1].attributes.Has("scale")) << "x A^T";
    EXPECT_EQ(fused.nodes()[2].attributes.Double("scale"), 0.5);
    EXPECT_EQ(fused.nodes()[2].outputs[0], sum);
  }
}

// What is scaled must be products alone, of that block, that nothing else reads.
TEST(Fuse, LeavesOtherScales) {
  const std::vector<std::function<ValueId(Residual&)>> ways = {
      [](Residual& r) { return r.build.Linear(r.x, r.w, r.bias, "y"); },
      [](Residual& r) { return r.build.Add(Op::kRelu, {r.x}, {}, "y")[0]; },
      [](Residual& r) {
        const ValueId y = r.build.Linear(r.x, r.w, kNoValue, "y");
        r.build.Add(Op::kRelu, {y}, {}, "other", Role::kOutput);
        return y;
      },
      [](Residual& r) {
        return r.build.Add(Op::kLinear, {r.x, r.w}, {}, "y", Role::kOutput)[0];
      },
      [](Residual& r) {
        return r.build.Add(Op::kLinear, {r.x, r.w, r.x}, {{"acc", int64_t{1}}, {"bias", int64_t{0}}}, "y")[0];
      },
      [](Residual& r) {
        const ValueId y = r.build.Linear(r.x, r.w, kNoValue, "y");
        r.build.EnterBlock(1, "");
        return y;
      },
  };
  for (const auto& product : ways) {
    Residual r;
    r.build.Add(Op::kRelu, {r.build.Scale(product(r), 0.25, "scaled")}, {}, "out", Role::kOutput);
    EXPECT_EQ(PrintGraph(Fuse(r.graph)), PrintGraph(r.graph));
  }
}

TEST(UpdateInPlace, OverwritesInputsAtTheirLastUse) {
  Residual r;
  const ValueId a = r.build.Add(Op::kRelu, {r.x}, {}, "a")[0];
  const ValueId b = r.build.Add(Op::kRelu, {a}, {}, "b")[0];
  const ValueId c = r.build.Sum(b, r.x, "c");
  r.build.Add(Op::kRelu, {c}, {}, "out", Role::kOutput);
  const Graph result = UpdateInPlace(r.graph);
  ASSERT_TRUE(Verify(result).ok()) << Verify(result).message();
  EXPECT_EQ(result.value(a).updates, kNoValue) << "an input of the host is not overwritten";
  EXPECT_EQ(result.value(b).updates, a);
  EXPECT_EQ(result.value(c).updates, b);
}

TEST(UpdateInPlace, KeepsInputsReadLaterTwiceOrPersistent) {
  Residual r;
  const ValueId a = r.build.Add(Op::kRelu, {r.x}, {}, "a")[0];
  const ValueId b = r.build.Add(Op::kRelu, {a}, {}, "b")[0];  // a is read again
  const ValueId c = r.build.Sum(a, b, "c");
  const ValueId d = r.build.Sum(c, c, "d");  // both operands
  const ValueId out = r.build.Add(Op::kRelu, {d}, {}, "out", Role::kOutput)[0];
  const Graph result = UpdateInPlace(r.graph);
  ASSERT_TRUE(Verify(result).ok()) << Verify(result).message();
  EXPECT_EQ(result.value(b).updates, kNoValue);
  EXPECT_EQ(result.value(c).updates, a) << "its last use";
  EXPECT_EQ(result.value(d).updates, kNoValue);
  EXPECT_EQ(result.value(out).updates, kNoValue) << "an output keeps its own buffer";
}

// A value in the memory of a cache must not be overwritten, although its own role is activation.
TEST(UpdateInPlace, KeepsValuesInPersistentBuffers) {
  Residual r;
  const ValueId cache = r.build.Source("cache", {DType::kF32, {4, 8}}, Role::kCache);
  const ValueId a = r.build.Add(Op::kRelu, {cache}, {}, "a")[0];
  r.graph.value(a).updates = cache;
  const ValueId b = r.build.Add(Op::kRelu, {a}, {}, "b")[0];
  r.build.Add(Op::kRelu, {b}, {}, "out", Role::kOutput);
  ASSERT_TRUE(Verify(r.graph).ok()) << Verify(r.graph).message();
  const Graph result = UpdateInPlace(r.graph);
  EXPECT_EQ(result.value(b).updates, kNoValue);
}

}  // namespace
}  // namespace temper::fuse_test
