// Our own matrix products, on the emulator.
#include "backend/gpu/products/tile_products.h"

#include "backend/gpu/products/product_under_test.h"

#ifdef TEMPER_GPU_EMULATED
namespace temper::gpu {
namespace {

TEST(GpuTileProducts, GiveTheSumsOfAnyShapeAndLayout) {
  for (const ProductCase& c : kProductCases) {
    for (const simt::Machine& machine : {simt::Machine{.warp_size = 32}, simt::Machine{.warp_size = 64, .order = 3}}) {
      CheckProduct(c, *MakeTileProducts(&machine));
    }
  }
}

}  // namespace
}  // namespace temper::gpu
#endif
