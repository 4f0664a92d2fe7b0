// Linear + softmax cross-entropy in one pass over chunks of supervised rows: logits = x w^T [+ x2 w2^T] [+ bias], loss
// per token, times its weight where there are weights, and, because the loss can only be a root of the backward pass,
// the gradients of the loss sum right away. Full logits [T, V] never exist. The second pair is a LoRA branch on the
// head: x2 = s * dropout(x) A^T, w2 = B.
//
// With a softcap c logits are c * tanh(logit / c) (Gemma 2).
//
// With label smoothing s a token's loss is (1 - s) times that of its target plus s times the mean of that of all words,
// as transformers' LabelSmoother: log(sum of exp) - (1 - s) logit[target] - s mean(logits).
//
// The bias is the head's own: the second pair, which could be ones and a bias, is for adapters on such a head.
//
// With `correct` there is another output: whether each token's target is the first of its row's largest logits, times
// its weight. A cap is monotone: logits are compared before it.
//
// token_logprob is the same without weights and gradients, with the other sign.
//
// linear_distillation (Agarwal 2023, "On-policy distillation of language models", as TRL's GKDTrainer) has another
// loss: with p and q the softmax of the logits and of a frozen teacher's, both divided by `temperature`, and m = (1 -
// beta) p + beta q, it is beta KL(q | m) + (1 - beta) KL(p | m); at beta 0 KL(q | p), at beta 1 KL(p | q). The target
// says only whether a token counts. The teacher's logits are made beside the model's, chunk by chunk.
//
// A frozen w may be int8 rows. The attribute `dequantise` says that its numbers are first written to scratch.
//
// A chunk of few rows takes less scratch and more time. It changes no bit: a row's logits and d_x know nothing of other
// rows, and the products of d_w's sums are added one after the other, from chunk to chunk as within one.
//
// With `axes` w, w2 and the bias are rows [begin, begin + V) of a vocabulary of `whole` words, the rest of which the
// other ranks of a group hold. For every chunk of supervised rows they gather each row's maximum, sum of exponentials,
// target's logit and, if labels are smoothed, sum of logits (loss_scratch.h), for `correct` the first of the largest;
// all then have the same loss, each the gradients of its own logits: d_x is its term of a sum.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "graph/ops/loss_operands.h"
#include "graph/ops/loss_scratch.h"
#include "graph/ops/quantised_weight.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"
#include "tensor/format_rule.h"

