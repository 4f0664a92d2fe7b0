#include "compile/rates/device_rates.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "graph/named_ops.h"

namespace temper {
namespace {

int64_t CeilDiv(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// The op whose rate is used for `op`.
Op MeasuredAs(Op op) {
  return RuleOf(op).measured_as.value_or(op);
}

size_t IsNarrow(OpClass op_class) {
  return op_class == OpClass::kNarrow ? 1 : 0;
}

// The same rates for all ops of a class.
DeviceRates UniformRates(Seconds launch, double bandwidth, double f32_peak, double bf16_peak) {
  DeviceRates rates;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const OpClass c : {OpClass::kProduct, OpClass::kNarrow, OpClass::kAttention, OpClass::kMemory}) {
      OpRate rate{.launch = launch, .bandwidth = {{KiB(1), bandwidth}}};
      if (c == OpClass::kProduct || c == OpClass::kAttention) {
        rate.flops_per_second = dtype == DType::kBF16 ? bf16_peak : f32_peak;
      }
      rates.SetClass(c, dtype, std::move(rate));
    }
  }
  return rates;
}

}  // namespace

DeviceRates TypicalHost() {
  return UniformRates({1e-6}, /*bandwidth=*/1e10, /*f32_peak=*/1e11, /*bf16_peak=*/5e11);
}

DeviceRates TypicalGpu() {
  constexpr double kF32Peak = 19.5e12, kBf16Peak = 312e12;
  DeviceRates rates = UniformRates({5e-6}, /*bandwidth=*/0.8 * 2.0e12, 0.6 * kF32Peak, 0.6 * kBf16Peak);
  const auto set = [&rates](DType dtype, double forward, double backward) {
    OpRate rate = rates.OfClass(OpClass::kAttention, dtype);
    rate.flops_per_second = forward;
    rates.SetClass(OpClass::kAttention, dtype, rate);
    rate.flops_per_second = backward * kNeededOfAttentionBackward;
    rates.SetOp(Op::kAttentionBackward, OpClass::kAttention, dtype, std::move(rate));
  };
  set(DType::kF32, 0.4 * kF32Peak, 0.4 * kF32Peak);
  set(DType::kBF16, 0.35 * kBf16Peak, 0.25 * kBf16Peak);
  return rates;
}

OpClass ClassOf(Op op, const Types& inputs) {
  const OpRule& rule = RuleOf(op);
  switch (rule.kind) {
    case OpKind::kProduct: {
      const ProductDims d = rule.product(inputs);
      return std::min({d.rows, d.columns, d.inner}) <= kNarrowSide ? OpClass::kNarrow : OpClass::kProduct;
    }
    case OpKind::kAttention:
      return OpClass::kAttention;
    case OpKind::kElementwise:
    case OpKind::kMemory:
      return OpClass::kMemory;
    case OpKind::kCollective:
      return OpClass::kCollective;
    case OpKind::kUnstated:
      break;
  }
  TEMPER_CHECK(false) << ToString(op) << " states no kind";
  return OpClass::kMemory;
}

double OpRate::BytesPerSecond(Bytes bytes) const {
  if (bytes <= bandwidth.front().bytes) return bandwidth.front().bytes_per_second;
  if (bytes >= bandwidth.back().bytes) return bandwidth.back().bytes_per_second;
  const auto above =
      std::upper_bound(bandwidth.begin(), bandwidth.end(), bytes, [](Bytes b, const Point& p) { return b < p.bytes; });
  const Point &low = *(above - 1), &high = *above;
  const double at = std::log(static_cast<double>(bytes.v) / static_cast<double>(low.bytes.v)) /
                    std::log(static_cast<double>(high.bytes.v) / static_cast<double>(low.bytes.v));
  return low.bytes_per_second * std::pow(high.bytes_per_second / low.bytes_per_second, at);
}

