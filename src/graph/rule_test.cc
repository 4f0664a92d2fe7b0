// What every op accepts and refuses: one valid call per op and attribute set, and systematic spoilings of each.
#include "graph/rule.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "graph/rule_cases_for_test.h"

namespace temper::rule_test {
namespace {

std::string Text(const Types& types) {
  std::string text;
  for (const TensorType& t : types) text += (text.empty() ? "" : ", ") + t.ToString();
  return text;
}

std::string Describe(const Case& c) {
  return std::string(ToString(c.op)) + "(" + Text(c.inputs) + ")" + c.attributes.ToString();
}

// With other operands an op either refuses or makes something else; it never takes them for what they are not.
void ExpectRefusedOrOther(Op op, const Types& inputs, const Attributes& attributes, const std::string& outputs) {
  const auto types = InferTypes(op, inputs, attributes);
  if (types.ok()) {
    EXPECT_NE(Text(*types), outputs) << "accepts (" << Text(inputs) << ")";
  }
}

TEST(Rule, EveryOpGivesItsOutputTypes) {
  std::set<Op> seen;
  for (const Case& c : Cases()) {
    const auto types = InferTypes(c.op, c.inputs, c.attributes);
    ASSERT_TRUE(types.ok()) << types.status().message();
    EXPECT_EQ(Text(*types), c.outputs) << Describe(c);
    seen.insert(c.op);
  }
  EXPECT_EQ(seen.size(), static_cast<size_t>(NumOps())) << "an op has no case";
}

// Only the weight of a product may be quantised, and only where the product computes in that format's type; a table and
// a head without a gradient may be int8 rows.
TEST(Rule, OnlyProductsAndEmbeddingsReadAQuantisedWeight) {
  const ElementFormat int8 = ElementFormat::Int8Rows();
  const TensorType x{DType::kBF16, {T, D}}, y{DType::kBF16, {T, O}}, w{int8, {O, D}};
  const Attributes forward = {{"acc", int64_t{0}}, {"bias", int64_t{0}}}, backward = {{"acc", int64_t{0}}};
  const auto linear = InferTypes(Op::kLinear, {x, w}, forward), d_x = InferTypes(Op::kLinearDx, {y, w}, backward);
  ASSERT_TRUE(linear.ok() && d_x.ok());
  EXPECT_EQ(*linear, Types{y});
  EXPECT_EQ(*d_x, Types{x});
  EXPECT_FALSE(InferTypes(Op::kLinear, {{DType::kF32, {T, D}}, w}, forward).ok());
  EXPECT_FALSE(InferTypes(Op::kLinear, {{int8, {T, D}}, w}, forward).ok());
  const TensorType table{int8, {V, D}}, in_nf4{ElementFormat::Nf4(), {V, D}};
  const auto rows = InferTypes(Op::kEmbedding, {table, kIndex}, {});
  const auto of_loss =
      InferTypes(Op::kLinearCrossEntropy, {x, table, kIndex}, {{"grad_x", kOne}, {"dequantise", kOne}});
  ASSERT_TRUE(rows.ok() && of_loss.ok());
  EXPECT_EQ(*rows, Types{x});
  EXPECT_EQ((*of_loss)[1], x);
  EXPECT_FALSE(InferTypes(Op::kEmbedding, {in_nf4, kIndex}, {}).ok());
  EXPECT_FALSE(InferTypes(Op::kLinearCrossEntropy, {x, in_nf4, kIndex}, {}).ok());
  EXPECT_FALSE(InferTypes(Op::kLinearCrossEntropy, {{DType::kF32, {T, D}}, table, kIndex}, {}).ok());
  EXPECT_FALSE(InferTypes(Op::kLinearCrossEntropy, {x, {DType::kBF16, {V, D}}, kIndex}, {{"dequantise", kOne}}).ok());
  for (const Case& c : Cases()) {
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const bool moves = RuleOf(c.op).kind == OpKind::kCollective || c.op == Op::kFetch || c.op == Op::kEvict;
      const bool loss = c.op == Op::kLinearCrossEntropy || c.op == Op::kLinearDistillation;
      const bool head = c.op == Op::kTokenLogprob || (loss && !c.attributes.Flag("grad_w"));
      const bool product = c.op == Op::kLinear || c.op == Op::kLinearDx || c.op == Op::kGroupedLinear ||
                           c.op == Op::kGroupedLinearDx || c.op == Op::kRowSquares;
      if (moves || (i == 1 && (product || head))) continue;
      if (i == 0 && c.op == Op::kEmbedding) continue;
      Types inputs = c.inputs;
      inputs[i].dtype = int8;
      EXPECT_FALSE(InferTypes(c.op, inputs, c.attributes).ok()) << Describe(c) << ", input " << i;
    }
  }
}

// A product that dequantises its weight first has scratch for its numbers, and costs a pass that reads the weight and
// writes them, and a product that reads them. So does its gradient.
TEST(Rule, DequantisingFirstIsScratchAndAPassBeforeTheProduct) {
  const int64_t rows = 3, in = 2048, out = 1024, numbers = in * out * 2;
  const TensorType x{DType::kBF16, {rows, in}}, y{DType::kBF16, {rows, out}};
  for (const ElementFormat format : {ElementFormat::Int8Rows(), ElementFormat::Nf4()}) {
    const TensorType kept{format, {out, in}}, plain{DType::kBF16, {out, in}};
    for (const auto& [op, a] : {std::pair{Op::kLinear, x}, {Op::kLinearDx, y}}) {
      const OpRule& rule = RuleOf(op);
      const Attributes packs = {{"acc", kZero}}, first = {{"acc", kZero}, {"dequantise", kOne}};
      const Types outputs = *InferTypes(op, {a, kept}, first);
      const Cost cost = rule.cost({a, kept}, outputs, first), product = rule.cost({a, plain}, outputs, packs);
      EXPECT_EQ(cost.flops, product.flops);
      EXPECT_EQ(cost.read, product.read + kept.bytes());
      EXPECT_EQ(cost.written, product.written + Bytes{numbers});
      EXPECT_EQ(rule.moved_before({a, kept}, first), kept.bytes() + Bytes{numbers});
      EXPECT_EQ(rule.moved_before({a, kept}, packs), Bytes{});
      EXPECT_EQ(rule.workspace({a, kept}, outputs, first, 1),
                std::max(rule.workspace({a, kept}, outputs, packs, 1), Bytes{numbers}));
      EXPECT_FALSE(InferTypes(op, {a, plain}, first).ok()) << "bf16 needs none";
    }
  }
  // So is the loss: once for all of its chunks.
  const OpRule& loss = RuleOf(Op::kLinearCrossEntropy);
  const Types kept = {x, {ElementFormat::Int8Rows(), {out, in}}, {DType::kI32, {rows}}};
  const Types plain = {x, {DType::kBF16, {out, in}}, kept[2]};
  const Attributes packs = {{"grad_x", kOne}}, first = {{"grad_x", kOne}, {"dequantise", kOne}};
  const Types outputs = *InferTypes(Op::kLinearCrossEntropy, kept, first);
  EXPECT_EQ(loss.cost(kept, outputs, first).read, loss.cost(plain, outputs, packs).read + kept[1].bytes());
  EXPECT_EQ(loss.cost(kept, outputs, first).written, loss.cost(plain, outputs, packs).written + Bytes{numbers});
  EXPECT_EQ(loss.moved_before(kept, first), kept[1].bytes() + Bytes{numbers});
  EXPECT_EQ(loss.moved_before(kept, packs), Bytes{});
  EXPECT_EQ(loss.workspace(kept, outputs, first, 1), loss.workspace(kept, outputs, packs, 1) + Bytes{numbers});
}

// Joined products cost one product of all weights, and copies there and back of the thin operands and the weights; the
// scratch holds both.
TEST(Rule, JoinedProductsCostOneProductAndCopiesOfTheirThinOperandsAndWeights) {
  const int64_t tokens = 100, in = 64, ranks[] = {8, 16, 4}, together = 28;
  const auto f32 = DType::kF32, bf16 = DType::kBF16;
  const TensorType x{bf16, {tokens, in}}, all{bf16, {together, in}}, thin{bf16, {tokens, together}};
  Types ys, ws, sums;
  for (const int64_t r : ranks) {
    ys.push_back({bf16, {tokens, r}});
    ws.push_back({bf16, {r, in}});
    sums.push_back({f32, {r, in}});
  }
  const auto joined = [](std::initializer_list<Types> parts) {
    Types types;
    for (const Types& part : parts) types.insert(types.end(), part.begin(), part.end());
    return types;
  };
  const TensorType of_all{f32, {together, in}};
  struct Joined {
    Op op, one;
    Types inputs, alone;
    int64_t apart;  // bytes that are copied side by side, or from there
  };
  const int64_t thin_bytes = thin.bytes().v, weight_bytes = all.bytes().v, sum_bytes = of_all.bytes().v;
  for (const Joined& j :
       {Joined{Op::kLinears, Op::kLinear, joined({{x}, ws}), {x, all}, thin_bytes + weight_bytes},
        Joined{Op::kLinearsDx, Op::kLinearDx, joined({ys, ws, {x}}), {thin, all, x}, thin_bytes + weight_bytes},
        Joined{Op::kLinearsDw, Op::kLinearDw, joined({ys, {x}, sums}), {thin, x, of_all}, thin_bytes + sum_bytes}}) {
    SCOPED_TRACE(ToString(j.op));
    Attributes a = {{"third", kOne}}, of_one;
    if (j.op != Op::kLinears) {
      a.Set("acc", kOne);
      of_one.Set("acc", kOne);
    }
    const Types outputs = *InferTypes(j.op, j.inputs, a);
    const Cost cost = RuleOf(j.op).cost(j.inputs, outputs, a);
    const Cost product = RuleOf(j.one).cost(j.alone, *InferTypes(j.one, j.alone, of_one), of_one);
    EXPECT_EQ(cost.flops, product.flops);
    EXPECT_EQ(cost.read, product.read + Bytes{j.apart});
    EXPECT_EQ(cost.written, product.written + Bytes{j.apart});
    EXPECT_EQ(RuleOf(j.op).moved_before(j.inputs, a).v, 2 * j.apart);
    EXPECT_GE(RuleOf(j.op).workspace(j.inputs, outputs, a, 1).v, j.apart);
  }
}

TEST(Rule, AnOpThatTakesTheRandomInputIsNamedForItsDraws) {
  for (const Case& c : Cases()) {
    const TensorType rng{DType::kI64, {kNumRngWords}};
    EXPECT_EQ(RuleOf(c.op).random, std::find(c.inputs.begin(), c.inputs.end(), rng) != c.inputs.end()) << Describe(c);
  }
}

TEST(Rule, RefusesMoreOrFewerOperands) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Describe(c));
    if (c.op == Op::kRecv) {
      EXPECT_FALSE(InferTypes(c.op, {kX}, c.attributes).ok());
      continue;
    }
    Types fewer(c.inputs.begin(), c.inputs.end() - 1), more = c.inputs;
    more.push_back(c.inputs.back());
    if (c.op != Op::kSumScalars) {
      EXPECT_FALSE(InferTypes(c.op, {}, c.attributes).ok());
    }
    // Any number of sums can be clipped or made, of values be moved.
    const bool any_number = c.op == Op::kSumScalars || c.op == Op::kAllReduce || c.op == Op::kShift;
    if (c.op != Op::kClip && !any_number) {
      EXPECT_FALSE(InferTypes(c.op, more, c.attributes).ok());
    }
    if (!any_number) {
      EXPECT_FALSE(InferTypes(c.op, fewer, c.attributes).ok());
    }
  }
}