namespace temper {
namespace {

using Pair = LossOperands::Pair;

size_t At(int i) {
  return static_cast<size_t>(i);
}

// Whether the attributes name a group and a part of a vocabulary that fit w_VD, or none.
bool GoodPart(const TensorType& w, const Attributes& a) {
  if (!a.Has("axes")) return a.IntOr("ranks", 0) == 0 && a.IntOr("begin", 0) == 0 && a.IntOr("whole", 0) == 0;
  const auto axes = AxisSet::Parse(a.String("axes"));
  const int64_t whole = a.IntOr("whole", 0), begin = a.IntOr("begin", 0);
  return axes.ok() && !axes->empty() && a.IntOr("ranks", 0) >= 2 && begin <= whole && w.shape[0] <= whole - begin;
}

// No gradient is made for a quantised head.
bool GoodWeight(const TensorType& x, const TensorType& w, bool with_gradient) {
  if (w.dtype.quantised() && (with_gradient || !RuleOf(w.dtype).of_embeddings)) return false;
  return IsWeightFor(x, w);
}

// Output types of `op`, whose operands are described by `wanted`.
Result<Types> InferLoss(Op op, const char* wanted, const Types& in, const Attributes& a) {
  const LossOperands operands(a);
  bool good = in.size() == At(operands.num_inputs);
  for (size_t p = operands.num_pairs; p < 2; ++p) good = good && !a.Flag("grad_x2") && !a.Flag("grad_w2");
  // Only a gradient that is made can be added to one.
  good = good && (a.Flag("grad_w") || !a.Flag("acc_w")) && (a.Flag("grad_w2") || !a.Flag("acc_w2")) &&
         (a.Flag("grad_bias") || !a.Flag("acc_bias")) && (a.Flag("bias") || !a.Flag("grad_bias"));
  for (size_t p = 0; good && p < operands.num_pairs; ++p) {
    const TensorType &x = in[At(operands.pairs[p].x)], &w = in[At(operands.pairs[p].w)];
    good = IsMatrix(x) && IsFloat(x) && GoodWeight(x, w, p > 0 || operands.pairs[p].d_w >= 0) &&
           x.dtype == in[0].dtype && x.shape[1] == w.shape[1] && x.shape[0] == in[0].shape[0] &&
           w.shape[0] == in[1].shape[0];
  }
  if (good && operands.teacher_x >= 0) {
    const TensorType &y = in[At(operands.teacher_x)], &u = in[At(operands.teacher_w)];
    good = IsMatrix(y) && y.dtype == in[0].dtype && y.shape[0] == in[0].shape[0] && IsWeightFor(y, u) &&
           !u.dtype.quantised() && u.shape.rank() == 2 && u.shape[1] == y.shape[1] && u.shape[0] == in[1].shape[0] &&
           (operands.teacher_bias < 0 || (IsFloatVector(in[At(operands.teacher_bias)], u.shape[0]) &&
                                          in[At(operands.teacher_bias)].dtype == in[0].dtype)) &&
           a.Double("temperature") > 0 && a.Double("beta") >= 0 && a.Double("beta") <= 1 &&
           a.DoubleOr("teacher_softcap", 0) >= 0;
  }
  if (good && operands.w_of_d_x >= 0) {
    const TensorType& w = in[At(operands.w_of_d_x)];
    good = a.Flag("grad_x") && w.packed() && in[1].packed() && w.dtype == in[1].dtype && w.shape == in[1].shape;
  }
  good = good && DequantiseFits(in[1], a) && GoodPart(in[1], a) && a.DoubleOr("softcap", 0) >= 0 &&
         (operands.correct < 0 || a.IntOr("whole", in[1].shape[0]) <= kMostRankedWords) &&
         a.DoubleOr("smoothing", 0) >= 0 && a.DoubleOr("smoothing", 0) < 1 &&
         IsIndex(in[LossOperands::kTarget], in[0].shape[0]) &&
         (operands.bias < 0 ||
          (IsFloatVector(in[At(operands.bias)], in[1].shape[0]) && in[At(operands.bias)].dtype == in[0].dtype)) &&
         (operands.weight < 0 || IsStatistic(in[At(operands.weight)], in[0]));
  if (!good) return BadOperands(op, wanted, in, a);
  Types out(At(operands.num_outputs));
  out[LossOperands::kLoss] = {StatisticDType(in[0].dtype), {in[0].shape[0]}};
  if (operands.correct >= 0) out[At(operands.correct)] = out[LossOperands::kLoss];
  for (size_t p = 0; p < operands.num_pairs; ++p) {
    const Pair& pair = operands.pairs[p];
    if (pair.d_x >= 0) out[At(pair.d_x)] = in[At(pair.x)];
    if (pair.d_w < 0) continue;
    out[At(pair.d_w)] = {GradientDType(in[0].dtype), in[At(pair.w)].shape};
    if (pair.acc >= 0 && !(in[At(pair.acc)] == out[At(pair.d_w)])) return BadOperands(op, "acc like d_w", in, a);
  }
  if (operands.d_bias >= 0) {
    out[At(operands.d_bias)] = {GradientDType(in[0].dtype), in[At(operands.bias)].shape};
    if (operands.acc_bias >= 0 && !(in[At(operands.acc_bias)] == out[At(operands.d_bias)])) {
      return BadOperands(op, "acc like d_bias", in, a);
    }
  }
  return out;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  return InferLoss(
      Op::kLinearCrossEntropy,
      "(x_TD, w_VD, target_T, [x2_TR, w2_VR], [bias_V], [weight_T], [acc_w], [acc_w2], [acc_bias], [w_VD])", in, a);
}
Result<Types> InferLogprob(const Types& in, const Attributes& a) {
  return InferLoss(Op::kTokenLogprob, "(x_TD, w_VD, target_T, [x2_TR, w2_VR], [bias_V])", in, a);
}
Result<Types> InferDistillation(const Types& in, const Attributes& a) {
  return InferLoss(
      Op::kLinearDistillation,
      "(x_TD, w_VD, target_T, [x2_TR, w2_VR], [bias_V], y_TE, u_VE, [teacher_bias_V], [weight_T], [acc_w], "
      "[acc_w2], [acc_bias], [w_VD])",
      in, a);
}

void Gradient(GradientSink& sink) {
  constexpr const char* kGradX[2] = {"grad_x", "grad_x2"};
  constexpr const char* kGradW[2] = {"grad_w", "grad_w2"};
  constexpr const char* kAccW[2] = {"acc_w", "acc_w2"};
  std::vector<ValueId> inputs = sink.node().inputs;
  Attributes attributes = sink.node().attributes;
  const LossOperands forward(attributes);
  struct Made {  // by the node from now on
    int input;
    bool with_pending;
  };
  std::vector<Made> made;
  const auto make_of_weight = [&](int w, const char* grad, const char* add) {
    if (!sink.Needs(w)) return;
    attributes.Set(grad, int64_t{1});
    // What another root adds to this weight is made behind this node.
    const ValueId acc = sink.PendingBefore(w);
    made.push_back({w, acc != kNoValue});
    if (acc == kNoValue) return;
    attributes.Set(add, int64_t{1});
    inputs.push_back(acc);
  };
  for (size_t p = 0; p < forward.num_pairs; ++p) {
    if (sink.Needs(forward.pairs[p].x)) {
      attributes.Set(kGradX[p], int64_t{1});
      made.push_back({forward.pairs[p].x, false});
    }
    make_of_weight(forward.pairs[p].w, kGradW[p], kAccW[p]);
  }
  if (forward.bias >= 0) make_of_weight(forward.bias, "grad_bias", "acc_bias");
  if (made.empty()) return;
  const auto outputs = sink.Extend(std::move(inputs), std::move(attributes));
  for (size_t i = 0; i < made.size(); ++i) {
    if (made[i].with_pending) {
      sink.Deliver(made[i].input, outputs[i]);
    } else {
      sink.Contribute(made[i].input, outputs[i]);
    }
  }
}

// The vocabulary may be split along tensor axes (attribute `axes`; `begin`: the first word of this rank's part): ranks
// then exchange the maximum and the sum of exponentials of every row. Else rows are dealt as they lie.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  const LossOperands operands(node.attributes);
  const bool distills = operands.teacher_x >= 0;
  Sharding x = sink.Settled(sink.sharding(0)), w = sink.sharding(1), target = sink.sharding(2), loss = target;
  for (const Axis axis : x.split(1).axes()) x = Gathered(x, 1, axis);
  for (const Axis axis : sink.mesh().axes().axes()) {
    const int dim = w.DimOf(axis);
    if (target.DimOf(axis) == 0) {
      if (dim >= 0) w = Gathered(w, dim, axis);
      w.varying |= axis;
    } else if (dim == 0) {
      if (distills) {
        return sink.Refuse(
            fmt::format("task distill compares whole vocabularies, and {} is split by words over {}: set mesh.tp to 1",
                        sink.value(node.inputs[1]).name, ToString(axis)));
      }
      if (x.DimOf(axis) == 0) x = Gathered(x, 0, axis);
      x.varying |= axis;
    } else if (dim == 1) {
      return sink.Refuse(
          fmt::format("{} is split along its input dim over {}", sink.value(node.inputs[1]).name, ToString(axis)));
    } else if (x.DimOf(axis) == 0 || x.varying.Has(axis)) {
      return sink.Refuse(
          fmt::format("{} is whole along {}, but its input is not", sink.value(node.inputs[1]).name, ToString(axis)));
    }
  }
  Attributes attributes = node.attributes;
  const AxisSet split = w.split(0);
  if (!split.empty()) {
    const Shape& whole = sink.value(node.inputs[1]).type.shape;
    attributes.Set("axes", split.ToString());
    attributes.Set("ranks", int64_t{sink.mesh().size(split)});
    attributes.Set("begin", sink.box(whole, w).begin[0]);
    attributes.Set("whole", whole[0]);
  }
  std::vector<ValueId> inputs = {sink.Use(0, x), sink.Use(1, w), sink.Use(2, target)};
  if (operands.num_pairs == 2) {
    inputs.push_back(sink.Use(operands.pairs[1].x, x));
    inputs.push_back(sink.Use(operands.pairs[1].w, w));
  }
  if (operands.bias >= 0) {
    Sharding bias;
    bias.dims[0] = w.dims[0];
    bias.varying = w.varying;
    inputs.push_back(sink.Use(operands.bias, bias));
  }
  if (distills) {
    const auto whole_rows = [&](int operand) {
      Sharding u = sink.sharding(operand);
      for (const Axis axis : sink.mesh().axes().axes()) {
        if (target.DimOf(axis) != 0) continue;
        if (const int dim = u.DimOf(axis); dim >= 0) u = Gathered(u, dim, axis);
        u.varying |= axis;
      }
      return u;
    };
    inputs.push_back(sink.Use(operands.teacher_x, x));
    inputs.push_back(sink.Use(operands.teacher_w, whole_rows(operands.teacher_w)));
    if (operands.teacher_bias >= 0) {
      inputs.push_back(sink.Use(operands.teacher_bias, whole_rows(operands.teacher_bias)));
    }
  }
  if (operands.weight >= 0) inputs.push_back(sink.Use(operands.weight, target));
  const auto outputs =
      sink.Emit(node.op, std::move(inputs), std::move(attributes), std::vector<Sharding>(node.outputs.size(), loss));
  for (size_t k = 0; k < outputs.size(); ++k) sink.Deliver(static_cast<int>(k), outputs[k]);
}

Cost LossCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  AddDequantising(in, a, &cost);
  const LossOperands operands(a);
  // The weight is counted once, whether d_x reads it from a place of its own or not.
  if (operands.w_of_d_x >= 0) cost.read = cost.read - in[At(operands.w_of_d_x)].bytes();
  for (size_t p = 0; p < operands.num_pairs; ++p) {
    const Pair& pair = operands.pairs[p];
    const double gemm =
        2.0 * static_cast<double>(in[At(pair.x)].shape.elements()) * static_cast<double>(in[1].shape[0]);
    cost.flops.v += gemm * (1 + (pair.d_x >= 0) + (pair.d_w >= 0));
  }
  if (operands.teacher_x >= 0) {
    cost.flops.v +=
        2.0 * static_cast<double>(in[At(operands.teacher_x)].shape.elements()) * static_cast<double>(in[1].shape[0]);
  }
  // Statistics of every row, were all supervised.
  if (a.Has("axes"))
    cost.sent = {in[0].shape[0] * (a.Int("ranks") - 1) * LossStatisticsOf(a).count() * SizeOf(DType::kF32)};
  return cost;
}

