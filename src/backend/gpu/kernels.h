// The surroundings of our own kernels. Each op of kernel_list.inc has a maker in the file of its name, `Make<Op>(const
// KernelSpec& spec, const Context& context)`: a std::unique_ptr<Kernel>, nullptr for operands of types that it does not
// compute in (f64, f16), or of a product a Result of one. gpu_kernels.cc alone declares them, by the list: others need
// not be compiled again when an op is added. Internal to backend/gpu.
#pragma once

#include <functional>
#include <memory>

#include "backend/gpu/gpu_api.h"
#include "device/device.h"
#include "device/device_exchange.h"
#include "device/kernel.h"

namespace temper::gpu {

class Faults;           // faults.h
class MatrixProducts;   // matrix_product.h
class PackedAttention;  // packed_attention.h

// The surroundings of kernels; all of it outlives them.
struct Context {
  gpuStream_t stream;                 // on which they enqueue
  Stream* copies;                     // the same, for what a kernel must know on the host before it continues
  Faults* faults;                     // where they report wrong data
  MatrixProducts* products;           // bound to the same stream
  PackedAttention* packed = nullptr;  // the same; nullptr if there is only our own attention
  // Makes a kernel's exchange of numbers with the ranks along these axes; may be empty.
  std::function<Result<std::unique_ptr<DeviceExchange>>(AxisSet)> exchange = nullptr;
};

}  // namespace temper::gpu