TEST(Rule, RefusesOperandsOfAnotherKindOrRank) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Describe(c));
    for (size_t k = 0; k < c.inputs.size(); ++k) {
      // Rows of anything; gradients of any shape; whatever is sent.
      if (c.op == Op::kSliceRows || c.op == Op::kSumSquares || c.op == Op::kSend) continue;
      Types inputs = c.inputs;
      inputs[k].dtype = c.inputs[k].dtype == DType::kI64 ? DType::kI32 : DType::kI64;
      const bool moves_anything =
          IsMove(c.op) || c.op == Op::kAllGather || c.op == Op::kBroadcast || c.op == Op::kShift || c.op == Op::kSend;
      if (!moves_anything) {
        EXPECT_FALSE(InferTypes(c.op, inputs, c.attributes).ok()) << "operand " << k << " of integers";
      }
      inputs = c.inputs;
      inputs[k].shape = {};
      ExpectRefusedOrOther(c.op, inputs, c.attributes, c.outputs);
      inputs[k].shape = c.inputs[k].shape;
      inputs[k].shape.Append(1);
      ExpectRefusedOrOther(c.op, inputs, c.attributes, c.outputs);
    }
  }
}

// Where an op may read a dim of only one operand that does not show in its outputs.
bool IsFreeDim(const Case& c, size_t k, int dim) {
  if (c.op == Op::kClassReport) return k == 0 && dim == 1;  // classes
  if (c.op == Op::kEmbedding) return k == 0 && dim == 0;    // the vocabulary
  if (c.op == Op::kSumRows) return k == 0 && dim == 0;      // the rows that are summed
  if (c.op == Op::kSliceRows) return k == 0 && dim == 0;    // the rows that are left out
  // The columns that are left out, and how many there are.
  if (c.op == Op::kSliceColumns || c.op == Op::kSliceColumnsBackward) return k == 0 && dim == 1;
  if (c.op == Op::kGroupedLinear || c.op == Op::kGroupedLinearDx) return k == 1 && dim == 0;  // the experts
  if (c.op == Op::kRoute) return dim == 1 && c.inputs.size() == 1;                            // the experts
  // Experts, some of which may be others.
  if (c.op == Op::kRouterSum || c.op == Op::kRouterSumBackward)
    return k == (c.op == Op::kRouterSum ? 0 : 1) && dim == 1;
  if (c.op == Op::kBalance) return k == 0 && dim == 0;
  if (c.op == Op::kBalanceBackward) return k == 1;
  if (c.op == Op::kAttentionCached) return k == 7;        // slots, and pages of each
  if (c.op == Op::kGateHeads) return k == 1 && dim == 1;  // the heads
  if (c.op == Op::kSumSquares || c.op == Op::kSend) return true;
  if (c.op == Op::kShortConv || c.op == Op::kShortConvBackward) return dim == 2;  // the taps
  // Parts may be uneven: of their dim only the size of what they are parts of is known, or of what is left of it.
  if (c.op == Op::kAllGather) return dim == c.attributes.Int("dim");
  if (c.op == Op::kReduceScatter) return k < c.attributes.Doubles("sizes").size() && dim == c.attributes.Int("dim");
  // The vocabulary, where nothing else is as long.
  if (IsLoss(c.op))
    return k == 1 && dim == 0 && c.inputs.size() == 3 + static_cast<size_t>(c.attributes.Flag("weighted"));
  return false;
}

