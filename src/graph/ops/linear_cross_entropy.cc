// Linear + softmax cross-entropy in one pass over chunks of supervised rows: logits = x w^T [+ x2 w2^T], loss per
// token, and, because the loss is the root of the backward pass (seed 1 per supervised token), the gradients of the
// loss sum right away. Full logits [T, V] never exist. The second pair is a LoRA branch on the head: x2 = s *
// dropout(x) A^T, w2 = B.
//
// A chunk of few rows takes less scratch and more time. It changes no bit: a row's logits and d_x know nothing of other
// rows, and the products of d_w's sums are added one after the other, from chunk to chunk as within one.
//
// With `axes` w and w2 are rows [begin, begin + V) of a vocabulary of `whole` words, the rest of which the other ranks
// of a group hold. For every chunk of supervised rows they gather each row's maximum, sum of exponentials and target's
// logit (loss_scratch.h); all then have the same loss, each the gradients of its own logits: d_x is its term of a sum.
#include <fmt/core.h>

#include <algorithm>

#include "graph/ops/loss_scratch.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

size_t NumPairs(const Attributes& a) {
  return a.Flag("pair2") ? 2 : 1;
}
// Inputs: x, w, target, then x2, w2.
constexpr size_t kX[2] = {0, 3}, kW[2] = {1, 4};
constexpr size_t kTarget = 2;
constexpr const char* kGradX[2] = {"grad_x", "grad_x2"};
constexpr const char* kGradW[2] = {"grad_w", "grad_w2"};
constexpr const char* kAccW[2] = {"acc_w", "acc_w2"};

// Whether the attributes name a group and a part of a vocabulary that fit w_VD, or none.
bool GoodPart(const TensorType& w, const Attributes& a) {
  if (!a.Has("axes")) return a.IntOr("ranks", 0) == 0 && a.IntOr("begin", 0) == 0 && a.IntOr("whole", 0) == 0;
  const auto axes = AxisSet::Parse(a.String("axes"));
  const int64_t whole = a.IntOr("whole", 0), begin = a.IntOr("begin", 0);
  return axes.ok() && !axes->empty() && a.IntOr("ranks", 0) >= 2 && begin <= whole && w.shape[0] <= whole - begin;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const size_t pairs = NumPairs(a);
  const size_t fixed = pairs == 2 ? 5 : 3;
  bool good = in.size() == fixed + a.Flag("acc_w") + a.Flag("acc_w2");
  for (size_t p = 0; good && p < 2; ++p) {
    // Of a pair that is not there nothing can be wanted; only a gradient that is made can be added to one.
    good = (p < pairs || (!a.Flag(kGradX[p]) && !a.Flag(kGradW[p]))) && (a.Flag(kGradW[p]) || !a.Flag(kAccW[p]));
    if (!good || p >= pairs) continue;
    good = IsMatrix(in[kX[p]]) && IsFloat(in[kX[p]]) && IsMatrix(in[kW[p]]) && in[kX[p]].dtype == in[kW[p]].dtype &&
           in[kX[p]].dtype == in[0].dtype && in[kX[p]].shape[1] == in[kW[p]].shape[1] &&
           in[kX[p]].shape[0] == in[0].shape[0] && in[kW[p]].shape[0] == in[1].shape[0];
  }
  good = good && GoodPart(in[1], a);
  if (!good || !IsIndex(in[kTarget], in[0].shape[0])) {
    return BadOperands(Op::kLinearCrossEntropy, "(x_TD, w_VD, target_T, [x2_TR, w2_VR], [acc_w], [acc_w2])", in, a);
  }
  Types out = {{StatisticDType(in[0].dtype), {in[0].shape[0]}}};
  size_t next = fixed;
  for (size_t p = 0; p < pairs; ++p) {
    if (a.Flag(kGradX[p])) out.push_back(in[kX[p]]);
    if (!a.Flag(kGradW[p])) continue;
    out.push_back({GradientDType(in[0].dtype), in[kW[p]].shape});
    if (a.Flag(kAccW[p]) && !(in[next++] == out.back())) {
      return BadOperands(Op::kLinearCrossEntropy, "acc like d_w", in, a);
    }
  }
  return out;
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  std::vector<ValueId> inputs = node.inputs;
  Attributes attributes = node.attributes;
  std::vector<size_t> delivered;  // the input that each new output is the gradient of
  for (size_t p = 0; p < NumPairs(attributes); ++p) {
    if (sink.Needs(static_cast<int>(kX[p]))) {
      attributes.Set(kGradX[p], int64_t{1});
      delivered.push_back(kX[p]);
    }
    if (!sink.Needs(static_cast<int>(kW[p]))) continue;
    attributes.Set(kGradW[p], int64_t{1});
    delivered.push_back(kW[p]);
    if (const ValueId acc = sink.Pending(static_cast<int>(kW[p])); acc != kNoValue) {
      attributes.Set(kAccW[p], int64_t{1});
      inputs.push_back(acc);
    }
  }
  if (delivered.empty()) return;
  const auto outputs = sink.Extend(std::move(inputs), std::move(attributes));
  for (size_t i = 0; i < delivered.size(); ++i) sink.Deliver(static_cast<int>(delivered[i]), outputs[i]);
}

