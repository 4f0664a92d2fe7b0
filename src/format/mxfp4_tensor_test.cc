#include "format/mxfp4_tensor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/env.h"
#include "base/scratch_folder.h"
#include "format/model_weights.h"

namespace temper::mxfp4_tensor_test {
namespace {

// Two matrices of 3 outputs and 64 inputs: every index, scales from tiny to large.
constexpr int64_t kMatrices = 2, kOuts = 3, kIns = 64, kBlock = 32;
constexpr float kNumbers[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0f, -0.5, -1, -1.5, -2, -3, -4, -6};
int IndexAt(int64_t e) {
  return static_cast<int>((e * 5 + e / 17) % 16);
}
int ScaleAt(int64_t block) {
  return static_cast<int>(117 + block * 3 % 23);
}
float NumberAt(int64_t matrix, int64_t out, int64_t in) {
  const int64_t e = (matrix * kOuts + out) * kIns + in;
  return kNumbers[IndexAt(e)] * std::pow(2.0f, static_cast<float>(ScaleAt(e / kBlock) - 127));
}

// Files with the stack and another tensor.
ModelWeights Write(const std::string& folder) {
  std::vector<std::byte> blocks, scales;
  for (int64_t e = 0; e < kMatrices * kOuts * kIns; e += 2) {
    blocks.push_back(static_cast<std::byte>(IndexAt(e) | IndexAt(e + 1) << 4));
  }
  for (int64_t b = 0; b < kMatrices * kOuts * kIns / kBlock; ++b) scales.push_back(static_cast<std::byte>(ScaleAt(b)));
  std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("x_blocks":{"dtype":"U8","shape":[2,3,2,16],"data_offsets":[4,196]},)"
                       R"("x_scales":{"dtype":"U8","shape":[2,3,2],"data_offsets":[196,208]}})";
  while (header.size() % 8 != 0) header += ' ';
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[static_cast<size_t>(i)] = static_cast<char>(header.size() >> (8 * i) & 0xFF);
  file += header + std::string(4, '\0');
  for (const auto& bytes : {blocks, scales}) {
    for (const std::byte b : bytes) file += static_cast<char>(b);
  }
  EXPECT_TRUE(WriteTextFileAtomically(PosixEnv(), folder + "/model.safetensors", file).ok());
  auto weights = ModelWeights::Open(PosixEnv(), folder);
  EXPECT_TRUE(weights.ok()) << weights.status().message();
  return *std::move(weights);
}

TEST(Mxfp4Tensor, AStackIsOneTensorOfMatricesInByOut) {
  const ScratchFolder folder;
  const ModelWeights weights = Write(folder.path());
  ASSERT_EQ(weights.entries().size(), 2u) << "blocks and scales are no tensors of their own";
  const ModelWeights::Entry x = weights.Find("x");
  ASSERT_NE(x.tensor, nullptr);
  EXPECT_EQ(x.tensor->ToString(), "BF16[2, 64, 3]");
  std::vector<float> all(kMatrices * kIns * kOuts);
  ASSERT_TRUE(x.ReadElementsAs(0, DType::kF32, std::as_writable_bytes(std::span(all))).ok());
  for (int64_t i = 0; i < std::ssize(all); ++i) {
    const int64_t matrix = i / (kIns * kOuts), in = i / kOuts % kIns, out = i % kOuts;
    ASSERT_EQ(all[static_cast<size_t>(i)], NumberAt(matrix, out, in)) << i;
  }
  std::vector<bf16> some(50);  // across both matrices
  ASSERT_TRUE(x.ReadElementsAs(170, DType::kBF16, std::as_writable_bytes(std::span(some))).ok());
  for (size_t i = 0; i < some.size(); ++i) EXPECT_EQ(ToFloat(some[i]), all[170 + i]);
}

TEST(Mxfp4Tensor, ItsTransposeIsReadAsTheFileHasIt) {
  const ScratchFolder folder;
  const ModelWeights weights = Write(folder.path());
  const QuantisedTensor* const stack = weights.Find("x").quantised;
  ASSERT_NE(stack, nullptr);
  EXPECT_EQ(weights.Find("a").quantised, nullptr);
  EXPECT_EQ(stack->format(), ElementFormat::Mxfp4());
  EXPECT_EQ(stack->bytes(), Bytes{192 + 12});
  for (const int64_t first : {0, 1, 31, 33, 190}) {
    std::vector<float> run(static_cast<size_t>(kMatrices * kOuts * kIns - first));
    ASSERT_TRUE(stack->ReadTransposedAs(first, DType::kF32, std::as_writable_bytes(std::span(run))).ok());
    for (size_t i = 0; i < run.size(); ++i) {
      const int64_t e = first + static_cast<int64_t>(i);
      ASSERT_EQ(run[i], NumberAt(e / (kOuts * kIns), e / kIns % kOuts, e % kIns)) << first << " " << i;
    }
  }
}

TEST(Mxfp4Tensor, BlocksAndScalesThatDoNotFitAreNamed) {
  const StoredTensor blocks{.name = "x_blocks", .dtype = FindStoredDType("U8"), .dims = {2, 3, 2, 16}};
  const StoredTensor scales{.name = "x_scales", .dtype = FindStoredDType("U8"), .dims = {2, 3, 3}};
  const ScratchFolder folder;
  const ModelWeights weights = Write(folder.path());
  const TensorFile& file = *weights.files().front();
  const auto whole = Mxfp4Tensor::Open({&file, &blocks}, [&](const std::string& name) {
    return name == scales.name ? QuantisedTensor::Part{&file, &scales} : QuantisedTensor::Part();
  });
  ASSERT_FALSE(whole.ok());
  EXPECT_EQ(whole.status().code(), StatusCode::kCorrupt);
  for (const char* said : {"model.safetensors", "x_blocks", "x_scales", "[2, 3, 3]"}) {
    EXPECT_NE(whole.status().message().find(said), std::string::npos) << whole.status().message();
  }
}

}  // namespace
}  // namespace temper::mxfp4_tensor_test