TEST(Rule, NeverMistakesOneSizeForAnother) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Describe(c));
    for (size_t k = 0; k < c.inputs.size(); ++k) {
      for (int dim = 0; dim < c.inputs[k].shape.rank(); ++dim) {
        if (IsFreeDim(c, k, dim)) continue;
        for (const int64_t size : {c.inputs[k].shape[dim] + 1, c.inputs[k].shape[dim] * 2, int64_t{1}}) {
          if (size == c.inputs[k].shape[dim]) continue;
          Types inputs = c.inputs;
          inputs[k].shape.set_dim(dim, size);
          ExpectRefusedOrOther(c.op, inputs, c.attributes, c.outputs);
        }
      }
    }
  }
}

TEST(Rule, RefusesUnknownAbsentAndMistypedAttributes) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Describe(c));
    Attributes unknown = c.attributes;
    unknown.Set("wings", int64_t{2});
    EXPECT_FALSE(InferTypes(c.op, c.inputs, unknown).ok());
    for (const AttributeSpec& spec : RuleOf(c.op).attributes) {
      for (const AttributeValue& value :
           {AttributeValue(int64_t{-1}), AttributeValue(0.25), AttributeValue(NAN), AttributeValue(std::string("x")),
            AttributeValue(std::vector<double>{INFINITY})}) {
        const bool right_kind =
            spec.kind == AttributeSpec::Kind::kDouble && value.index() == 1 && !std::isnan(std::get<double>(value));
        Attributes changed = c.attributes;
        changed.Set(spec.key, value);
        if (!right_kind) {
          EXPECT_FALSE(InferTypes(c.op, c.inputs, changed).ok()) << changed.ToString();
        }
      }
      if (!spec.required) continue;
      Attributes without;
      for (const auto& [key, value] : c.attributes.entries()) {
        if (key != spec.key) without.Set(key, value);
      }
      EXPECT_FALSE(InferTypes(c.op, c.inputs, without).ok()) << without.ToString();
    }
  }
}

