// Shared by the kernels of memory-bound ops: typed operands and a kernel made of a function object.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>

#include "device/kernel.h"

namespace temper {

// Elements that a thread takes at a time in elementwise ops: 16 KiB of f32 per operand, so that the cost of a call is
// negligible and three or four operands stay in L1 and L2. A multiple of kRangeAlignment; sum_squares counts by it too.
inline constexpr int64_t kElementsPerRange = 4096;

template <class T>
const T* In(const KernelArgs& args, int i) {
  return reinterpret_cast<const T*>(args.inputs[i]);
}
template <class T>
T* Out(const KernelArgs& args, int i) {
  return reinterpret_cast<T*>(args.outputs[i]);
}

// Whether all these operands have the dtype of the first and there is a fast kernel for it.
inline bool AllFast(std::initializer_list<TensorType> types) {
  const DType first = types.begin()->dtype;
  if (first != DType::kF32 && first != DType::kBF16) return false;
  for (const TensorType& t : types) {
    if (t.dtype != first) return false;
  }
  return true;
}

template <class Body>
class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(Body body) : body_(std::move(body)) {}
  Status Run(const KernelArgs& args) override { return body_(args); }

 private:
  const Body body_;
};

// A kernel that runs `body(args) -> Status`. The body's captures are set once, here.
template <class Body>
std::unique_ptr<Kernel> MakeKernel(Body body) {
  return std::make_unique<FunctionKernel<Body>>(std::move(body));
}

}  // namespace temper
