#include "backend/cpu/reference/reference.h"

#include <bit>
#include <cmath>
#include <string>

#include "backend/cpu/reference/call.h"
#include "graph/op_table.h"
#include "graph/rule.h"

namespace temper {
namespace reference {
namespace {

// f32 nearest to x, except that an inexact result has an odd last bit: rounding it again to a format at least two bits
// shorter gives what rounding x itself would (Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums").
float RoundToOdd(double x) {
  const float nearest = static_cast<float>(x);
  if (static_cast<double>(nearest) == x) return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(x)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1);
}

template <class T>
T* At(std::byte* data, int64_t i) {
  return reinterpret_cast<T*>(data) + i;
}

}  // namespace

bf16 RoundToBF16(double x) {
  return ToBF16(RoundToOdd(x));
}
f16 RoundToF16(double x) {
  return ToF16(RoundToOdd(x));
}

double Operand::OfAnyType(int64_t i) const {
  if (type_->packed()) {
    const PackedPanels panels(type_->layout, rows(), columns());
    return ToFloat(*At<bf16>(data_ + panels.Offset(i / columns(), i % columns()), 0));
  }
  if (type_->dtype.quantised()) {
    const int64_t n = columns();
    return ToFloat(type_->dtype.Number(data_ + i / n * type_->dtype.RowBytes(n), n, i % n));
  }
  switch (type_->dtype) {
    case DType::kF32:
      return *At<float>(data_, i);
    case DType::kBF16:
      return ToFloat(*At<bf16>(data_, i));
    case DType::kF16:
      return ToFloat(*At<f16>(data_, i));
    case DType::kF64:
      return *At<double>(data_, i);
    case DType::kI32:
      return *At<int32_t>(data_, i);
    case DType::kI64:
      return static_cast<double>(*At<int64_t>(data_, i));
    case DType::kU8:
      return *At<uint8_t>(data_, i);
  }
  return 0;
}

int64_t Operand::Int(int64_t i) const {
  TEMPER_CHECK(type_->dtype == DType::kI32 || type_->dtype == DType::kI64) << type_->ToString();
  return type_->dtype == DType::kI32 ? *At<int32_t>(data_, i) : *At<int64_t>(data_, i);
}

double Dot(const Operand& a, int64_t a_at, const Operand& b, int64_t b_at, int64_t n) {
  double dot = 0;
  for (int64_t e = 0; e < n; ++e) dot += a[a_at + e] * b[b_at + e];
  return dot;
}

void Operand::Store(int64_t i, double x) const {
  if (type_->packed()) {
    const PackedPanels panels(type_->layout, rows(), columns());
    *At<bf16>(data_ + panels.Offset(i / columns(), i % columns()), 0) = RoundToBF16(x);
    return;
  }
  switch (type_->dtype) {
    case DType::kF32:
      *At<float>(data_, i) = static_cast<float>(x);
      return;
    case DType::kBF16:
      *At<bf16>(data_, i) = RoundToBF16(x);
      return;
    case DType::kF16:
      *At<f16>(data_, i) = RoundToF16(x);
      return;
    case DType::kF64:
      *At<double>(data_, i) = x;
      return;
    default:
      TEMPER_CHECK(false) << "a reference kernel cannot write " << type_->ToString();
  }
}

#define TEMPER_KERNEL_OP(name) Status name(const Call& call);
#include "graph/op_list.inc"

namespace {

using Function = Status (*)(const Call&);

constexpr OpTable<Function> kTwins = {
#define TEMPER_KERNEL_OP(name) {Op::k##name, name},
#include "graph/op_list.inc"
};

class ReferenceKernel final : public Kernel {
 public:
  ReferenceKernel(const KernelSpec& spec, Function function, std::unique_ptr<Exchange> exchange)
      : spec_(spec), function_(function), exchange_(std::move(exchange)) {}
  Status Run(const KernelArgs& args) override { return function_(Call(spec_, args, exchange_.get(), scratch_)); }

 private:
  const KernelSpec spec_;
  const Function function_;
  const std::unique_ptr<Exchange> exchange_;
  std::vector<double> scratch_;
};

class Table final : public KernelTable {
 public:
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override { return MakeReferenceKernel(spec, nullptr); }

 private:
  const std::string name_ = "cpu reference";
};

}  // namespace
}  // namespace reference

Result<std::unique_ptr<Kernel>> MakeReferenceKernel(const KernelSpec& spec, std::unique_ptr<Exchange> exchange) {
  const reference::Function function = reference::kTwins[spec.op];
  if (function == nullptr) return Unsupported(std::string(ToString(spec.op)) + " is not carried out by a kernel");
  if ((spec.op == Op::kAttention || spec.op == Op::kAttentionBackward) && spec.attributes.Has("axes")) {
    return Unsupported(std::string(ToString(spec.op)) + " over ranks has to be made steps of a ring first");
  }
  if (IsLoss(spec.op) && spec.attributes.Has("axes") && exchange == nullptr) {
    return Unsupported(std::string(ToString(spec.op)) + " over a shared vocabulary needs a communicator between ranks");
  }
  return std::unique_ptr<Kernel>(std::make_unique<reference::ReferenceKernel>(spec, function, std::move(exchange)));
}

KernelTable& ReferenceKernels() {
  static reference::Table table;
  return table;
}

}  // namespace temper
