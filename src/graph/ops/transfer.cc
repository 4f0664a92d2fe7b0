// send, recv: one value from one stage of a pipeline to another. A send on one rank and a recv on another are one
// transfer: they carry the same tag, and the value's type.
#include <cmath>

#include "graph/ops/rules.h"
#include "tensor/mesh.h"

namespace temper {
namespace {

bool GoodPeer(const Attributes& a) {
  const auto axes = AxisSet::Parse(a.String("axes"));
  return axes.ok() && axes->axes().size() == 1 && a.Int("peer") <= 0x10000;
}

Result<Types> InferSend(const Types& in, const Attributes& a) {
  if (in.size() != 1 || !GoodPeer(a)) return BadOperands(Op::kSend, "one value, and a peer on one axis", in, a);
  return Types{};
}

Result<Types> InferRecv(const Types& in, const Attributes& a) {
  const std::vector<double>& dims = a.Doubles("shape");
  const Result<DType> dtype = ParseDType(a.String("dtype"));
  bool good = in.empty() && GoodPeer(a) && dtype.ok() && dims.size() <= Shape::kMaxRank;
  double elements = 1;
  for (const double d : dims) {
    good = good && d >= 0 && d == std::floor(d) && d <= 0x1p40;
    elements *= d;
  }
  if (!good || !(elements <= 0x1p47)) return BadOperands(Op::kRecv, "no operand, a peer, a dtype and a shape", in, a);
  TensorType type{.dtype = *dtype};
  for (const double d : dims) type.shape.Append(static_cast<int64_t>(d));
  return Types{type};
}

// What leaves is counted where it leaves.
Cost SendCost(const Types& in, const Types&, const Attributes&) {
  return {.read = in[0].bytes(), .sent = in[0].bytes()};
}
Cost RecvCost(const Types&, const Types& out, const Attributes&) {
  return {.written = out[0].bytes()};
}

constexpr AttributeSpec kSendAttributes[] = {String("axes"), Size("peer"), Size("tag"), Flag("background")};
constexpr AttributeSpec kRecvAttributes[] = {String("axes"),  Size("peer"),     Size("tag"),
                                             String("dtype"), Doubles("shape"), Flag("background")};

}  // namespace

const OpRule kSendRule = {
    .kind = OpKind::kCollective, .attributes = kSendAttributes, .infer = InferSend, .cost = SendCost};
const OpRule kRecvRule = {
    .kind = OpKind::kCollective, .attributes = kRecvAttributes, .infer = InferRecv, .cost = RecvCost};

}  // namespace temper
