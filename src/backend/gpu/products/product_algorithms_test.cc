#include "backend/gpu/products/product_algorithms.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>

namespace temper::gpu::product_algorithms_test {
namespace {

constexpr ProductShape kSmall = {.m = 2, .n = 3, .k = 4}, kLarge = {.m = 20, .n = 30, .k = 40};

// Algorithms that only say which one ran.
class Named final : public ProductWithAlgorithms {
 public:
  Named(const ProductShape& shape, std::vector<std::string> offered, std::vector<std::string>* ran)
      : shape_(shape), offered_(std::move(offered)), ran_(*ran) {}
  const ProductShape& shape() const override { return shape_; }
  const std::vector<std::string>& offered() const override { return offered_; }
  void Use(size_t algorithm) override { used_ = algorithm; }
  Status Run(const ProductOperands&) override {
    ran_.push_back(used());
    return used() == "bad" ? IoError("it cannot run here") : OkStatus();
  }
  const std::string& used() const { return offered_.at(used_); }

 private:
  const ProductShape shape_;
  const std::vector<std::string> offered_;
  std::vector<std::string>& ran_;
  size_t used_ = 0;
};

class GivenTimes final : public ProductTimer {
 public:
  GivenTimes(const std::vector<std::string>& ran, std::map<std::string, double> seconds)
      : ran_(ran), seconds_(std::move(seconds)) {}
  Result<ProductOperands> Draw(const ProductShape& shape) override {
    if (shape.m > most_rows) return OutOfMemory("too many rows");
    return ProductOperands();
  }
  Result<Seconds> Time(const std::function<Status()>& enqueue) override {
    TEMPER_RETURN_IF_ERROR(enqueue());
    return Seconds{seconds_.at(ran_.back())};
  }
  int64_t most_rows = 100;

 private:
  const std::vector<std::string>& ran_;
  const std::map<std::string, double> seconds_;
};

class GpuProductAlgorithms : public testing::Test {
 protected:
  Named& Add(const ProductShape& shape, std::vector<std::string> offered) {
    products_.push_back(std::make_unique<Named>(shape, std::move(offered), &ran_));
    return *products_.back();
  }
  ProductTiming Choose() {
    std::vector<ProductWithAlgorithms*> products;
    for (const auto& product : products_) products.push_back(product.get());
    ProductTiming done;
    const Status status = ChooseAlgorithms(products, timer_, &algorithms_, &done);
    EXPECT_TRUE(status.ok()) << status.message();
    return done;
  }

  std::vector<std::string> ran_;
  GivenTimes timer_{ran_, {{"first", 1}, {"slow", 2}, {"fast", 0.5}, {"even", 0.999}, {"bad", 0}}};
  std::vector<std::unique_ptr<Named>> products_;
  ProductAlgorithms algorithms_;
};

TEST_F(GpuProductAlgorithms, TheFastestIsTakenByAllProductsOfAShapeAndKept) {
  const Named& one = Add(kSmall, {"first", "slow", "fast"});
  const Named& other = Add(kLarge, {"first", "slow"});
  const Named& alike = Add(kSmall, {"first", "slow", "fast"});
  const ProductTiming done = Choose();
  EXPECT_EQ(one.used(), "fast");
  EXPECT_EQ(alike.used(), "fast");
  EXPECT_EQ(other.used(), "first");
  EXPECT_EQ(done.products, 2);
  EXPECT_EQ(done.algorithms, 5);
  EXPECT_EQ(algorithms_, (ProductAlgorithms{{NameOf(kSmall), "fast"}, {NameOf(kLarge), "first"}}));
  ran_.clear();
  EXPECT_EQ(Choose().kept, 2);
  EXPECT_TRUE(ran_.empty()) << "timed again";
  EXPECT_EQ(one.used(), "fast");
}

TEST_F(GpuProductAlgorithms, WhatIsAsFastWithinNoiseIsDecidedByTheLibrarysOrder) {
  const Named& product = Add(kSmall, {"first", "even"});
  Choose();
  EXPECT_EQ(product.used(), "first");
}

TEST_F(GpuProductAlgorithms, WhatCannotRunIsNotChosen) {
  const Named& product = Add(kSmall, {"bad", "slow", "first", "bad"});
  Choose();
  EXPECT_EQ(product.used(), "first");
}

TEST_F(GpuProductAlgorithms, AKeptAlgorithmIsTakenOnlyIfTheLibraryOffersItAgain) {
  const Named& offered = Add(kSmall, {"fast", "slow"});
  const Named& refused = Add(kLarge, {"first", "fast"});
  algorithms_ = {{NameOf(kSmall), "slow"}, {NameOf(kLarge), "of another driver"}, {"of no product here", "first"}};
  const ProductTiming done = Choose();
  EXPECT_EQ(offered.used(), "slow");
  EXPECT_EQ(refused.used(), "fast");
  EXPECT_EQ(done.kept, 1);
  EXPECT_EQ(done.refused, 1);
  EXPECT_EQ(done.products, 1);
  EXPECT_EQ(algorithms_[NameOf(kLarge)], "fast");
  EXPECT_EQ(algorithms_["of no product here"], "first");
}

TEST_F(GpuProductAlgorithms, OneWithoutChoiceOrWithoutRoomForItsOperandsIsNotTimed) {
  timer_.most_rows = 10;
  const Named& large = Add(kLarge, {"first", "fast"});
  const Named& single = Add(kSmall, {"slow"});
  const ProductTiming done = Choose();
  EXPECT_EQ(large.used(), "first");
  EXPECT_EQ(single.used(), "slow");
  EXPECT_EQ(done.algorithms, 0);
  EXPECT_EQ(algorithms_, (ProductAlgorithms{{NameOf(kSmall), "slow"}, {NameOf(kLarge), "first"}}));
}

TEST(GpuProductName, TellsProductsApartThatMayHaveOtherAlgorithms) {
  const ProductShape plain = {.m = 2, .n = 3, .k = 4, .dtype = DType::kBF16, .out_dtype = DType::kBF16};
  EXPECT_EQ(NameOf(plain), "[2, 4] x [3, 4] of bf16 into bf16, a by rows, b by rows");
  ProductShape other = plain;
  other.out_dtype = DType::kF32;
  other.a_k_contiguous = other.b_k_contiguous = false;
  other.acc = other.bias = true;
  EXPECT_EQ(NameOf(other), "[2, 4] x [3, 4] of bf16 into f32, a by columns, b by columns, bias, acc");
  other = plain;
  other.scale = 2;
  EXPECT_EQ(NameOf(other), NameOf(plain));
}

}  // namespace
}  // namespace temper::gpu::product_algorithms_test