TEST(Rule, ANormOfGroupsTakesAWidthThatDividesTheRow) {
  const auto infer = [](int64_t width, int64_t grouped) {
    return InferTypes(Op::kRmsNorm, {kX, {kX.dtype, {width}}}, {{"eps", 1e-5}, {"grouped", grouped}});
  };
  const int64_t row = kX.shape[1];
  ASSERT_TRUE(infer(row / 2, 1).ok());
  EXPECT_EQ((*infer(row / 2, 1))[1].shape, Shape({kX.shape[0], 2}));
  EXPECT_EQ((*infer(row, 0))[1].shape, Shape({kX.shape[0]}));
  for (const int64_t width : {int64_t{0}, row - 1, row + 1, 2 * row}) EXPECT_FALSE(infer(width, 1).ok()) << width;
  EXPECT_FALSE(infer(row / 2, 0).ok());
  EXPECT_FALSE(InferTypes(Op::kRmsNorm, {kX, {kX.dtype, {}}}, {{"eps", 1e-5}, {"grouped", int64_t{1}}}).ok());
}

TEST(Rule, ANormOfGroupsWithScalesOfTheirOwnTakesANumberThatDividesTheRow) {
  const auto infer = [](int64_t groups, int64_t grouped, int64_t width) {
    return InferTypes(Op::kRmsNorm, {kX, {kX.dtype, {width}}},
                      {{"eps", 1e-5}, {"grouped", grouped}, {"groups", groups}});
  };
  const int64_t row = kX.shape[1];
  EXPECT_TRUE(infer(2, 1, row).ok());
  EXPECT_FALSE(infer(2, 0, row).ok());
  EXPECT_FALSE(infer(3, 1, row).ok());
  EXPECT_FALSE(infer(-2, 1, row).ok());
  EXPECT_FALSE(infer(2, 1, row / 2).ok());
}