Bytes Workspace(const Types& in, const Types&, const Attributes& a, int threads) {
  return LossScratchOf(in, a, threads).bytes;
}

// Each d_w over its acc_w, d_bias over acc_bias.
int Overwrites(const Attributes& a, int, int output) {
  const LossOperands operands(a);
  for (const Pair& pair : operands.pairs) {
    if (pair.d_w == output) return pair.acc;
  }
  if (operands.d_bias == output) return operands.acc_bias;
  return -1;
}

constexpr AttributeSpec kAttributes[] = {Flag("pair2"),
                                         Flag("weighted"),
                                         Flag("grad_x"),
                                         Flag("grad_w"),
                                         Flag("grad_x2"),
                                         Flag("grad_w2"),
                                         Flag("acc_w"),
                                         Flag("acc_w2"),
                                         OptionalSize("chunk"),
                                         Flag("dequantise"),
                                         OptionalDouble("softcap"),
                                         OptionalString("axes"),
                                         OptionalSize("ranks"),
                                         OptionalSize("begin"),
                                         OptionalSize("whole"),
                                         OptionalDouble("smoothing"),
                                         Flag("w_of_d_x"),
                                         Flag("bias"),
                                         Flag("grad_bias"),
                                         Flag("acc_bias"),
                                         Flag("correct")};
