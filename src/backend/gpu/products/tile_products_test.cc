// Our own matrix products, on the emulator or on a GPU.
#include "backend/gpu/products/tile_products.h"

#include <tuple>

#include "backend/gpu/gpus_under_test.h"
#include "backend/gpu/products/product_under_test.h"

namespace temper::gpu::tile_products_test {
namespace {

#ifdef TEMPER_GPU_EMULATED
TEST(GpuTileProducts, GiveTheSumsOfAnyShapeAndLayout) {
  for (const ProductCase& c : kProductCases) {
    for (const simt::Machine& machine : {simt::Machine{.warp_size = 32}, simt::Machine{.warp_size = 64, .order = 3}}) {
      CheckProduct(c, *MakeTileProducts(&machine));
    }
  }
}
#else
// Products whose operands are copied to a device and back.
class ProductsOnDevice final : public MatrixProducts {
 public:
  ProductsOnDevice(Device& device, std::span<std::byte> memory)
      : device_(device),
        memory_(memory),
        products_(MakeTileProducts(static_cast<gpuStream_t>(device.stream().handle()))) {}

  Result<std::unique_ptr<MatrixProduct> > Make(const ProductShape& shape) override {
    TEMPER_ASSIGN_OR_RETURN(auto product, products_->Make(shape));
    return std::unique_ptr<MatrixProduct>(std::make_unique<Copying>(*this, shape, std::move(product)));
  }

 private:
  class Copying final : public MatrixProduct {
   public:
    Copying(ProductsOnDevice& owner, const ProductShape& shape, std::unique_ptr<MatrixProduct> product)
        : owner_(owner), shape_(shape), product_(std::move(product)) {}
    Status Run(const ProductOperands& host) override {
      Stream& stream = owner_.device_.stream();
      size_t used = 0;
      Status status = OkStatus();
      const auto place = [&](const std::byte* x, int64_t elements, DType dtype) -> std::byte* {
        if (x == nullptr || !status.ok()) return nullptr;
        const auto size = static_cast<size_t>(elements * SizeOf(dtype));
        std::byte* const to = owner_.memory_.data() + used;
        used += (size + 255) / 256 * 256;
        status = stream.CopyToDevice({x, size}, to);
        return to;
      };
      const auto& [m, n, k] = std::tie(shape_.m, shape_.n, shape_.k);
      const ProductOperands device = {.a = place(host.a, m * k, shape_.dtype),
                                      .b = place(host.b, n * k, shape_.dtype),
                                      .acc = place(host.acc, m * n, shape_.out_dtype),
                                      .bias = place(host.bias, n, shape_.dtype),
                                      .out = place(host.out, m * n, shape_.out_dtype)};
      TEMPER_RETURN_IF_ERROR(status);
      TEMPER_RETURN_IF_ERROR(product_->Run(device));
      TEMPER_RETURN_IF_ERROR(
          stream.CopyToHost(device.out, {host.out, static_cast<size_t>(m * n * SizeOf(shape_.out_dtype))}));
      return stream.Synchronize();
    }

   private:
    ProductsOnDevice& owner_;
    const ProductShape shape_;
    const std::unique_ptr<MatrixProduct> product_;
  };

  Device& device_;
  const std::span<std::byte> memory_;
  const std::unique_ptr<MatrixProducts> products_;
};

TEST(GpuTileProducts, GiveTheSumsOfAnyShapeAndLayout) {
  const auto device = OpenGpu(0);
  if (!device.ok()) GTEST_SKIP() << device.status().message();
  const auto memory = (*device)->Allocate(MiB(4));
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  ProductsOnDevice products(**device, *memory);
  for (const ProductCase& c : kProductCases) CheckProduct(c, products);
}
#endif

}  // namespace
}  // namespace temper::gpu::tile_products_test