TEST(Rule, RefusesValuesOfAttributesThatMakeNoSense) {
  const auto refused = [](Op op, const Types& inputs, Attributes attributes, const char* key,
                          const AttributeValue& value) {
    ASSERT_TRUE(InferTypes(op, inputs, attributes).ok());
    attributes.Set(key, value);
    EXPECT_FALSE(InferTypes(op, inputs, attributes).ok()) << ToString(op) << attributes.ToString();
  };
  const int64_t huge = std::numeric_limits<int64_t>::max();
  const Attributes slice = {{"begin", int64_t{4}}, {"count", int64_t{2}}};
  refused(Op::kSliceRows, {kX}, slice, "begin", int64_t{5});
  refused(Op::kSliceRows, {kX}, slice, "count", huge);
  refused(Op::kSliceRows, {kX}, slice, "begin", huge);
  const Attributes columns = {{"begin", int64_t{6}}, {"count", int64_t{2}}};
  refused(Op::kSliceColumns, {kX}, columns, "begin", int64_t{7});
  refused(Op::kSliceColumns, {kX}, columns, "count", huge);
  refused(Op::kSliceColumns, {kX}, columns, "begin", huge);
  const Attributes whole = {{"begin", int64_t{2}}, {"columns", int64_t{2} + D}};
  refused(Op::kSliceColumnsBackward, {kX}, whole, "begin", int64_t{3});
  refused(Op::kSliceColumnsBackward, {kX}, whole, "begin", huge);
  refused(Op::kSliceColumnsBackward, {kX}, whole, "columns", D - 1);
  refused(Op::kUnstack, {{kF, {4 * O, D}}}, {{"matrices", int64_t{4}}}, "matrices", int64_t{7});
  refused(Op::kUnstack, {{kF, {4 * O, D}}}, {{"matrices", int64_t{4}}}, "matrices", int64_t{0});
  refused(Op::kRoute, {kX}, {{"active", D}}, "active", D + 1);
  refused(Op::kRoute, {kX}, {{"active", D}}, "active", int64_t{0});
  const Attributes grouped = {{"active", int64_t{4}}, {"groups", int64_t{4}}, {"top_groups", int64_t{2}}};
  refused(Op::kRoute, {kX}, grouped, "groups", int64_t{3});
  refused(Op::kRoute, {kX}, grouped, "top_groups", int64_t{5});
  refused(Op::kRoute, {kX}, grouped, "top_groups", int64_t{0});
  refused(Op::kRoute, {kX}, grouped, "active", int64_t{5});
  const Attributes of_block = {{"blocks", int64_t{3}}, {"experts", D}, {"block", kOne}};
  refused(Op::kExpertLoad, {kExperts, kPlaces, kStatistic}, of_block, "block", int64_t{3});
  refused(Op::kExpertLoad, {kExperts, kPlaces, kStatistic}, of_block, "experts", int64_t{0});
  refused(Op::kRouterSum, {kX, kStatistic}, kFive, "begin", int64_t{4});
  refused(Op::kRouterSum, {kX, kStatistic}, kFive, "begin", huge);
  refused(Op::kRouterSum, {kX, kStatistic}, kFive, "count", int64_t{7});
  refused(Op::kRouterSum, {kX, kStatistic}, kFive, "count", int64_t{0});
  refused(Op::kRouterSum, {kX, kStatistic}, kFive, "split", std::string("xy"));
  refused(Op::kRouterSumBackward, {kPart, kX, kStatistic}, kFive, "count", int64_t{4});
  refused(Op::kBalance, {kLoad, kGradD}, {{"active", kActive}}, "active", int64_t{0});
  refused(Op::kBalance, {kLoad, kPart}, {{"active", kActive}, {"begin", int64_t{2}}}, "begin", int64_t{4});
  refused(Op::kBalanceBackward, {kNumber, kLoad}, With(kFive, {{"active", kActive}}), "count", int64_t{7});
  refused(Op::kGroupedLinear, {kRows, kStack, kExperts}, {{"active", kActive}}, "active", int64_t{4});
  refused(Op::kGroupedLinear, {kRows, kStack, kExperts}, {{"active", kActive}}, "active", int64_t{0});
  refused(Op::kEmbedding, {{kF, {V, D}}, kIndex}, {}, "offset", V + 1);
  refused(Op::kEmbedding, {{kF, {V, D}}, kIndex}, {}, "offset", huge);
  const Types attention = {kX, kKv, kKv, kIndex};
  const Types with_sink = {kX, kKv, kKv, kIndex, {kF, {4}}};
  refused(Op::kAttention, with_sink, With(kHeads, {{"sink", kOne}}), "sink", int64_t{0});
  refused(Op::kAttention, with_sink, With(kHeads, {{"sink", kOne}}), "last", kOne);
  for (const int64_t heads : {int64_t{0}, int64_t{3}, int64_t{1}, int64_t{8}, huge}) {
    refused(Op::kAttention, attention, kHeads, "heads", heads);
    refused(Op::kAttention, attention, kHeads, "kv_heads", heads);
  }
  const Types rope = {kX, {DType::kF32, {T, 4}}};
  for (const int64_t e : {int64_t{0}, int64_t{2}, int64_t{3}, int64_t{5}, huge}) {
    refused(Op::kRope, rope, {{"head_dim", int64_t{4}}}, "head_dim", e);
  }
  const Types last = {kX, {DType::kF32, {T, 2}}};
  const Attributes behind = {{"head_dim", int64_t{4}}, {"first", int64_t{2}}};
  for (const int64_t first : {int64_t{3}, int64_t{4}, huge}) refused(Op::kRope, last, behind, "first", first);
  const Attributes four = {{"heads", int64_t{4}}};
  for (const int64_t heads : {int64_t{0}, int64_t{3}, int64_t{16}, huge}) {
    refused(Op::kAppendToHeads, {kX, {kF, {T, 3}}}, four, "heads", heads);
    refused(Op::kAppendToHeadsBackward, {{kF, {T, 20}}}, With(four, {{"tail", int64_t{3}}}), "heads", heads);
  }
  for (const int64_t tail : {int64_t{0}, int64_t{5}, huge}) {
    refused(Op::kAppendToHeadsBackward, {{kF, {T, 20}}}, With(four, {{"tail", int64_t{3}}}), "tail", tail);
  }
  const Types lengths = {kIndex, kIndex};
  const std::vector<double> pair = {1, 0.1};
  const Attributes growing = {
      {"inv_freq", pair}, {"document_length", kOne}, {"near", int64_t{8}}, {"theta", 1e4}, {"factor", 2.0}};
  refused(Op::kRopeTable, lengths, growing, "near", int64_t{0});
  refused(Op::kRopeTable, lengths, growing, "theta", 0.0);
  refused(Op::kRopeTable, lengths, growing, "factor", -1.0);
  refused(Op::kRopeTable, lengths, growing, "inv_freq", std::vector<double>{1});
  refused(Op::kRopeTable, lengths, growing, "long_inv_freq", pair);
  refused(Op::kRopeTable, {kIndex}, {{"inv_freq", pair}}, "near", int64_t{8});
  for (const double cap : {0.0, -1.0}) refused(Op::kSoftcap, {kX}, {{"cap", 30.0}}, "cap", cap);
  refused(Op::kAttention, attention, kHeads, "softcap", -1.0);
  const std::vector<double> slopes(static_cast<size_t>(kHeads.Int("heads")), 0.5);
  const Attributes alibi = With(kHeads, {{"slopes", slopes}});
  refused(Op::kAttention, attention, alibi, "slopes", std::vector<double>(slopes.size() + 1, 0.5));
  refused(Op::kAttention, attention, alibi, "softcap", 1.0);
  refused(Op::kAttention, attention, alibi, "window", int64_t{3});
  refused(Op::kAttention, attention, kHeads, "rounded_slopes", kOne);
  for (const double limit : {0.0, -1.0}) refused(Op::kClamp, {kX}, {{"limit", 1.0}}, "limit", limit);
  refused(Op::kRopeTable, {kIndex}, {{"inv_freq", pair}, {"sines_first", kOne}}, "interleaved", kOne);
  const Types drawn = {kX, {DType::kI64, {kNumRngWords}}};
  for (const double p : {-0.1, 1.0, 1.5}) refused(Op::kDropout, drawn, {{"p", 0.5}}, "p", p);
  refused(Op::kNoise, drawn, {{"magnitude", 0.5}}, "magnitude", -0.5);
  const Types updated = {{DType::kF32, {T, D}}, {DType::kI64, {kNumRngWords}}};
  refused(Op::kStochasticRound, updated, {}, "columns", D - 1);
  refused(Op::kStochasticRound, updated, {}, "packed_row", kOne);
  refused(Op::kStochasticRound, updated, {{"packed_row", int64_t{3}}, {"drawn_row", int64_t{3}}}, "drawn_row",
          int64_t{2});
  for (const char* dtype : {"i32", "i64", "f17", ""}) {
    refused(Op::kCast, {kX}, {{"dtype", std::string("f32")}}, "dtype", std::string(dtype));
    refused(Op::kLinear, {kX, kW}, {}, "out", std::string(dtype));
  }
  for (const char* layout : {"", "columns"}) {
    refused(Op::kCast, {kX}, {{"dtype", std::string("bf16")}}, "layout", std::string(layout));
  }
  refused(Op::kCast, {kX}, {{"dtype", std::string("f32")}}, "layout", std::string("row_pairs"));
  refused(Op::kCast, {kD}, {{"dtype", std::string("bf16")}}, "layout", std::string("row_pairs"));
  refused(Op::kCast, {{DType::kF32, {T, D}}}, {{"dtype", std::string("bf16")}}, "layout", std::string("row_pairs"));
  // Parts that do not lie within their whole.
  const Types table = {{kF, {V, D}}, kIndex}, d_x = {kX, kIndex}, head = {kX, {kF, {V, D}}, kIndex};
  const Attributes within = {{"begin", V}, {"whole", 2 * V}};
  for (const AttributeValue& begin : {AttributeValue(V + 1), AttributeValue(huge)}) {
    refused(Op::kEmbedding, table, within, "begin", begin);
    refused(Op::kEmbeddingBackward, d_x, With(within, {{"vocab", V}}), "begin", begin);
    refused(Op::kLinearCrossEntropy, head, With(kPair, {{"begin", V}, {"whole", 2 * V}}), "begin", begin);
  }
  refused(Op::kEmbedding, table, {}, "begin", kOne);
  refused(Op::kEmbedding, table, within, "offset", 2 * V + 1);
  refused(Op::kEmbeddingBackward, d_x, {{"vocab", V}}, "begin", kOne);
  refused(Op::kLinearCrossEntropy, head, {}, "softcap", -1.0);
  for (const char* key : {"begin", "whole", "ranks"}) refused(Op::kLinearCrossEntropy, head, {}, key, kOne);
  refused(Op::kLinearCrossEntropy, head, {}, "axes", std::string("tp"));  // of how many words?
  const Attributes shared = With(kPair, {{"whole", 2 * V}});
  for (const int64_t ranks : {0, 1}) refused(Op::kLinearCrossEntropy, head, shared, "ranks", ranks);
  for (const char* axes : {"", "wings"}) refused(Op::kLinearCrossEntropy, head, shared, "axes", std::string(axes));
  for (const double smoothing : {-0.1, 1.0}) {
    refused(Op::kLinearCrossEntropy, head, {{"smoothing", 0.5}}, "smoothing", smoothing);
  }
  const std::pair<Op, Attributes> drawing[] = {{Op::kDropout, {{"p", 0.5}}}, {Op::kNoise, {{"magnitude", 0.5}}}};
  for (const auto& [op, own] : drawing) {
    const Attributes columns = With(own, {{"column", int64_t{8}}, {"columns", 2 * D}});
    refused(op, drawn, columns, "column", int64_t{9});
    refused(op, drawn, columns, "columns", D);
    refused(op, drawn, columns, "column", huge);
    refused(op, drawn, own, "column", kOne);
  }
  // Rows that cannot be dealt, ranks that are none, steps of which the first is not within a rank's own tokens.
  const Types step = {kX, kKv, kKv, kIndex};
  for (const int64_t row : {int64_t{0}, T, int64_t{10}, 4 * T + 2, huge})
    refused(Op::kAttentionStep, step, kStep, "row", row);
  for (const int64_t ranks : {int64_t{0}, int64_t{1}, int64_t{4}, huge}) {
    refused(Op::kAttentionStep, step, kStep, "ranks", ranks);
  }
  refused(Op::kAttentionStep, step, kStep, "index", int64_t{2});
  refused(Op::kAttentionStep, step, kStep, "origin", kOne);
  const Types more = {kX, kKv, kKv, kIndex, kSums, kLse};
  refused(Op::kAttentionStep, more, With(kStep, {{"acc", kOne}}), "origin", int64_t{2});
  const Attributes ring =
      With(kHeads, {{"axes", std::string("cp")}, {"row", 2 * T}, {"ranks", int64_t{2}}, {"index", kOne}});
  for (const char* axes : {"", "wings", "tp", "cp,tp"}) refused(Op::kAttention, step, ring, "axes", std::string(axes));
  refused(Op::kAttention, step, ring, "ranks", kOne);
  refused(Op::kAttention, step, ring, "index", int64_t{2});
  refused(Op::kAttention, step, kHeads, "ranks", int64_t{2});
  for (const auto& [op, own] : drawing) {
    const Attributes dealt = With(own, {{"packed_row", int64_t{24}}, {"ranks", int64_t{3}}, {"index", int64_t{2}}});
    for (const char* key : {"packed_row", "ranks"}) {
      for (const int64_t x : {int64_t{0}, int64_t{7}, huge}) refused(op, drawn, dealt, key, x);
    }
    refused(op, drawn, dealt, "index", int64_t{3});
    refused(op, drawn, dealt, "row", huge);
    refused(op, drawn, own, "ranks", int64_t{3});
    refused(op, drawn, own, "packed_row", int64_t{24});
    refused(op, drawn, own, "drawn_row", int64_t{24});
    const Attributes apart = With(own, {{"packed_row", int64_t{8}}, {"drawn_row", int64_t{24}}});
    for (const int64_t x : {int64_t{7}, huge}) refused(op, drawn, apart, "drawn_row", x);
    for (const int64_t x : {int64_t{0}, int64_t{25}}) refused(op, drawn, apart, "packed_row", x);
    refused(op, drawn, apart, "index", int64_t{0});
  }
  // Collectives of no group, of dims and sizes that are none.
  const Attributes gather = With(kPair, {{"dim", int64_t{0}}, {"sizes", Sizes({2 * T})}});
  const Attributes scatter = With(kPair, {{"dim", int64_t{0}}, {"sizes", Sizes({T / 2})}});
  for (const auto& [op, attributes] :
       {std::pair(Op::kAllGather, gather), std::pair(Op::kReduceScatter, scatter), std::pair(Op::kAllReduce, kPair),
        std::pair(Op::kBroadcast, kPair), std::pair(Op::kShift, kPair)}) {
    for (const char* axes : {"", "wings", "dp;fsdp"}) refused(op, {kX}, attributes, "axes", std::string(axes));
    for (const int64_t ranks : {int64_t{0}, int64_t{1}}) refused(op, {kX}, attributes, "ranks", ranks);
  }
  const Attributes recv = With(kPeer, {{"dtype", std::string("bf16")}, {"shape", Sizes({6, 8})}});
  for (const auto& [op, inputs, attributes] :
       {std::tuple(Op::kSend, Types{kX}, kPeer), std::tuple(Op::kRecv, Types{}, recv)}) {
    for (const char* axes : {"", "wings", "dp,fsdp"}) refused(op, inputs, attributes, "axes", std::string(axes));
    refused(op, inputs, attributes, "peer", huge);
  }
  refused(Op::kRecv, {}, recv, "dtype", std::string("wings"));
  for (const std::vector<double>& shape :
       {std::vector<double>{-1}, {2.5}, {0x1p41}, {0x1p40, 0x1p40}, {1, 1, 1, 1, 1, 1}}) {
    refused(Op::kRecv, {}, recv, "shape", shape);
  }
  for (const auto& [op, attributes] : {std::pair(Op::kAllGather, gather), std::pair(Op::kReduceScatter, scatter)}) {
    for (const int64_t dim : {int64_t{2}, huge}) refused(op, {kX}, attributes, "dim", dim);
    for (const std::vector<double>& sizes :
         {std::vector<double>{}, {6, 6}, {-1}, {2.5}, {0x1p41}, {std::numeric_limits<double>::max()}}) {
      refused(op, {kX}, attributes, "sizes", sizes);
    }
  }
  refused(Op::kAllGather, {kX}, gather, "sizes", Sizes({T - 1}));       // less than a part
  refused(Op::kReduceScatter, {kX}, scatter, "sizes", Sizes({T + 1}));  // more than the whole
  refused(Op::kLayerNorm, {kX, kD, kD}, {{"eps", 1e-5}}, "unshifted", kOne);
  const Attributes of_groups{{"eps", 1e-5}, {"grouped", kOne}};
  for (const Shape& shape : {Shape{3}, Shape{2, 3}, Shape{}, Shape{2, 2, 2}}) {
    EXPECT_FALSE(InferTypes(Op::kLayerNorm, {kX, {kF, shape}, {kF, shape}}, of_groups).ok()) << shape.ToString();
  }
  // Gradients that are added to what is not wanted, of a pair that is not there.
  refused(Op::kRmsNormBackward, {kX, kX, kD, kStatistic}, {}, "acc_w", kOne);
  const Types loss = {kX, {kF, {V, D}}, kIndex};
  for (const char* key :
       {"acc_w", "acc_w2", "acc_bias", "grad_x2", "grad_w2", "grad_bias", "pair2", "bias", "weighted"}) {
    refused(Op::kLinearCrossEntropy, loss, {}, key, kOne);
  }
  for (const char* key : {"grad_x", "weighted", "pair2"}) refused(Op::kTokenLogprob, loss, {}, key, kOne);
}

