#include "backend/gpu/products/device_product_timer.h"

#include <algorithm>

#include "base/philox.h"
#include "device/enqueued_seconds.h"

namespace temper::gpu {
namespace {

// A prime: no two rows of a matrix are alike.
constexpr size_t kPiece = 131071;
constexpr size_t kAlignment = 256;

// A kernel of a product that takes a millisecond is timed in 10 ms.
constexpr TimedSpans kTimed = {.spans = 3, .runs = 2};

}  // namespace

Result<ProductOperands> DeviceProductTimer::Draw(const ProductShape& shape) {
  size_t bytes = 0;
  const auto place = [&](int64_t elements, DType dtype) {
    std::byte* const at = memory_.data() + bytes;
    bytes += (static_cast<size_t>(elements * SizeOf(dtype)) + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  ProductOperands operands = {};
  operands.a = place(shape.m * shape.k, shape.dtype);
  operands.b = place(shape.n * shape.k, shape.dtype);
  if (shape.bias) operands.bias = place(shape.n, shape.dtype);
  operands.out = place(shape.m * shape.n, shape.out_dtype);
  if (shape.acc) operands.acc = operands.out;
  if (bytes > memory_.size()) return OutOfMemory("too little memory for the operands of " + NameOf(shape));
  if (piece_.empty()) {
    for (size_t i = 0; i < kPiece; ++i) piece_.push_back(ToBF16(static_cast<float>(NormalAt({.seed = 1}, i))));
  }
  // Fills the whole range again, because it holds results of the last shape. Two neighbouring bf16 are also a sensible
  // f32: the second is its upper half.
  TEMPER_RETURN_IF_ERROR(Fill(piece_, bytes));
  return operands;
}

Result<Seconds> DeviceProductTimer::Time(const std::function<Status()>& enqueue) {
  return EnqueuedSeconds(device_, enqueue, kTimed);
}

Status DeviceProductTimer::Clear() {
  const std::vector<bf16> zeros(kPiece);
  return Fill(zeros, used_);
}

Status DeviceProductTimer::Fill(const std::vector<bf16>& piece, size_t bytes) {
  used_ = std::max(used_, bytes);
  size_t filled = std::min(bytes, piece.size() * sizeof(bf16));
  Stream& stream = device_.stream();
  TEMPER_RETURN_IF_ERROR(stream.CopyToDevice(std::as_bytes(std::span(piece)).first(filled), memory_.data()));
  while (filled < bytes) {
    const size_t more = std::min(filled, bytes - filled);
    TEMPER_RETURN_IF_ERROR(stream.Copy(memory_.data(), memory_.data() + filled, Bytes{static_cast<int64_t>(more)}));
    filled += more;
  }
  return stream.Synchronize();
}

}  // namespace temper::gpu