constexpr AttributeSpec kLogprobAttributes[] = {
    Flag("pair2"),          OptionalSize("chunk"), Flag("dequantise"),    OptionalDouble("softcap"), Flag("bias"),
    OptionalString("axes"), OptionalSize("ranks"), OptionalSize("begin"), OptionalSize("whole")};

constexpr AttributeSpec kDistillationAttributes[] = {Flag("pair2"),         Flag("weighted"),
                                                     Flag("grad_x"),        Flag("grad_w"),
                                                     Flag("grad_x2"),       Flag("grad_w2"),
                                                     Flag("acc_w"),         Flag("acc_w2"),
                                                     OptionalSize("chunk"), OptionalDouble("softcap"),
                                                     Flag("w_of_d_x"),      Flag("bias"),
                                                     Flag("grad_bias"),     Flag("acc_bias"),
                                                     Double("temperature"), Double("beta"),
                                                     Flag("teacher_bias"),  OptionalDouble("teacher_softcap")};

constexpr FlowOperand kLossIn[] = {{"Td"},
                                   {"Vd"},
                                   {"T"},
                                   {"Tr", false, "pair2"},
                                   {"Vr", false, "pair2"},
                                   {"V", false, "bias"},
                                   {"T", false, "weighted"},
                                   LinearIn("Vd", "acc_w"),
                                   LinearIn("Vr", "acc_w2"),
                                   LinearIn("V", "acc_bias"),
                                   {"Vd", false, "w_of_d_x"}};