TEST(Rule, ClipTakesSumsThatRanksAddedUp) {
  const auto sums = InferTypes(Op::kAllReduce, {kSum, kSum, kSum}, kPair);
  ASSERT_TRUE(sums.ok()) << sums.status().message();
  Types inputs = *sums;
  inputs.push_back(kScalars);
  const auto clip = InferTypes(Op::kClip, inputs, {{"max_norm", 1.0}});
  ASSERT_TRUE(clip.ok()) << clip.status().message();
}

TEST(Rule, AnOutputIsWrittenOnlyOverAnInputOfItsType) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Describe(c));
    const Types outputs = *InferTypes(c.op, c.inputs, c.attributes);
    const int n = static_cast<int>(c.inputs.size());
    std::set<int> taken;
    for (int o = 0; o < static_cast<int>(outputs.size()); ++o) {
      const int input = OverwritableInput(c.op, c.attributes, n, o);
      ASSERT_LT(input, n);
      if (input < 0) continue;
      EXPECT_TRUE(taken.insert(input).second) << "two outputs over input " << input;
      // An element-wise op's first operand always fits; an accumulator fits where it is there.
      EXPECT_EQ(c.inputs[static_cast<size_t>(input)].ToString(), outputs[static_cast<size_t>(o)].ToString()) << o;
    }
  }
}

