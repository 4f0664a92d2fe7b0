// The fast kernels' factories, one per op: internal to backend/cpu. `spec` has passed the op's shape rule, isa >
// kScalar. Each returns nullptr where it has no kernel for these types on that instruction set; the reference kernel
// then serves.
#pragma once

#include <memory>

#include "backend/cpu/isa.h"
#include "device/communicator.h"
#include "device/kernel.h"

namespace temper {

// Any op: the switch over those below (cpu_backend.cc). nullptr on kScalar. `exchange`: with the ranks that share a
// vocabulary, for linear_cross_entropy with `axes`; taken where a kernel is returned.
std::unique_ptr<Kernel> MakeFastKernel(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&& exchange = nullptr);

// REQUIRES: isa > kScalar.
std::unique_ptr<Kernel> MakeLinear(const KernelSpec& spec, Isa isa);  // linear, linear_dx, linear_dw
std::unique_ptr<Kernel> MakeLinearCrossEntropy(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&& exchange);
std::unique_ptr<Kernel> MakeAttention(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeAttentionBackward(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeAttentionCached(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeAttentionStep(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeAttentionStepBackward(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeEmbedding(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeEmbeddingBackward(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeAdd(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeCast(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeSliceRows(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeRmsNorm(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeRmsNormBackward(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeLayerNorm(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeLayerNormBackward(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeRopeTable(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeRope(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeActivation(const KernelSpec& spec, Isa isa);  // swiglu, relu, gelu and their backwards
std::unique_ptr<Kernel> MakeDropout(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeSumRows(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeSumSquares(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeAdamw(const KernelSpec& spec, Isa isa);
std::unique_ptr<Kernel> MakeSgd(const KernelSpec& spec, Isa isa);

}  // namespace temper
