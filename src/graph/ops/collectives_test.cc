// The rules of collectives: their gradients and what they send.
#include <gtest/gtest.h>

#include "base/check.h"
#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper::collectives_test {
namespace {

constexpr int64_t T = 6, D = 8, V = 12;
const DType kF = DType::kBF16;
const TensorType kX{kF, {T, D}}, kIndex{DType::kI32, {T}};
const Attributes kPair = {{"axes", std::string("fsdp")}, {"ranks", int64_t{2}}};

Attributes With(Attributes attributes, std::initializer_list<std::pair<std::string, AttributeValue>> more) {
  for (const auto& [key, value] : more) attributes.Set(key, value);
  return attributes;
}
std::vector<double> Sizes(std::initializer_list<int64_t> sizes) {
  return {sizes.begin(), sizes.end()};
}

// What a gradient rule asks of Differentiate, for a node of one input and one output.
class OneNode final : public GradientSink {
 public:
  OneNode(Op op, const TensorType& input, Attributes attributes, bool pending) {
    const auto types = InferTypes(op, {input}, attributes);
    TEMPER_CHECK(types.ok()) << types.status().message();
    node_ = {.op = op, .inputs = {0}, .outputs = {1}, .attributes = std::move(attributes)};
    values_ = {{.type = input}, {.type = (*types)[0]}};
    d_y_ = Add((*types)[0]);
    if (pending) acc_ = Add(input);
    RuleOf(op).gradient(*this);
  }
  const Node& node() const override { return node_; }
  const Value& value(ValueId id) const override { return values_[static_cast<size_t>(id)]; }
  ValueId OutputGradient(int) const override { return d_y_; }
  bool Needs(int) const override { return true; }
  ValueId Pending(int) const override { return acc_; }
  ValueId PendingBefore(int input) const override { return Pending(input); }
  std::vector<ValueId> Emit(Op op, std::vector<ValueId> inputs, Attributes attributes) override {
    Types types;
    for (ValueId id : inputs) types.push_back(value(id).type);
    const auto out = InferTypes(op, types, attributes);
    EXPECT_TRUE(out.ok()) << out.status().message();
    emitted.push_back({.op = op, .inputs = std::move(inputs), .attributes = std::move(attributes)});
    std::vector<ValueId> ids;
    for (size_t i = 0; out.ok() && i < out->size(); ++i) ids.push_back(Add((*out)[i]));
    return ids;
  }
  void Deliver(int, ValueId gradient) override {
    added_pending = true;
    delivered = gradient;
  }
  void Contribute(int, ValueId gradient) override { delivered = gradient; }
  std::vector<ValueId> Extend(std::vector<ValueId>, Attributes) override { return {}; }

  ValueId d_y() const { return d_y_; }
  std::vector<Node> emitted;
  ValueId delivered = kNoValue;
  bool added_pending = false;  // into what is delivered

 private:
  ValueId Add(const TensorType& type) {
    values_.push_back({.type = type});
    return static_cast<ValueId>(values_.size()) - 1;
  }
  Node node_;
  std::vector<Value> values_;
  ValueId d_y_ = kNoValue, acc_ = kNoValue;
};

TEST(Collectives, HaveTheirAdjointsOfTheSameGroupAsGradients) {
  struct Adjoint {
    Op op, gradient;
    Attributes attributes;
  };
  const Attributes rows = With(kPair, {{"dim", int64_t{0}}});
  // Uneven parts: 6 of 11, of which another rank has 5.
  for (const Adjoint& a : {Adjoint{Op::kAllGather, Op::kReduceScatter, With(rows, {{"sizes", Sizes({11})}})},
                           Adjoint{Op::kReduceScatter, Op::kAllGather, With(rows, {{"sizes", Sizes({2})}})},
                           Adjoint{Op::kBroadcast, Op::kAllReduce, kPair}}) {
    for (const bool pending : {false, true}) {
      SCOPED_TRACE(std::string(ToString(a.op)) + (pending ? " with a gradient so far" : ""));
      const OneNode node(a.op, kX, a.attributes, pending);
      ASSERT_EQ(node.emitted.size(), 1u);
      const Node& backward = node.emitted[0];
      EXPECT_EQ(backward.op, a.gradient);
      EXPECT_EQ(backward.inputs[0], node.d_y());
      EXPECT_EQ(backward.attributes.String("axes"), "fsdp");
      EXPECT_EQ(backward.attributes.Int("ranks"), 2);
      EXPECT_EQ(node.value(node.delivered).type, kX);
      // Only a sum can take what there is so far; and if it says so, it must.
      EXPECT_EQ(node.added_pending, a.gradient == Op::kReduceScatter);
      EXPECT_EQ(backward.inputs.size(), node.added_pending && pending ? 2u : 1u);
    }
  }
}

// All ranks use the sum alike: its gradient is that of every term.
TEST(Collectives, TheGradientOfAnAllReduceIsPassedOn) {
  const OneNode node(Op::kAllReduce, kX, kPair, /*pending=*/false);
  EXPECT_TRUE(node.emitted.empty());
  EXPECT_EQ(node.delivered, node.d_y());
}

TEST(Collectives, SendWhatARingSends) {
  const auto sent = [](Op op, const Types& in, const Attributes& a) {
    return RuleOf(op).cost(in, *InferTypes(op, in, a), a).sent.v;
  };
  const Attributes four = {{"axes", std::string("dp,fsdp")}, {"ranks", int64_t{4}}};
  const int64_t whole = 4 * T * D * 2;  // bytes of four parts of kX
  const TensorType wide{kF, {4 * T, D}};
  EXPECT_EQ(sent(Op::kAllGather, {kX}, With(four, {{"dim", int64_t{0}}, {"sizes", Sizes({4 * T})}})), whole * 3 / 4);
  const Attributes scatter = With(four, {{"dim", int64_t{0}}, {"sizes", Sizes({T})}});
  EXPECT_EQ(sent(Op::kReduceScatter, {wide}, scatter), whole * 3 / 4);
  EXPECT_EQ(sent(Op::kReduceScatter, {wide, kX}, With(scatter, {{"acc", int64_t{1}}})), whole * 3 / 4)
      << "acc stays here";
  EXPECT_EQ(sent(Op::kAllReduce, {wide}, four), 2 * whole * 3 / 4);
  EXPECT_EQ(sent(Op::kBroadcast, {wide}, four), 0) << "every rank has it";
  EXPECT_EQ(sent(Op::kShift, {wide, kX}, four), whole + whole / 4);
  EXPECT_EQ(sent(Op::kSend, {kX}, {{"axes", std::string("pp")}, {"peer", int64_t{1}}, {"tag", int64_t{3}}}),
            kX.bytes().v);
  // Three f32 of each row, to three others.
  const Types loss = {kX, {kF, {V, D}}, kIndex};
  EXPECT_EQ(sent(Op::kLinearCrossEntropy, loss, With(four, {{"whole", 4 * V}})), 3 * T * 12);
  EXPECT_EQ(sent(Op::kLinearCrossEntropy, loss, {}), 0);
}

}  // namespace
}  // namespace temper::collectives_test