TEST(Rule, CostsAndScratchAreNotNegativeAndGrowWithThreads) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(Describe(c));
    const OpRule& rule = RuleOf(c.op);
    const Types outputs = *InferTypes(c.op, c.inputs, c.attributes);
    const Cost cost = rule.cost(c.inputs, outputs, c.attributes);
    EXPECT_GE(cost.flops.v, 0);
    if (c.op != Op::kBroadcast) {  // a name for the same bytes
      EXPECT_TRUE(cost.read.v > 0 || c.inputs.empty());
      EXPECT_TRUE(cost.written.v > 0 || outputs.empty());
    }
    if (rule.workspace == nullptr) continue;
    Bytes last{};
    for (const int threads : {1, 2, 3, 64}) {
      const Bytes bytes = rule.workspace(c.inputs, outputs, c.attributes, threads);
      EXPECT_GE(bytes, last);
      last = bytes;
    }
  }
}

TEST(Rule, MatrixProductsCostTwoPerMultiplyAdd) {
  const auto flops = [](Op op, const Types& in, const Attributes& a) {
    return RuleOf(op).cost(in, *InferTypes(op, in, a), a).flops.v;
  };
  EXPECT_EQ(flops(Op::kLinear, {kX, kW}, {}), 2.0 * T * D * O);
  EXPECT_EQ(flops(Op::kLinearDx, {kY, kW}, {}), 2.0 * T * D * O);
  EXPECT_EQ(flops(Op::kLinearDw, {kY, kX}, {}), 2.0 * T * D * O);
  const Types loss = {kX, {kF, {V, D}}, kIndex};
  EXPECT_EQ(flops(Op::kLinearCrossEntropy, loss, {}), 2.0 * T * D * V);
  EXPECT_EQ(flops(Op::kLinearCrossEntropy, loss, {{"grad_x", kOne}, {"grad_w", kOne}}), 3 * 2.0 * T * D * V);
  // One causal document of T tokens: T (T + 1) / 2 pairs, two products forward and five backward.
  const double pairs = T * (T + 1) / 2.0;
  EXPECT_EQ(flops(Op::kAttention, {kX, kKv, kKv, kIndex}, kHeads), 4 * D * pairs);
  EXPECT_EQ(flops(Op::kAttentionBackward, {kX, kX, kKv, kKv, kX, kLse, kIndex}, kHeads), 10 * D * pairs);
  // Values one and a half times as wide as keys: o has 12 columns.
  const TensorType v{kF, {T, 6}}, o{kF, {T, 12}};
  EXPECT_EQ(flops(Op::kAttention, {kX, kKv, v, kIndex}, kHeads), 2 * (D + 12) * pairs);
  EXPECT_EQ(flops(Op::kAttentionBackward, {o, kX, kKv, v, o, kLse, kIndex}, kHeads), 2 * (3 * D + 2 * 12) * pairs);
}

