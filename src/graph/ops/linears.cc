// Linears: y_n = scale * x w_n^T for two or three weights that share x, as one product: the A of adapters on q, k and
// v, or on gate and up. Each is too thin to pay for reading x alone. compile/step/fuse.h makes them after the graph has
// been partitioned, so there is no sharding rule.
#include <algorithm>

#include "base/check.h"
#include "graph/ops/linears_scratch.h"
#include "graph/ops/matrix_product.h"
#include "graph/ops/rules.h"

namespace temper {
namespace {

int CountOf(const Attributes& a) {
  return a.Flag("third") ? 3 : 2;
}

// Rows of the weights, or columns of the products' results: all together.
int64_t RowsOf(std::span<const TensorType> weights) {
  int64_t rows = 0;
  for (const TensorType& w : weights) rows += w.shape[0];
  return rows;
}
int64_t ColumnsOf(std::span<const TensorType> results) {
  int64_t columns = 0;
  for (const TensorType& y : results) columns += y.shape[1];
  return columns;
}

bool AreMatrices(const Types& in) {
  for (const TensorType& t : in) {
    if (!IsMatrix(t) || !IsFloat(t)) return false;
  }
  return true;
}

Result<Types> Infer(const Types& in, const Attributes& a) {
  const auto n = static_cast<size_t>(CountOf(a));
  bool fits = in.size() == 1 + n && AreMatrices(in);
  Types out;
  for (size_t i = 1; fits && i <= n; ++i) {
    fits = in[i].dtype == in[0].dtype && in[i].shape[1] == in[0].shape[1];
    out.push_back({in[0].dtype, {in[0].shape[0], in[i].shape[0]}});
  }
  if (!fits) return BadOperands(Op::kLinears, "(x_TI, w1_PI, w2_QI, [w3_RI])", in, a);
  return out;
}

Result<Types> InferDx(const Types& in, const Attributes& a) {
  const auto n = static_cast<size_t>(CountOf(a));
  bool fits = in.size() == 2 * n + a.Flag("acc") && AreMatrices(in);
  TensorType d_x;
  if (fits) d_x = {in[0].dtype, {in[0].shape[0], in[n].shape[1]}};
  for (size_t i = 0; fits && i < n; ++i) {
    const TensorType &d_y = in[i], &w = in[n + i];
    fits = d_y.dtype == d_x.dtype && w.dtype == d_x.dtype && d_y.shape[0] == d_x.shape[0] &&
           d_y.shape[1] == w.shape[0] && w.shape[1] == d_x.shape[1];
  }
  if (!fits || (a.Flag("acc") && !(in.back() == d_x))) {
    return BadOperands(Op::kLinearsDx, "(d_y1_TP, d_y2_TQ, [d_y3_TR], w1_PI, w2_QI, [w3_RI], [acc_TI])", in, a);
  }
  return Types{d_x};
}

Result<Types> InferDw(const Types& in, const Attributes& a) {
  const auto n = static_cast<size_t>(CountOf(a));
  bool fits = in.size() == n + 1 + (a.Flag("acc") ? n : 0) && AreMatrices(in);
  Types out;
  for (size_t i = 0; fits && i < n; ++i) {
    const TensorType &d_y = in[i], &x = in[n];
    out.push_back({GradientDType(x.dtype), {d_y.shape[1], x.shape[1]}});
    fits = d_y.dtype == x.dtype && d_y.shape[0] == x.shape[0] && (!a.Flag("acc") || in[n + 1 + i] == out.back());
  }
  if (!fits) {
    return BadOperands(Op::kLinearsDw, "(d_y1_TP, d_y2_TQ, [d_y3_TR], x_TI, [acc1_PI, acc2_QI, [acc3_RI]])", in, a);
  }
  return out;
}

void Gradient(GradientSink& sink) {
  const Node& node = sink.node();
  TEMPER_CHECK(!node.attributes.Has("scale")) << "adapters are joined with their products after differentiation";
  const int n = static_cast<int>(node.outputs.size());
  // One of a single product is that of `linear`.
  const auto attributes = [](size_t count, bool acc) {
    Attributes a = {{"acc", int64_t{acc}}};
    if (count > 1) a.Set("third", int64_t{count == 3});
    return a;
  };
  std::vector<ValueId> d_ys, ws;
  for (int i = 0; i < n; ++i) {
    if (sink.OutputGradient(i) == kNoValue) continue;
    d_ys.push_back(sink.OutputGradient(i));
    ws.push_back(node.inputs[static_cast<size_t>(1 + i)]);
  }
  std::vector<int> left;  // weights whose gradients are to be made
  for (int i = 1; i <= n; ++i) {
    if (sink.OutputGradient(i - 1) != kNoValue && sink.Needs(i)) left.push_back(i);
  }
  while (!left.empty()) {
    // At once: gradients that all begin here, or all add to earlier ones. A weight's second one adds to its first.
    const bool acc = sink.Pending(left[0]) != kNoValue;
    std::vector<int> now, later;
    for (const int i : left) {
      const ValueId weight = node.inputs[static_cast<size_t>(i)];
      const bool again = std::any_of(now.begin(), now.end(),
                                     [&](int other) { return node.inputs[static_cast<size_t>(other)] == weight; });
      (again || (sink.Pending(i) != kNoValue) != acc ? later : now).push_back(i);
    }
    std::vector<ValueId> inputs;
    for (const int i : now) inputs.push_back(sink.OutputGradient(i - 1));
    inputs.push_back(node.inputs[0]);
    for (const int i : now) {
      if (acc) inputs.push_back(sink.Pending(i));
    }
    const Op op = now.size() == 1 ? Op::kLinearDw : Op::kLinearsDw;
    const auto d_ws = sink.Emit(op, std::move(inputs), attributes(now.size(), acc));
    for (size_t i = 0; i < now.size(); ++i) sink.Deliver(now[i], d_ws[i]);
    left = std::move(later);
  }
  if (!sink.Needs(0)) return;
  const ValueId acc = sink.Pending(0);
  const size_t count = d_ys.size();
  std::vector<ValueId> inputs = std::move(d_ys);
  inputs.insert(inputs.end(), ws.begin(), ws.end());
  if (acc != kNoValue) inputs.push_back(acc);
  const Op op = count == 1 ? Op::kLinearDx : Op::kLinearsDx;
  sink.Deliver(0, sink.Emit(op, std::move(inputs), attributes(count, acc != kNoValue))[0]);
}

// Of all results together, as one product: the weights' rows are side by side. What `acc` adds can be told from the
// number of operands.
ProductDims DimsOf(const Types& in) {
  return {.rows = in[0].shape[0], .columns = RowsOf(std::span(in).subspan(1)), .inner = in[0].shape[1]};
}
ProductDims DxDimsOf(const Types& in) {
  const size_t n = in.size() / 2;
  return {.rows = in[0].shape[0], .columns = in[n].shape[1], .inner = ColumnsOf(std::span(in).first(n))};
}
ProductDims DwDimsOf(const Types& in) {
  const size_t n = in.size() == 4 || in.size() == 7 ? 3 : 2;
  return {.rows = ColumnsOf(std::span(in).first(n)), .columns = in[n].shape[1], .inner = in[0].shape[0]};
}

// The thin operands, T x rows, and the weights, rows x I: copied side by side before the product, or to their places
// after it. A GPU launches two kernels for that, of which the forecast prices one (OpRule::moved_before).
Bytes CopiedOf(int64_t T, int64_t I, int64_t rows, DType dtype, DType weight_dtype) {
  return {2 * rows * (T * SizeOf(dtype) + I * SizeOf(weight_dtype))};
}
Bytes Copied(const Types& in, const Attributes&) {
  const ProductDims d = DimsOf(in);
  return CopiedOf(d.rows, d.inner, d.columns, in[0].dtype.compute(), in[0].dtype.compute());
}
Bytes DxCopied(const Types& in, const Attributes&) {
  const ProductDims d = DxDimsOf(in);
  return CopiedOf(d.rows, d.columns, d.inner, in[0].dtype.compute(), in[0].dtype.compute());
}
Bytes DwCopied(const Types& in, const Attributes&) {
  const ProductDims d = DwDimsOf(in);
  return CopiedOf(d.inner, d.columns, d.rows, in[0].dtype.compute(), GradientDType(in[0].dtype));
}

template <ProductDims (*Dims)(const Types&), Bytes (*CopiedBytes)(const Types&, const Attributes&)>
Cost ProductCost(const Types& in, const Types& out, const Attributes& a) {
  const ProductDims d = Dims(in);
  const int64_t copied = CopiedBytes(in, a).v / 2;
  Cost cost = ElementwiseCost(in, out, 0);
  cost.read += {copied};
  cost.written += {copied};
  cost.flops = {2.0 * static_cast<double>(d.rows) * static_cast<double>(d.columns) * static_cast<double>(d.inner)};
  return cost;
}

Bytes Workspace(const Types& in, const Types&, const Attributes&, int threads) {
  const ProductDims d = DimsOf(in);
  const DType dtype = in[0].dtype.compute();
  return LinearsScratch(d.rows, d.inner, d.columns, dtype, dtype,
                        MatrixProductScratch(d.rows, d.columns, d.inner, dtype, true, threads))
      .bytes;
}
Bytes DxWorkspace(const Types& in, const Types&, const Attributes&, int threads) {
  const ProductDims d = DxDimsOf(in);
  const DType dtype = in[0].dtype.compute();
  return LinearsScratch(d.rows, d.columns, d.inner, dtype, dtype,
                        MatrixProductScratch(d.rows, d.columns, d.inner, dtype, true, threads))
      .bytes;
}
Bytes DwWorkspace(const Types& in, const Types& out, const Attributes&, int threads) {
  const ProductDims d = DwDimsOf(in);
  const DType dtype = in[0].dtype.compute(), of_w = out[0].dtype.compute();
  return LinearsScratch(d.inner, d.columns, d.rows, dtype, of_w,
                        MatrixProductScratch(d.rows, d.columns, d.inner, of_w, false, threads))
      .bytes;
}

// What is added to comes last, and becomes the sum.
int DxOverwrites(const Attributes& a, int num_inputs, int output) {
  return output == 0 && a.Flag("acc") ? num_inputs - 1 : -1;
}
int DwOverwrites(const Attributes& a, int, int output) {
  return a.Flag("acc") ? CountOf(a) + 1 + output : -1;
}

void AddModelWork(const Types& in, const Attributes&, ModelWork* work) {
  for (size_t i = 1; i < in.size(); ++i) work->weights += in[i].shape.elements();
}

constexpr AttributeSpec kAttributes[] = {Flag("third"), OptionalDouble("scale")};
constexpr AttributeSpec kBackwardAttributes[] = {Flag("acc"), Flag("third")};

constexpr FlowOperand kThreeIn[] = {LinearIn("TI"), LinearIn("PI"), LinearIn("QI"), LinearIn("RI")};
constexpr FlowOutput kThreeOut[] = {{"TP", {Factors({0, 1})}}, {"TQ", {Factors({0, 2})}}, {"TR", {Factors({0, 3})}}};
constexpr FlowRule kThree = {.in = kThreeIn, .out = kThreeOut};
constexpr FlowOperand kIn[] = {LinearIn("TI"), LinearIn("PI"), LinearIn("QI")};
constexpr FlowOutput kOut[] = {{"TP", {Factors({0, 1})}}, {"TQ", {Factors({0, 2})}}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut, .flag = "third", .flagged = &kThree};

constexpr FlowOperand kThreeDxIn[] = {LinearIn("TP"), LinearIn("TQ"), LinearIn("TR"),       LinearIn("PI"),
                                      LinearIn("QI"), LinearIn("RI"), LinearIn("TI", "acc")};
constexpr FlowOutput kThreeDxOut[] = {{"TI", {Factors({0, 3}), Factors({1, 4}), Factors({2, 5}), Factors({6})}}};
constexpr FlowRule kThreeDx = {.in = kThreeDxIn, .out = kThreeDxOut};
constexpr FlowOperand kDxIn[] = {LinearIn("TP"), LinearIn("TQ"), LinearIn("PI"), LinearIn("QI"), LinearIn("TI", "acc")};
constexpr FlowOutput kDxOut[] = {{"TI", {Factors({0, 2}), Factors({1, 3}), Factors({4})}}};
constexpr FlowRule kDxFlow = {.in = kDxIn, .out = kDxOut, .flag = "third", .flagged = &kThreeDx};

constexpr FlowOperand kThreeDwIn[] = {LinearIn("TP"),       LinearIn("TQ"),        LinearIn("TR"),
                                      LinearIn("TI"),       LinearIn("PI", "acc"), LinearIn("QI", "acc"),
                                      LinearIn("RI", "acc")};
constexpr FlowOutput kThreeDwOut[] = {{"PI", {Factors({0, 3}), Factors({4})}},
                                      {"QI", {Factors({1, 3}), Factors({5})}},
                                      {"RI", {Factors({2, 3}), Factors({6})}}};
constexpr FlowRule kThreeDw = {.in = kThreeDwIn, .out = kThreeDwOut};
constexpr FlowOperand kDwIn[] = {LinearIn("TP"), LinearIn("TQ"), LinearIn("TI"), LinearIn("PI", "acc"),
                                 LinearIn("QI", "acc")};
constexpr FlowOutput kDwOut[] = {{"PI", {Factors({0, 2}), Factors({3})}}, {"QI", {Factors({1, 2}), Factors({4})}}};
constexpr FlowRule kDwFlow = {.in = kDwIn, .out = kDwOut, .flag = "third", .flagged = &kThreeDw};

}  // namespace

const OpRule kLinearsRule = {.kind = OpKind::kProduct,
                             .attributes = kAttributes,
                             .infer = Infer,
                             .gradient = Gradient,
                             .flow = &kFlow,
                             .cost = ProductCost<DimsOf, Copied>,
                             .workspace = Workspace,
                             .product = DimsOf,
                             .recompute = RecomputeCost::kExpensive,
                             .model_work = AddModelWork,
                             .moved_before = Copied,
                             .measured_as = Op::kLinear};
const OpRule kLinearsDxRule = {.kind = OpKind::kProduct,
                               .attributes = kBackwardAttributes,
                               .infer = InferDx,
                               .flow = &kDxFlow,
                               .cost = ProductCost<DxDimsOf, DxCopied>,
                               .workspace = DxWorkspace,
                               .overwrites = DxOverwrites,
                               .product = DxDimsOf,
                               .moved_before = DxCopied,
                               .measured_as = Op::kLinearDx};
const OpRule kLinearsDwRule = {.kind = OpKind::kProduct,
                               .attributes = kBackwardAttributes,
                               .infer = InferDw,
                               .flow = &kDwFlow,
                               .cost = ProductCost<DwDimsOf, DwCopied>,
                               .workspace = DwWorkspace,
                               .overwrites = DwOverwrites,
                               .product = DwDimsOf,
                               .moved_before = DwCopied,
                               .measured_as = Op::kLinearDw};

}  // namespace temper
