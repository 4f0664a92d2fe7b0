#include <gtest/gtest.h>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/named_ops.h"

namespace temper::verify_test {
namespace {

const TensorType kX{DType::kF32, {4, 8}};

// x -> relu -> relu2 -> sum with x: a graph that verifies, to plant errors in.
struct Small {
  Graph graph;
  ValueId x, a, b, sum;
  Small() {
    GraphBuilder build(&graph);
    x = build.Source("x", kX, Role::kInput);
    a = build.Add(Op::kRelu, {x}, {}, "a")[0];
    b = build.Add(Op::kRelu, {a}, {}, "b")[0];
    sum = build.Sum(x, b, "sum");
  }
};

void ExpectRefused(const Graph& graph, const std::string& why) {
  const Status status = Verify(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
}

TEST(Verify, AcceptsAGraphAndAnUpdateInPlace) {
  Small s;
  EXPECT_TRUE(Verify(s.graph).ok()) << Verify(s.graph).message();
  s.graph.value(s.b).updates = s.a;
  EXPECT_TRUE(Verify(s.graph).ok()) << Verify(s.graph).message();
  EXPECT_EQ(s.graph.Root(s.b), s.a);
  EXPECT_TRUE(Verify(Graph()).ok());
}

TEST(Verify, RefusesUseBeforeDefinition) {
  Small s;
  std::swap(s.graph.nodes()[0], s.graph.nodes()[1]);
  ExpectRefused(s.graph, "before it is made");
}

TEST(Verify, RefusesANodeThatReadsItsOwnOutput) {
  Small s;
  s.graph.nodes()[0].inputs[0] = s.a;
  ExpectRefused(s.graph, "before it is made");
}

TEST(Verify, RefusesReadingWhatIsNeverMade) {
  Small s;
  const ValueId ghost = s.graph.AddValue({.name = "ghost", .type = kX});
  s.graph.nodes()[0].inputs[0] = ghost;
  ExpectRefused(s.graph, "no node makes");
  s.graph.value(ghost).role = Role::kOutput;
  ExpectRefused(s.graph, "no node makes");
  s.graph.value(ghost).role = Role::kWeight;
  EXPECT_TRUE(Verify(s.graph).ok()) << "a source is not made by nodes";
}

TEST(Verify, RefusesASecondWrite) {
  Small s;
  s.graph.nodes()[1].outputs[0] = s.a;
  ExpectRefused(s.graph, "second time");
}

TEST(Verify, RefusesUnknownIds) {
  for (const ValueId id : {ValueId{-1}, ValueId{99}}) {
    Small in, out;
    in.graph.nodes()[0].inputs[0] = id;
    ExpectRefused(in.graph, "does not exist");
    out.graph.nodes()[0].outputs[0] = id;
    ExpectRefused(out.graph, "does not exist");
  }
}

TEST(Verify, RefusesTypesThatDisagreeWithTheRule) {
  Small shape;
  shape.graph.value(shape.b).type.shape = {8, 4};
  ExpectRefused(shape.graph, "its rule gives f32[4, 8]");
  Small dtype;
  dtype.graph.value(dtype.a).type.dtype = DType::kBF16;
  ExpectRefused(dtype.graph, "its rule gives");
  Small count;
  count.graph.nodes()[0].outputs.push_back(count.graph.AddValue({.name = "extra", .type = kX}));
  ExpectRefused(count.graph, "2 outputs");
  Small arity;
  arity.graph.nodes()[2].inputs.pop_back();
  ExpectRefused(arity.graph, "[add] expects");
}

TEST(Verify, RefusesAttributesThatTheOpDoesNotHave) {
  Small s;
  s.graph.nodes()[0].attributes.Set("heads", int64_t{1});
  ExpectRefused(s.graph, "[relu] has no attribute 'heads'");
}

TEST(Verify, RefusesAnUpdateOfAValueReadLater) {
  Small s;
  s.graph.nodes()[2].inputs[0] = s.a;
  s.graph.value(s.b).updates = s.a;
  ExpectRefused(s.graph, "still reads");
}

TEST(Verify, RefusesAnUpdateOfAnEarlierLinkThatIsReadLater) {
  Small s;
  s.graph.value(s.b).updates = s.a;
  s.graph.value(s.sum).updates = s.b;
  s.graph.nodes()[2].inputs = {s.b, s.a};
  ExpectRefused(s.graph, "still reads");
}

TEST(Verify, RefusesADoubleUpdate) {
  Small s;
  s.graph.value(s.a).updates = s.x;
  s.graph.value(s.sum).updates = s.x;
  s.graph.nodes()[2].inputs = {s.a, s.b};
  ExpectRefused(s.graph, "both update");
}

TEST(Verify, RefusesAnUpdateOfAnotherType) {
  Small s;
  const ValueId other = s.graph.AddValue({.name = "y", .type = {DType::kF32, {32}}, .role = Role::kCache});
  Node add = s.graph.nodes()[0];
  add.outputs = {s.graph.AddValue({.name = "z", .type = kX, .updates = other})};
  s.graph.AddNode(add);
  ExpectRefused(s.graph, "another type");
}

TEST(Verify, RefusesUpdatesThatPointForwardOrNowhere) {
  for (const ValueId target : {ValueId{0}, ValueId{1}, ValueId{3}, ValueId{77}, ValueId{-7}}) {
    Small s;
    s.graph.value(0).updates = target;
    EXPECT_FALSE(Verify(s.graph).ok()) << target;
  }
  Small cycle;
  cycle.graph.value(cycle.a).updates = cycle.b;
  cycle.graph.value(cycle.b).updates = cycle.a;
  EXPECT_FALSE(Verify(cycle.graph).ok());
  Small s;  // b is made after a
  const ValueId late = s.graph.AddValue({.name = "late", .type = kX, .updates = s.b});
  s.graph.nodes()[0].outputs[0] = late;
  s.graph.nodes()[1].inputs[0] = late;
  s.graph.nodes()[2].inputs[1] = late;
  ExpectRefused(s.graph, "or later");
}

// A recomputed value is added after the values that are made from it.
TEST(Verify, GoesByTheOrderOfNodesNotOfIds) {
  Small s;
  const ValueId late = s.graph.AddValue({.name = "a", .type = kX});
  s.graph.nodes()[0].outputs[0] = late;
  s.graph.nodes()[1].inputs[0] = late;
  s.graph.value(s.b).updates = late;
  EXPECT_TRUE(Verify(s.graph).ok()) << Verify(s.graph).message();
  EXPECT_EQ(s.graph.Root(s.b), late);
}

TEST(Verify, RefusesAnUpdateThatNothingMakes) {
  Small s;
  s.graph.AddValue({.name = "ghost", .type = kX, .updates = s.sum});
  ExpectRefused(s.graph, "no node makes it");
}

TEST(Verify, RefusesWritingOverWhatTheOpStillReads) {
  // A matrix product reads its input many times over.
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId x = build.Source("x", {DType::kF32, {4, 4}}, Role::kInput);
  const ValueId w = build.Source("w", {DType::kF32, {4, 4}}, Role::kWeight);
  const ValueId h = build.Add(Op::kRelu, {x}, {}, "h")[0];
  const ValueId y = build.Linear(h, w, kNoValue, "y");
  EXPECT_TRUE(Verify(graph).ok());
  graph.value(y).updates = h;
  ExpectRefused(graph, "still reads as input 0");

  // relu(a) + a over a: element by element, but the second operand is not the one that may be written over.
  Small s;
  s.graph.nodes()[2].inputs = {s.x, s.b};
  s.graph.value(s.sum).updates = s.b;
  ExpectRefused(s.graph, "still reads as input 1");
}

TEST(Verify, RefusesTwoOutputsAtOneAddress) {
  Graph graph;
  GraphBuilder build(&graph);
  const ValueId x = build.Source("x", {DType::kF32, {4, 4}}, Role::kInput);
  const ValueId w = build.Source("w", {DType::kF32, {4}}, Role::kWeight);
  const auto y = build.Add(Op::kLayerNorm, {x, w, w}, {{"eps", 1e-5}}, "y");
  EXPECT_TRUE(Verify(graph).ok());
  graph.value(y[2]).updates = y[1];
  ExpectRefused(graph, "same node or later");
}

TEST(Verify, RefusesNamesThatHaveNoText) {
  Small value;
  value.graph.value(value.a).name = "a\"b";
  ExpectRefused(value.graph, "in its name");
  Small node;
  node.graph.nodes()[0].rng_name = "a\nb";
  ExpectRefused(node.graph, "rng name");
}

}  // namespace
}  // namespace temper::verify_test
