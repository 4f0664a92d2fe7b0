// The kernels of ours, one maker per op of kernel_list.inc, in the file of its name. Internal to backend/gpu.
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

// What kernels are made for; all of it outlives them.
struct Context {
  gpuStream_t stream;                 // on which they enqueue
  Stream* copies;                     // the same, for what a kernel must know on the host before it goes on
  Faults* faults;                     // where they say that data is wrong
  MatrixProducts* products;           // bound to the same stream
  PackedAttention* packed = nullptr;  // the same; nullptr where our own attention is all there is
  // Makes what a kernel exchanges numbers through with the ranks along these axes; may be empty.
  std::function<Result<std::unique_ptr<DeviceExchange>>(AxisSet)> exchange = nullptr;
};

// nullptr where the operands are of a kind it does not compute in (f64, f16).
#define TEMPER_GPU_KERNEL(op) std::unique_ptr<Kernel> Make##op(const KernelSpec& spec, const Context& context);
#define TEMPER_GPU_PRODUCT(op) Result<std::unique_ptr<Kernel>> Make##op(const KernelSpec& spec, const Context& context);
#include "backend/gpu/kernel_list.inc"

}  // namespace temper::gpu
