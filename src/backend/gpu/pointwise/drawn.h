// Kernels that draw a number for every element by its place in the batch (graph/ops/draws.h, base/philox.h), the same
// bits as on the CPU. Floor: bytes of x and y; ten rounds of Philox per four elements hide behind them.
#pragma once

#include "backend/gpu/launch.h"
#include "base/philox.h"
#include "graph/ops/draw_places.h"

namespace temper::gpu {

struct Draws {
  uint32_t x[4];
  // x[i]: an index that is not known at compile time would put x into local memory.
  __device__ uint32_t At(uint32_t i) const { return i < 2 ? (i == 0 ? x[0] : x[1]) : (i == 2 ? x[2] : x[3]); }
};

__device__ inline Draws PhiloxOf(uint64_t key, uint64_t step, uint64_t index) {
  uint32_t key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  uint32_t c0 = static_cast<uint32_t>(index), c1 = static_cast<uint32_t>(index >> 32);
  uint32_t c2 = static_cast<uint32_t>(step), c3 = static_cast<uint32_t>(step >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kPhiloxMultiplier0} * c0, p1 = uint64_t{kPhiloxMultiplier1} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key1;
    c3 = static_cast<uint32_t>(p0);
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  return {{c0, c1, c2, c3}};
}

// kDealt: rows are dealt to ranks (tensor/context_part.h), or lie apart in the batch (graph/ops/draw_places.h).
template <class T, bool kDealt, class Of>
struct Drawn {
  const T* x;
  const int64_t* rng_3;
  T* y;
  uint64_t name_hash;
  int64_t C;                      // columns of x,
  uint64_t row, column, columns;  // which begin there in a whole of so many columns
  DrawPlaces places;
  Of of;  // of(x, draw)

  template <int kCount>
  __device__ void Run(int64_t i) const {
    const uint64_t key = MixedKey({.seed = static_cast<uint64_t>(rng_3[kRngSeed]), .name_hash = name_hash, .step = 0});
    const auto step = static_cast<uint64_t>(rng_3[kRngStep]);
    const auto first_token = static_cast<uint64_t>(rng_3[kRngFirstToken]);
    float u[kCount];
    Load(x + i, u);
    int64_t t = i / C, c = i - t * C;  // divided once: a division costs as much as the draws
    const auto of_row = [&] {          // the place of x[t, 0]
      uint64_t token = row + static_cast<uint64_t>(t);
      if constexpr (kDealt) token = static_cast<uint64_t>(places.PlaceOf(static_cast<int64_t>(token)));
      return (first_token + token) * columns + column;
    };
    uint64_t begin = of_row();
    const uint64_t first = begin + static_cast<uint64_t>(c);
    if (kCount % 4 == 0 && first % 4 == 0 && c + kCount <= C) {  // almost all: whole draws of one row
      for (int k = 0; k + 4 <= kCount; k += 4) {
        const Draws draws = PhiloxOf(key, step, first / 4 + static_cast<uint64_t>(k / 4));
        for (int j = 0; j < 4; ++j) u[k + j] = of(u[k + j], draws.x[j]);
      }
    } else {
      Draws draws;
      uint64_t drawn = ~uint64_t{0};  // the counter of `draws`
      for (int k = 0; k < kCount; ++k, ++c) {
        if (c == C) {
          c = 0;
          ++t;
          begin = of_row();
        }
        const uint64_t place = begin + static_cast<uint64_t>(c);
        if (place / 4 != drawn) {
          drawn = place / 4;
          draws = PhiloxOf(key, step, drawn);
        }
        u[k] = of(u[k], draws.At(static_cast<uint32_t>(place % 4)));
      }
    }
    Store(y + i, u);
  }
};

template <class T, bool kDealt, class Of>
std::unique_ptr<Kernel> MakeDrawnOf(const KernelSpec& spec, const Context& context, const Of& of) {
  const int64_t n = spec.inputs[0].shape.elements(), C = spec.inputs[0].shape.columns();
  const Drawn<T, kDealt, Of> made = {.C = C,
                                     .row = static_cast<uint64_t>(spec.attributes.IntOr("row", 0)),
                                     .column = static_cast<uint64_t>(spec.attributes.IntOr("column", 0)),
                                     .columns = static_cast<uint64_t>(spec.attributes.IntOr("columns", C)),
                                     .places = DrawPlacesOf(spec.attributes),
                                     .of = of};
  return MakeKernel([=, stream = context.stream](const KernelArgs& args) {
    Drawn<T, kDealt, Of> drawn = made;
    drawn.x = In<T>(args, 0);
    drawn.rng_3 = In<int64_t>(args, 1);
    drawn.y = Out<T>(args, 0);
    drawn.name_hash = args.rng_name_hash;
    return Map<kPack<T>>(n, drawn, stream);
  });
}

// nullptr for types without a kernel.
template <class Of>
std::unique_ptr<Kernel> MakeDrawn(const KernelSpec& spec, const Context& context, const Of& of) {
  if (!IsCompute(spec.inputs[0])) return nullptr;
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() {
    return spec.attributes.Has("packed_row") ? MakeDrawnOf<T, true>(spec, context, of)
                                             : MakeDrawnOf<T, false>(spec, context, of);
  });
}

}  // namespace temper::gpu