constexpr uint16_t kLossFactors = Factors({0, 1, 2, 3, 4, 5, 6, 10});
constexpr FlowOutput kLossOut[] = {{"T", {kLossFactors}, nullptr, -1, true},
                                   {"T", {kLossFactors}, "correct", -1, true},
                                   {"Td", {kLossFactors}, "grad_x"},
                                   {"Vd", {kLossFactors, Factors({7})}, "grad_w"},
                                   {"Tr", {kLossFactors}, "grad_x2"},
                                   {"Vr", {kLossFactors, Factors({8})}, "grad_w2"},
                                   {"V", {kLossFactors, Factors({9})}, "grad_bias"}};
constexpr FlowRule kLossFlow = {.in = kLossIn, .out = kLossOut, .part = 'V', .part_axes = "axes"};

constexpr FlowOperand kLogprobIn[] = {
    {"Td"}, {"Vd"}, {"T"}, {"Tr", false, "pair2"}, {"Vr", false, "pair2"}, {"V", false, "bias"}};
constexpr FlowOutput kLogprobOut[] = {{"T", {Factors({0, 1, 2, 3, 4, 5})}, nullptr, -1, true}};
constexpr FlowRule kLogprobFlow = {.in = kLogprobIn, .out = kLogprobOut, .part = 'V', .part_axes = "axes"};

constexpr FlowOperand kDistillationIn[] = {{"Td"},
                                           {"Vd"},
                                           {"T"},
                                           {"Tr", false, "pair2"},
                                           {"Vr", false, "pair2"},
                                           {"V", false, "bias"},
                                           {"Te"},
                                           {"Ve"},
                                           {"V", false, "teacher_bias"},
                                           {"T", false, "weighted"},
                                           LinearIn("Vd", "acc_w"),
                                           LinearIn("Vr", "acc_w2"),
                                           LinearIn("V", "acc_bias"),
                                           {"Vd", false, "w_of_d_x"}};
constexpr uint16_t kDistillationFactors = Factors({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 13});
constexpr FlowOutput kDistillationOut[] = {{"T", {kDistillationFactors}, nullptr, -1, true},
                                           {"Td", {kDistillationFactors}, "grad_x"},
                                           {"Vd", {kDistillationFactors, Factors({10})}, "grad_w"},
                                           {"Tr", {kDistillationFactors}, "grad_x2"},
                                           {"Vr", {kDistillationFactors, Factors({11})}, "grad_w2"},
                                           {"V", {kDistillationFactors, Factors({12})}, "grad_bias"}};
constexpr FlowRule kDistillationFlow = {.in = kDistillationIn, .out = kDistillationOut};