// The second pair of a product: its dims fit those of the first, and its arithmetic and weights count.
TEST(Rule, ASecondPairOfAProductGoesOnWithItsSum) {
  const int64_t T = 6, I = 8, O = 10, R = 2;
  const DType f = DType::kBF16;
  const TensorType x{f, {T, I}}, w{f, {O, I}}, y{f, {T, O}}, h{f, {T, R}}, b{f, {O, R}}, a{f, {R, I}}, bias{f, {O}};
  const Attributes pair = {{"pair2", int64_t{1}}, {"acc", int64_t{1}}};
  const struct {
    Op op;
    Types in, without;
    TensorType w2;
    int64_t columns, inner;
  } products[] = {{Op::kLinear, {x, w, h, b, y}, {x, w, bias, y}, b, O, I},
                  {Op::kLinearDx, {y, w, h, a, x}, {y, w, x}, a, I, O}};
  for (const auto& p : products) {
    const OpRule& rule = RuleOf(p.op);
    EXPECT_TRUE(InferTypes(p.op, p.in, pair).ok());
    for (size_t i = 2; i < 4; ++i) {
      Types wrong = p.in;
      wrong[i].shape = {wrong[i].shape[0] + 1, wrong[i].shape[1]};
      EXPECT_FALSE(InferTypes(p.op, wrong, pair).ok()) << ToString(p.op) << " " << i;
    }
    EXPECT_FALSE(InferTypes(p.op, p.in, {{"acc", int64_t{1}}}).ok()) << ToString(p.op);
    const auto flops = [&](const Types& in) { return rule.cost(in, {p.in.back()}, {}).flops.v; };
    EXPECT_EQ(flops(p.in), 2.0 * T * p.columns * (p.inner + R)) << ToString(p.op);
    EXPECT_EQ(flops(p.without), 2.0 * T * p.columns * p.inner) << ToString(p.op);
    EXPECT_EQ(rule.product(p.in).inner, p.inner + R);
    EXPECT_EQ(rule.product(p.without).inner, p.inner);
    EXPECT_EQ(OverwritableInput(p.op, pair, 5, 0), 4);
  }
  ModelWork work, plain;
  RuleOf(Op::kLinear).model_work({x, w, h, b}, {}, &work);
  RuleOf(Op::kLinear).model_work({x, w, bias, y}, {}, &plain);
  EXPECT_EQ(work.weights, O * I + O * R);
  EXPECT_EQ(plain.weights, O * I);
}

// A head that is packed twice is one head: the same traffic, and only together with d_x.
TEST(Rule, APackedHeadIsReadOnceMoreOnlyForItsGradient) {
  const int64_t T = 6, D = 8, V = 20;
  const TensorType x{DType::kBF16, {T, D}}, target{DType::kI32, {T}}, rows{DType::kBF16, {V, D}};
  TensorType columns = rows, again = rows;
  columns.layout = ElementLayout::kColumnPairs;
  again.layout = ElementLayout::kRowPairs;
  const Attributes plain = {{"grad_x", int64_t{1}}}, packed = {{"grad_x", int64_t{1}}, {"w_of_d_x", int64_t{1}}};
  const OpRule& rule = RuleOf(Op::kLinearCrossEntropy);
  const Result<Types> out = InferTypes(Op::kLinearCrossEntropy, {x, columns, target, again}, packed);
  ASSERT_TRUE(out.ok()) << out.status().message();
  EXPECT_EQ(rule.cost({x, columns, target, again}, *out, packed).read.v - columns.bytes().v,
            rule.cost({x, rows, target}, *out, plain).read.v - rows.bytes().v);
  EXPECT_FALSE(InferTypes(Op::kLinearCrossEntropy, {x, columns, target, again}, {{"w_of_d_x", int64_t{1}}}).ok());
  EXPECT_FALSE(InferTypes(Op::kLinearCrossEntropy, {x, rows, target, again}, packed).ok());
  EXPECT_FALSE(InferTypes(Op::kLinearCrossEntropy, {x, columns, target, columns}, packed).ok());
  EXPECT_FALSE(InferTypes(Op::kLinearCrossEntropy, {x, columns, target, rows}, packed).ok());
}

}  // namespace
}  // namespace temper::rule_test