Flops WithIdleUnits(const TileShape& tile, const ProductDims& d, Flops flops) {
  if (tile.units == 0 || flops.v == 0) return flops;
  const int64_t tiles = CeilDiv(d.rows, tile.rows) * CeilDiv(d.columns, tile.columns);
  // Fewer tiles than units: each is split along the inner dim, as far as possible.
  const int64_t pieces = std::clamp<int64_t>(tile.units / tiles, 1, CeilDiv(d.inner, tile.shortest_inner));
  const int64_t waves = CeilDiv(tiles * pieces, tile.units);
  const double per_piece =
      2.0 * static_cast<double>(tile.rows * tile.columns) * static_cast<double>(d.inner) / static_cast<double>(pieces);
  const double of_result =
      2.0 * static_cast<double>(d.rows) * static_cast<double>(d.columns) * static_cast<double>(d.inner);
  // `flops` may be those of several products of these dims (the loss and its gradients).
  return {std::max(flops.v, flops.v / of_result * static_cast<double>(waves * tile.units) * per_piece)};
}

void DeviceRates::SetOp(Op op, OpClass op_class, DType dtype, OpRate rate) {
  ops_[static_cast<size_t>(op)][IsNarrow(op_class)][Column(dtype)] = std::move(rate);
}

void DeviceRates::SetClass(OpClass op_class, DType dtype, OpRate rate) {
  TEMPER_CHECK(op_class != OpClass::kCollective) << "a collective involves other devices";
  classes_[static_cast<size_t>(op_class)][Column(dtype)] = std::move(rate);
}

void DeviceRates::FillClasses() {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [c, op] : {std::pair{OpClass::kProduct, Op::kLinear},
                                {OpClass::kNarrow, Op::kLinear},
                                {OpClass::kAttention, Op::kAttention},
                                {OpClass::kMemory, Op::kAdd}}) {
      const OpRate* own = Own(op, c, dtype);
      if (own != nullptr && !OfClass(c, dtype).known()) SetClass(c, dtype, *own);
    }
  }
}

const OpRate* DeviceRates::Own(Op op, OpClass op_class, DType dtype) const {
  const OpKind kind = RuleOf(op).kind;
  const bool fits = kind == OpKind::kProduct     ? op_class == OpClass::kProduct || op_class == OpClass::kNarrow
                    : kind == OpKind::kAttention ? op_class == OpClass::kAttention
                                                 : op_class == OpClass::kMemory;
  const OpRate& rate = ops_[static_cast<size_t>(op)][IsNarrow(op_class)][Column(dtype)];
  return fits && rate.known() ? &rate : nullptr;
}

const OpRate& DeviceRates::OfClass(OpClass op_class, DType dtype) const {
  return classes_[static_cast<size_t>(op_class)][Column(dtype)];
}

const OpRate& DeviceRates::Of(Op op, OpClass op_class, DType dtype) const {
  const OpRate& own = ops_[static_cast<size_t>(MeasuredAs(op))][IsNarrow(op_class)][Column(dtype)];
  return own.known() ? own : OfClass(op_class, dtype);
}

OpSeconds DeviceRates::SecondsOf(Op op, const Types& inputs, const Types& outputs, const Attributes& attributes) const {
  const OpClass op_class = ClassOf(op, inputs);
  TEMPER_CHECK(op_class != OpClass::kCollective) << ToString(op) << " involves other ranks";
  const DType dtype =
      (inputs.empty() ? outputs : inputs)[0].dtype.compute();  // sum_scalars adds up none on some stages
  const OpRate& rate = Of(op, op_class, dtype);
  if (!rate.known()) return {};
  const OpRule& rule = RuleOf(op);
  const Cost cost = rule.cost(inputs, outputs, attributes);
  Bytes bytes = cost.read + cost.written;
  if (rule.moved_again != nullptr) bytes += rule.moved_again(inputs, attributes);
  const OpRate& pass = OfClass(OpClass::kMemory, dtype);  // unknown: what it moves counts at the op's own rate
  const Bytes before = rule.moved_before != nullptr && pass.known() ? rule.moved_before(inputs, attributes) : Bytes{};
  bytes = bytes - before;
  OpSeconds seconds{.launch = rate.launch, .memory = {static_cast<double>(bytes.v) / rate.BytesPerSecond(bytes)}};
  if (before > Bytes{}) {
    seconds.launch += pass.launch;
    seconds.memory += Seconds{static_cast<double>(before.v) / pass.BytesPerSecond(before)};
  }
  if (rate.flops_per_second > 0) {
    const Flops flops = rule.product != nullptr ? WithIdleUnits(tile_, rule.product(inputs), cost.flops) : cost.flops;
    seconds.arithmetic = {flops.v * (op_class == OpClass::kAttention ? attended_ : 1.0) / rate.flops_per_second};
  }
  return seconds;
}

}  // namespace temper