ProductDims DimsOf(const Types& in) {
  return {.rows = in[0].shape[0], .columns = in[1].shape[0], .inner = in[0].shape[1]};
}

int64_t ChunksOf(const Types& in, const Attributes& a) {
  const int64_t chunk = a.IntOr("chunk", kDefaultLossChunk);
  return (in[0].shape[0] + chunk - 1) / chunk;
}

// Chunks smaller than the default, whose traffic measured rates have in them: every chunk goes over the weight for its
// logits and for d_x, and adds to all of d_w.
Bytes MovedAgain(const Types& in, const Attributes& a) {
  const Bytes w = DequantisesFirst(a) ? in[1].computed().bytes() : in[1].bytes();
  const int64_t more = ChunksOf(in, a) - ChunksOf(in, {});
  const Bytes d_w{a.Flag("grad_w") ? in[1].shape.elements() * SizeOf(DType::kF32) : 0};
  const int64_t products = a.Flag("grad_x") ? 2 : 1;
  return (w * products + d_w * 2) * std::max<int64_t>(more, 0);
}

void AddModelWork(const Types& in, const Attributes&, ModelWork* work) {
  work->weights += in[1].shape.elements();
}

struct MeasuredDims {
  int64_t T, D, V;
};
constexpr MeasuredDims kMeasuredDims[] = {{512, 256, 8192}, {512, 1024, 8192}, {1024, 512, 16384}};

std::vector<MeasuredCase> Measured(DType dtype) {
  std::vector<MeasuredCase> cases;
  for (const auto& [T, D, V] : kMeasuredDims) {
    for (const int64_t grad_w : {0, 1}) {
      cases.push_back({.inputs = {{dtype, {T, D}}, {dtype, {V, D}}, {DType::kI32, {T}}},
                       .attributes = {{"pair2", int64_t{0}},
                                      {"grad_x", int64_t{1}},
                                      {"grad_w", grad_w},
                                      {"grad_x2", int64_t{0}},
                                      {"grad_w2", int64_t{0}},
                                      {"acc_w", int64_t{0}},
                                      {"acc_w2", int64_t{0}}}});
    }
  }
  return cases;
}

// What the rules of all ops on the head's logits share.
constexpr OpRule LogitsRule(Result<Types> (*infer)(const Types&, const Attributes&),
                            std::span<const AttributeSpec> attributes, const FlowRule* flow) {
  return {.kind = OpKind::kProduct,
          .attributes = attributes,
          .infer = infer,
          .shard = ShardOperands,
          .flow = flow,
          .cost = LossCost,
          .workspace = Workspace,
          .on_logits = true,
          .product = DimsOf,
          .packed = {.input = 1, .layout = ElementLayout::kColumnPairs, .times = ChunksOf},
          .recompute = RecomputeCost::kExpensive,
          .moved_again = MovedAgain};
}

// And those with a loss to train by.
constexpr OpRule LossRule(OpRule rule) {
  rule.gradient = Gradient;
  rule.only_root = true;
  rule.overwrites = Overwrites;
  rule.packed.gradient = "grad_x";
  rule.packed.of_gradient = "w_of_d_x";
  rule.model_work = AddModelWork;
  return rule;
}

constexpr OpRule CrossEntropy() {
  OpRule rule = LossRule(LogitsRule(Infer, kAttributes, &kLossFlow));
  rule.moved_before = DequantisedBytes;
  rule.measured = Measured;
  return rule;
}
constexpr OpRule Distillation() {
  OpRule rule = LossRule(LogitsRule(InferDistillation, kDistillationAttributes, &kDistillationFlow));
  rule.measured_as = Op::kLinearCrossEntropy;
  return rule;
}
constexpr OpRule Logprob() {
  OpRule rule = LogitsRule(InferLogprob, kLogprobAttributes, &kLogprobFlow);
  rule.moved_before = DequantisedBytes;
  rule.measured_as = Op::kLinearCrossEntropy;
  return rule;
}

}  // namespace

constinit const OpRule kLinearCrossEntropyRule = CrossEntropy();
constinit const OpRule kLinearDistillationRule = Distillation();
constinit const OpRule kTokenLogprobRule = Logprob();

}  // namespace temper
