// dropout: the draws are functions of the element's index (base/philox.h), so threads take ranges of whole draw groups.
#include <algorithm>
#include <cmath>

#include "backend/cpu/kernels.h"
#include "backend/cpu/range_kernel.h"
#include "backend/cpu/team.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/philox.h"

namespace temper {

std::unique_ptr<Kernel> MakeDropout(const KernelSpec& spec, Isa isa) {
  if (!AllFast({spec.inputs[0], spec.outputs[0]})) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    const int threads = spec.threads;
    const int64_t n = spec.inputs[0].shape.elements();
    const int64_t columns = spec.inputs[0].shape.columns();
    const double p = spec.attributes.Double("p");
    const auto dropout = VectorsFor<T>(isa).dropout;
    return MakeKernel([=](const KernelArgs& args) {
      const T* const x = In<T>(args, 0);
      const int64_t* const rng = In<int64_t>(args, 1);
      T* const y = Out<T>(args, 0);
      const RngKey key{.seed = static_cast<uint64_t>(rng[kRngSeed]),
                       .name_hash = args.rng_name_hash,
                       .step = static_cast<uint64_t>(rng[kRngStep])};
      const uint64_t mixed = MixedKey(key);
      DropoutDraws draws{.step0 = static_cast<uint32_t>(key.step), .step1 = static_cast<uint32_t>(key.step >> 32)};
      for (uint32_t round = 0; round < 10; ++round) {
        draws.keys[round][0] = static_cast<uint32_t>(mixed) + round * kPhiloxWeyl0;
        draws.keys[round][1] = static_cast<uint32_t>(mixed >> 32) + round * kPhiloxWeyl1;
      }
      // u >= p with u = k 2^-24 is k >= ceil(p 2^24): the product is exact in double.
      draws.threshold = static_cast<uint32_t>(std::ceil(p * 0x1.0p24));
      draws.scale = static_cast<float>(1 / (1 - p));
      const int64_t first = rng[kRngFirstToken] * columns;
      // Up to where draws begin at a lane: nothing, unless an odd row length meets an odd width.
      const int64_t head = std::min(n, (kRangeAlignment - first % kRangeAlignment) % kRangeAlignment);
      for (int64_t i = 0; i < head; ++i) {
        const bool kept = UniformAt(key, static_cast<uint64_t>(first + i)) >= p;
        y[i] = FromFloat<T>(kept ? ToFloat(x[i]) * draws.scale : 0.0f);
      }
      ParallelBlocks(threads, n - head, kElementsPerRange, [=, &draws](int64_t begin, int64_t end) {
        dropout(draws, x + head + begin, y + head + begin, first + head + begin, end - begin);
      });
      return OkStatus();
    });
  });
}

}  // namespace temper
