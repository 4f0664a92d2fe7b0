// What is asked of hipBLASLt, by a library of its functions (tests/device/hipblaslt): no AMD GPU is needed.
#include "backend/gpu/products/hipblas_lt.h"

#include <chrono>
#include <cstdlib>
#include <optional>

#include "backend/gpu/products/product_timer.h"
#include "backend/gpu/products/product_under_test.h"
#include "base/project_folder_for_test.h"

#ifdef TEMPER_GPU_EMULATED
#include "backend/gpu/products/tile_products.h"

namespace temper::gpu::hipblas_lt_test {
namespace {

const std::string kLibrary = std::string(kBuildFolder) + "/test_hipblaslt/libhipblaslt.so.0";

// Counts what is asked of it, and makes nothing.
class Refused final : public MatrixProducts {
 public:
  explicit Refused(int* asked) : asked_(*asked) {}
  Result<std::unique_ptr<MatrixProduct>> Make(const ProductShape&) override {
    ++asked_;
    return Unsupported("asked");
  }

 private:
  int& asked_;
};

TEST(GpuHipblasLt, GivesTheSumsOfAnyShapeAndLayoutAndLeavesToOthersWhatTheLibraryHasNot) {
  std::vector<std::byte> scratch(4096);
  const simt::Machine machine;
  int missing = 0;
  for (const ProductCase& c : kProductCases) {
    const auto products = MakeHipblasLtProducts(nullptr, scratch, MakeTileProducts(&machine), kLibrary);
    ASSERT_TRUE(products.ok()) << products.status().message();
    CheckProduct(c, **products);
    int asked = 0;
    const auto alone = MakeHipblasLtProducts(nullptr, scratch, std::make_unique<Refused>(&asked), kLibrary);
    ASSERT_TRUE(alone.ok());
    (void)(*alone)->Make({.m = c.m, .n = c.n, .k = c.k, .dtype = c.dtype, .out_dtype = c.out_dtype, .bias = c.bias});
    EXPECT_EQ(asked, c.m == 7 || c.k == 0 ? 1 : 0) << c.m << " x " << c.n << " x " << c.k;
    missing += asked;
  }
  EXPECT_EQ(missing, 2);
}

// Whether others are asked for the product of (m, 4) and (4, 4), by one with so much scratch.
bool IsLeftToOthers(int64_t m, size_t scratch_bytes) {
  std::vector<std::byte> scratch(scratch_bytes);
  int asked = 0;
  const auto products = MakeHipblasLtProducts(nullptr, scratch, std::make_unique<Refused>(&asked), kLibrary);
  TEMPER_CHECK(products.ok()) << products.status().message();
  const bool made = (*products)->Make({.m = m, .n = 4, .k = 4}).ok();
  EXPECT_EQ(made, asked == 0);
  return asked == 1;
}

TEST(GpuHipblasLt, AsksForNoMoreScratchThanItHas) {
  EXPECT_TRUE(IsLeftToOthers(4, 512));
  EXPECT_FALSE(IsLeftToOthers(4, 4096));
}

TEST(GpuHipblasLt, WhatTheLibraryDoesNotSupportIsLeftToOthers) {
  EXPECT_TRUE(IsLeftToOthers(11, 4096));
  EXPECT_TRUE(IsLeftToOthers(13, 4096)) << "its choice is invalid";
}

// Operands in the host's memory, and its clock.
class HostTimer final : public ProductTimer {
 public:
  Result<ProductOperands> Draw(const ProductShape& shape) override {
    const TensorType out = {shape.out_dtype, {shape.m, shape.n}};
    operands_.clear();
    operands_.push_back(RandomTensor({shape.dtype, {shape.m, shape.k}}, 1));
    operands_.push_back(RandomTensor({shape.dtype, {shape.n, shape.k}}, 2));
    operands_.push_back(RandomTensor(out, 3));
    return ProductOperands{operands_[0].data(), operands_[1].data(), nullptr, nullptr, operands_[2].data()};
  }
  Result<Seconds> Time(const std::function<Status()>& enqueue) override {
    std::optional<Seconds> least;
    for (int run = 0; run < 3; ++run) {
      const auto begin = std::chrono::steady_clock::now();
      TEMPER_RETURN_IF_ERROR(enqueue());
      const Seconds taken{std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count()};
      if (!least || taken < *least) least = taken;
    }
    return *least;
  }

 private:
  TestTensors operands_;
};

TEST(GpuHipblasLt, OfEightAlgorithmsTheFastestIsTakenAndCanBeTakenAgain) {
  constexpr ProductShape kShape = {.m = 33, .n = 20, .k = 50};
  std::vector<std::byte> scratch(4096);
  const auto make = [&] {
    auto products = MakeHipblasLtProducts(nullptr, scratch, nullptr, kLibrary);
    TEMPER_CHECK(products.ok()) << products.status().message();
    return *std::move(products);
  };
  const auto bytes = [&](MatrixProduct& product) {
    const TestTensor a = RandomTensor({DType::kF32, {33, 50}}, 4), b = RandomTensor({DType::kF32, {20, 50}}, 5);
    TestTensor out({DType::kF32, {33, 20}});
    EXPECT_TRUE(product.Run({a.data(), b.data(), nullptr, nullptr, out.data()}).ok());
    return std::string(reinterpret_cast<const char*>(out.data()), 33 * 20 * 4);
  };
  HostTimer timer;
  ProductAlgorithms algorithms;
  setenv("TEST_HIPBLASLT_FASTEST", "6", 1);
  const auto products = make(), again = make();
  const auto product = products->Make(kShape), same = again->Make(kShape);
  ASSERT_TRUE(product.ok() && same.ok());
  const std::string first_choice = bytes(**product);
  ProductTiming done;
  ASSERT_TRUE(products->Choose(timer, &algorithms, &done).ok());
  EXPECT_EQ(done.algorithms, 8);
  ASSERT_EQ(algorithms.size(), 1u);
  EXPECT_EQ(algorithms.begin()->second.substr(0, 6), "2a0600");
  const std::string fastest = bytes(**product);
  EXPECT_NE(fastest, first_choice);

  setenv("TEST_HIPBLASLT_FASTEST", "1", 1);
  ProductTiming kept;
  ASSERT_TRUE(again->Choose(timer, &algorithms, &kept).ok());
  unsetenv("TEST_HIPBLASLT_FASTEST");
  EXPECT_EQ(kept.kept, 1);
  EXPECT_EQ(kept.algorithms, 0);
  EXPECT_EQ(bytes(**same), fastest);
}

TEST(GpuHipblasLt, ALibraryThatIsMissingOrTooOldIsToldInALine) {
  const auto missing = HipblasLtVersion("libhipblaslt.so.none");
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("libhipblaslt.so.none could not be loaded"), std::string::npos);
  EXPECT_NE(missing.status().message().find("install"), std::string::npos);
  ASSERT_TRUE(HipblasLtVersion(kLibrary).ok());
  EXPECT_EQ(*HipblasLtVersion(kLibrary), "hipBLASLt 0.10.0");
  setenv("TEST_HIPBLASLT_VERSION", "300", 1);
  const auto old = HipblasLtVersion(kLibrary);
  unsetenv("TEST_HIPBLASLT_VERSION");
  ASSERT_FALSE(old.ok());
  EXPECT_NE(old.status().message().find("hipBLASLt 0.3.0: 0.6.0 or newer is needed"), std::string::npos)
      << old.status().message();
}

}  // namespace
}  // namespace temper::gpu::hipblas_lt_test
#endif
