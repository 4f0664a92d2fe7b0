// RowSquares: what an adapter adds to the sum of squares of each row of a frozen weight, for DoRA's norms (Liu et al.
// 2024; PEFT, DoraLinearLayer.get_weight_norm):
//   ||w + s b a||^2 = ||w||^2 + 2 s b (a w^T) + s^2 b (a a^T) b^T
// The first term does not change while adapters are trained: it comes as `acc`. The others take one product, of the
// rank of the adapter by w as other products read it: w may be packed or quantised, and b a is never made.
//
// No gradient: the norm is a constant to it, as in the paper (4.3) and in PEFT.
#include <fmt/core.h>

#include "graph/ops/matrix_product.h"
#include "graph/ops/quantised_weight.h"
#include "graph/ops/rules.h"
#include "graph/ops/sharding.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  const bool acc = a.Flag("acc");
  const bool good = in.size() == 3u + acc && IsMatrix(in[0]) && IsFloat(in[0]) && IsWeightFor(in[0], in[1]) &&
                    in[0].shape[1] == in[1].shape[1] &&
                    in[2] == TensorType{in[0].dtype, {in[1].shape[0], in[0].shape[0]}} && DequantiseFits(in[1], a);
  if (!good) return BadOperands(Op::kRowSquares, "(a_RI, w_OI, b_OR, [acc_O])", in, a);
  const TensorType q{StatisticDType(in[0].dtype), {in[1].shape[0]}};
  if (acc && !(in[3] == q)) return BadOperands(Op::kRowSquares, "acc_O like the squares", in, a);
  return Types{q};
}

// As the products of this block took a, w and b: no rank sends anything for this. Where the columns of w are split, so
// are those of a, and the squares are terms of a sum, to which `acc` is added once it is made.
void ShardSquares(ShardingSink& sink) {
  const Node& node = sink.node();
  const Sharding &a = sink.used(0), &w = sink.used(1), &b = sink.used(2);
  if (!a.dims[0].empty() || !b.dims[1].empty() || a.dims[1] != w.dims[1] || b.dims[0] != w.dims[0]) {
    return sink.Refuse(fmt::format("{} and its adapter are split differently, so that DoRA has no norms of their sum",
                                   sink.value(node.inputs[1]).name));
  }
  Sharding q{.partial = w.split(1), .varying = a.varying | w.varying | b.varying};
  q.dims[0] = w.dims[0];
  q.varying = q.varying - w.split();
  const bool later = node.attributes.Flag("acc") && !q.partial.empty();
  std::vector<ValueId> inputs = {sink.UseAgain(0), sink.UseAgain(1), sink.UseAgain(2)};
  Attributes attributes = node.attributes;
  if (later) attributes.Set("acc", int64_t{0});
  if (attributes.Flag("acc")) inputs.push_back(sink.Use(3, q));
  ValueId squares = sink.Emit(Op::kRowSquares, std::move(inputs), std::move(attributes), {q})[0];
  if (later) {
    Sharding whole = q;
    whole.partial = {};
    squares = sink.Convert(squares, whole);
    squares = sink.Emit(Op::kAdd, {squares, sink.Use(3, whole)}, {}, {whole})[0];
  }
  sink.Deliver(0, squares);
}

Cost CostOf(const Types& in, const Types& out, const Attributes& a) {
  const auto R = static_cast<double>(in[0].shape[0]), I = static_cast<double>(in[0].shape[1]),
             O = static_cast<double>(in[1].shape[0]);
  Cost cost = ElementwiseCost(in, out, 0);
  AddDequantising(in, a, &cost);
  cost.flops = {2 * R * (O * I + R * I + R * O)};
  return cost;
}

// Both products and b's transpose, in f32, and the scratch of the larger product.
Bytes Workspace(const Types& in, const Types&, const Attributes& a, int threads) {
  const int64_t R = in[0].shape[0], I = in[0].shape[1], O = in[1].shape[0];
  const Bytes with_w = MatrixProductScratch(R, O, I, DType::kF32, true, threads, in[1].packed());
  const Bytes with_a = MatrixProductScratch(R, R, I, DType::kF32, true, threads);
  const Bytes products = AlignUp(Bytes{R * O * 4}, 64) * 2 + AlignUp(Bytes{R * R * 4}, 64) + std::max(with_w, with_a);
  return DequantisesFirst(a) ? std::max(products, in[1].computed().bytes()) : products;
}

ProductDims DimsOf(const Types& in) {
  return {.rows = in[0].shape[0], .columns = in[1].shape[0], .inner = in[0].shape[1]};
}

constexpr AttributeSpec kAttributes[] = {Double("scale"), Flag("acc"), Flag("dequantise")};
constexpr FlowOperand kIn[] = {{"rI"}, {"OI"}, {"Or"}, LinearIn("O", "acc")};
constexpr FlowOutput kOut[] = {{"O", {Factors({0, 1, 2}), Factors({3})}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

}  // namespace

const OpRule kRowSquaresRule = {.kind = OpKind::kProduct,
                                .attributes = kAttributes,
                                .infer = Infer,
                                .detached = true,
                                .shard = ShardSquares,
                                .flow = &kFlow,
                                .cost = CostOf,
                                .workspace = Workspace,
                                .product = DimsOf,
                                .packed = {.input = 1, .layout = ElementLayout::kColumnPairs},
                                .moved_before = DequantisedBytes,
                                .measured_as = Op::kLinear};

}  // namespace temper
