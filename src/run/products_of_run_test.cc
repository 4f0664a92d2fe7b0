#include "run/products_of_run.h"

#include <gtest/gtest.h>

namespace temper::products_of_run_test {
namespace {

TEST(ProductsOfRun, AreReadAsTheyWereWritten) {
  const ProductChoices choices = {
      {{"cuBLASLt 13.1.0 on NVIDIA H200", {{"[2, 4] x [3, 4]", "00ff"}, {"[3, 4] x [3, 4]", "01"}}},
       {"cuBLASLt 13.1.0 on NVIDIA H100", {}}}};
  const Result<ProductChoices> read = ParseProducts(FormatProducts(choices));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->by_maker, choices.by_maker);
}

TEST(ProductsOfRun, TextOfAnotherFormIsAnErrorThatNamesTheFile) {
  for (const char* text : {"", "[]", R"({"a": 1})", R"({"a": {"b": 1}})", R"({"a": {"b": ["c"]}})"}) {
    const Result<ProductChoices> read = ParseProducts(text);
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_NE(read.status().message().find("products.json"), std::string::npos) << read.status().message();
  }
}

}  // namespace
}  // namespace temper::products_of_run_test
