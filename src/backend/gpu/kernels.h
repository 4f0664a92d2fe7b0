// Our own kernels, one maker per op of kernel_list.inc, in the file of its name. Internal to backend/gpu.
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

// nullptr for operands of types that it does not compute in (f64, f16).
#define TEMPER_GPU_KERNEL(op) std::unique_ptr<Kernel> Make##op(const KernelSpec& spec, const Context& context);
#define TEMPER_GPU_PRODUCT(op) Result<std::unique_ptr<Kernel>> Make##op(const KernelSpec& spec, const Context& context);
#include "backend/gpu/kernel_list.inc"

}  // namespace temper::gpu
