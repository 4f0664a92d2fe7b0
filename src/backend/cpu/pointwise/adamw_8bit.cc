// adamw_8bit: a pass over two arrays of f32 and two of blocks, 16 bytes per element plus the weight's. Rounding, a load
// from a table for each moment, takes longer than the bytes.
#include "backend/cpu/kernels.h"
#include "backend/cpu/pointwise/adamw_step.h"
#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"
#include "tensor/dynamic_blocks.h"

namespace temper {

std::unique_ptr<Kernel> MakeAdamw8bit(const KernelSpec& spec, Isa isa) {
  static_assert(kElementsPerRange % kDynamicBlock == 0);
  const bool with_weight = spec.attributes.Flag("weight");
  const DType weight_dtype = with_weight ? spec.outputs[3].dtype.dtype() : DType::kF32;
  if (weight_dtype != DType::kF32 && weight_dtype != DType::kBF16) return nullptr;
  return DispatchFloat(weight_dtype, [&]<class W>() {
    const int threads = spec.threads;
    const int64_t n = spec.inputs[0].shape.elements();
    const auto adamw = VectorsFor<W>(isa).adamw;
    return MakeKernel([=, attributes = spec.attributes](const KernelArgs& args) {
      const AdamwScalars scalars = PrepareAdamw(attributes, In<float>(args, 4), In<double>(args, 5));
      const float *const master = In<float>(args, 0), *const g = In<float>(args, 1);
      const std::byte *const m = args.inputs[2], *const v = args.inputs[3];
      float* const new_master = Out<float>(args, 0);
      std::byte *const new_m = args.outputs[1], *const new_v = args.outputs[2];
      W* const weight = with_weight ? Out<W>(args, 3) : nullptr;
      const DynamicBlocks &first = DynamicBlocks::Signed(), &second = DynamicBlocks::Unsigned();
      ParallelBlocks(threads, n, kElementsPerRange, [=, &scalars, &first, &second](int64_t begin, int64_t end) {
        alignas(64) float m_of_block[kDynamicBlock], v_of_block[kDynamicBlock];
        for (int64_t i = begin; i < end; i += kDynamicBlock) {
          const int64_t count = std::min(kDynamicBlock, end - i), at = i / kDynamicBlock * kDynamicBlockBytes;
          first.Read(m + at, count, m_of_block);
          second.Read(v + at, count, v_of_block);
          adamw(scalars, master + i, g + i, m_of_block, v_of_block, new_master + i, m_of_block, v_of_block,
                weight == nullptr ? nullptr : weight + i, count);
          first.Write(m_of_block, count, new_m + at);
          second.Write(v_of_block, count, new_v + at);
        }
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