// The vocabulary may be split along tensor axes (attribute `axes`; `begin`: the first word of this rank's part): ranks
// then exchange the maximum and the sum of exponentials of every row. Else rows are dealt as they lie.
void ShardOperands(ShardingSink& sink) {
  const Node& node = sink.node();
  const bool pair2 = node.attributes.Flag("pair2");
  Sharding x = sink.Settled(sink.sharding(0)), w = sink.sharding(1), target = sink.sharding(2), loss = target;
  for (const Axis axis : x.split(1).axes()) x = Gathered(x, 1, axis);
  for (const Axis axis : sink.mesh().axes().axes()) {
    const int dim = w.DimOf(axis);
    if (target.DimOf(axis) == 0) {
      if (dim >= 0) w = Gathered(w, dim, axis);
      w.varying |= axis;
    } else if (dim == 0) {
      if (x.DimOf(axis) == 0) x = Gathered(x, 0, axis);
      x.varying |= axis;
    } else if (dim == 1) {
      return sink.Refuse(
          fmt::format("{} is split along its input dim over {}", sink.value(node.inputs[1]).name, ToString(axis)));
    } else if (x.DimOf(axis) == 0 || x.varying.Has(axis)) {
      return sink.Refuse(fmt::format("{} is whole along {}, over which its input is not",
                                     sink.value(node.inputs[1]).name, ToString(axis)));
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
  if (pair2) {
    inputs.push_back(sink.Use(3, x));
    inputs.push_back(sink.Use(4, w));
  }
  sink.Deliver(0, sink.Emit(Op::kLinearCrossEntropy, std::move(inputs), std::move(attributes), {loss})[0]);
}

Cost LossCost(const Types& in, const Types& out, const Attributes& a) {
  Cost cost = ElementwiseCost(in, out, 0);
  for (size_t p = 0; p < NumPairs(a); ++p) {
    const double gemm = 2.0 * static_cast<double>(in[kX[p]].shape.elements()) * static_cast<double>(in[1].shape[0]);
    cost.flops.v += gemm * (1 + a.Flag(kGradX[p]) + a.Flag(kGradW[p]));
  }
  // Statistics of every row, were all supervised.
  if (a.Has("axes")) cost.sent = {in[0].shape[0] * (a.Int("ranks") - 1) * kLossStatistics * SizeOf(DType::kF32)};
  return cost;
}

Bytes Workspace(const Types& in, const Types&, const Attributes& a, int threads) {
  return LossScratchOf(in, a, threads).bytes;
}

// Each d_w over its acc_w.
int Overwrites(const Attributes& a, int num_inputs, int output) {
  int next_output = 1, next_acc = num_inputs - a.Flag("acc_w") - a.Flag("acc_w2");
  for (size_t p = 0; p < NumPairs(a); ++p) {
    next_output += a.Flag(kGradX[p]);
    if (!a.Flag(kGradW[p])) continue;
    const int acc = a.Flag(kAccW[p]) ? next_acc++ : -1;
    if (next_output++ == output) return acc;
  }
  return -1;
}

constexpr AttributeSpec kAttributes[] = {Flag("pair2"),         Flag("grad_x"),        Flag("grad_w"),
                                         Flag("grad_x2"),       Flag("grad_w2"),       Flag("acc_w"),
                                         Flag("acc_w2"),        OptionalSize("chunk"), OptionalString("axes"),
                                         OptionalSize("ranks"), OptionalSize("begin"), OptionalSize("whole")};

constexpr FlowOperand kLossIn[] = {{"Td"},
                                   {"Vd"},
                                   {"T"},
                                   {"Tr", false, "pair2"},
                                   {"Vr", false, "pair2"},
                                   LinearIn("Vd", "acc_w"),
                                   LinearIn("Vr", "acc_w2")};
constexpr FlowOutput kLossOut[] = {{"T", {Factors({0, 1, 2, 3, 4})}, nullptr, -1, true},
                                   {"Td", {Factors({0, 1, 2, 3, 4})}, "grad_x"},
                                   {"Vd", {Factors({0, 1, 2, 3, 4}), Factors({5})}, "grad_w"},
                                   {"Tr", {Factors({0, 1, 2, 3, 4})}, "grad_x2"},
                                   {"Vr", {Factors({0, 1, 2, 3, 4}), Factors({6})}, "grad_w2"}};
constexpr FlowRule kLossFlow = {.in = kLossIn, .out = kLossOut, .part = 'V', .part_axes = "axes"};

ProductDims DimsOf(const Types& in) {
  return {.rows = in[0].shape[0], .columns = in[1].shape[0], .inner = in[0].shape[1]};
}

// Chunks smaller than the default, whose traffic measured rates have in them: every chunk goes over the weight for its
// logits and for d_x, and adds to all of d_w.
Bytes MovedAgain(const Types& in, const Attributes& a) {
  const int64_t rows = in[0].shape[0], chunk = a.IntOr("chunk", kDefaultLossChunk);
  const int64_t more = (rows + chunk - 1) / chunk - (rows + kDefaultLossChunk - 1) / kDefaultLossChunk;
  const Bytes d_w{a.Flag("grad_w") ? in[1].shape.elements() * SizeOf(DType::kF32) : 0};
  const int64_t products = a.Flag("grad_x") ? 2 : 1;
  return (in[1].bytes() * products + d_w * 2) * std::max<int64_t>(more, 0);
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

}  // namespace

const OpRule kLinearCrossEntropyRule = {.kind = OpKind::kProduct,
                                        .attributes = kAttributes,
                                        .infer = Infer,
                                        .gradient = Gradient,
                                        .shard = ShardOperands,
                                        .flow = &kLossFlow,
                                        .cost = LossCost,
                                        .workspace = Workspace,
                                        .overwrites = Overwrites,
                                        .product = DimsOf,
                                        .recompute = RecomputeCost::kExpensive,
                                        .model_work = AddModelWork,
                                        .moved_again = MovedAgain,
                                        .measured = Measured};

}  // namespace temper
