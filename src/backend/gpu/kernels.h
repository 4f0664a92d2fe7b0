// The kernels of ours, one maker per op, in the file of its name. Internal to backend/gpu.
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
std::unique_ptr<Kernel> MakeAdd(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeCast(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeSliceRows(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeRelu(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeReluBackward(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeGelu(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeGeluBackward(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeSwiglu(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeSwigluBackward(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeDropout(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeRmsNorm(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeRmsNormBackward(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeLayerNorm(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeLayerNormBackward(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeRopeTable(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeRope(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeEmbedding(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeEmbeddingBackward(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeAttention(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeAttentionBackward(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeAttentionStep(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeAttentionStepBackward(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeAttentionCached(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeSumRows(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeSumSquares(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeSumScalars(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeClip(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeAdamw(const KernelSpec& spec, const Context& context);
std::unique_ptr<Kernel> MakeSgd(const KernelSpec& spec, const Context& context);

// Made of matrix products, which may be refused by whoever computes them.
Result<std::unique_ptr<Kernel>> MakeLinear(const KernelSpec& spec, const Context& context);
Result<std::unique_ptr<Kernel>> MakeLinearDx(const KernelSpec& spec, const Context& context);
Result<std::unique_ptr<Kernel>> MakeLinearDw(const KernelSpec& spec, const Context& context);
Result<std::unique_ptr<Kernel>> MakeLinearCrossEntropy(const KernelSpec& spec, const Context& context);

}  // namespace temper::gpu
