#include "format/scaled_tensor.h"

#include <gtest/gtest.h>

#include "base/project_folder_for_test.h"
#include "format/model_weights.h"

namespace temper::scaled_tensor_test {
namespace {

uint64_t HashOf(std::span<const bf16> values) {
  uint64_t h = 0xCBF29CE484222325;
  for (const bf16 v : values) h = (h ^ v.bits) * 0x100000001B3;
  return h;
}

ModelWeights Golden() {
  auto files = ModelWeights::Open(PosixEnv(), std::string(kProjectFolder) + "/tests/format/fp8.safetensors");
  EXPECT_TRUE(files.ok()) << files.status().message();
  return *std::move(files);
}

// tests/format/make_fp8_goldens.py: the file and the hashes of the values are of transformers and torch.
TEST(ScaledTensor, Fp8DequantisesToTheBitsOfTransformers) {
  const ModelWeights files = Golden();
  ASSERT_EQ(files.entries().size(), 3u) << "elements and scales are one tensor";
  for (const auto& [name, type] : {std::pair<std::string, const char*>{"whole", "BF16[128, 256]"},
                                   {"bf16_scales", "BF16[128, 128]"},
                                   {"partial", "BF16[130, 72]"}}) {
    SCOPED_TRACE(name);
    const ModelWeights::Entry entry = files.Find(name + ".weight");
    ASSERT_NE(entry.quantised, nullptr);
    EXPECT_EQ(ToString(entry.quantised->format()), "fp8");
    EXPECT_EQ(entry.tensor->ToString(), type);
    std::vector<bf16> values(static_cast<size_t>(entry.tensor->elements()));
    ASSERT_TRUE(entry.ReadElementsAs(0, DType::kBF16, std::as_writable_bytes(std::span(values))).ok());
    EXPECT_EQ(std::to_string(HashOf(values)), entry.file->metadata().at(name));
    // From anywhere, in another type.
    for (const size_t first : {size_t{1}, size_t{64}, size_t{301}, size_t{9200}}) {
      std::vector<float> some(values.size() - first - 5);
      ASSERT_TRUE(
          entry.ReadElementsAs(static_cast<int64_t>(first), DType::kF32, std::as_writable_bytes(std::span(some))).ok());
      for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(some[i], ToFloat(values[first + i])) << first + i;
    }
    // As rows of the format, of a part.
    const int64_t columns = entry.tensor->dims[1], begin = 5, kept = columns - 9;
    const ElementFormat fp8 = entry.quantised->format();
    std::vector<std::byte> rows(static_cast<size_t>(3 * fp8.RowBytes(kept)));
    ASSERT_TRUE(entry.quantised->OpenRows()->Read(126, 2, begin, kept, rows.data()).ok());
    for (int64_t r = 0; r < 2; ++r) {
      for (int64_t c = 0; c < kept; ++c) {
        ASSERT_EQ(fp8.Number(rows.data() + r * fp8.RowBytes(kept), kept, c).bits,
                  values[static_cast<size_t>((126 + r) * columns + begin + c)].bits)
            << r << ", " << c;
      }
    }
  }
}

TEST(ScaledTensor, ScalesThatDoNotFitAreNamed) {
  const ModelWeights files = Golden();
  const TensorFile& file = *files.files().front();
  const StoredTensor elements{.name = "w", .dtype = FindStoredDType("F8_E4M3"), .dims = {130, 256}};
  const auto open = [&](const StoredTensor& scales) {
    return ScaledTensor::Open({&file, &scales}, [&](const std::string& name) {
      return name == "w" ? QuantisedTensor::Part{&file, &elements} : QuantisedTensor::Part();
    });
  };
  StoredTensor scales{.name = "w_scale_inv", .dtype = FindStoredDType("F32"), .dims = {2, 2}};
  ASSERT_TRUE(open(scales).ok());
  EXPECT_NE(*open(scales), nullptr);
  scales.dims = {1, 2};
  const auto refused = open(scales);
  EXPECT_EQ(refused.status().code(), StatusCode::kCorrupt);
  for (const char* said : {"fp8.safetensors", "w_scale_inv", "[1, 2]", "128 x 128"}) {
    EXPECT_NE(refused.status().message().find(said), std::string::npos) << refused.status().message();
  }
  scales.name = "other_scale_inv";
  ASSERT_TRUE(open(scales).ok()) << "marks nothing";
  EXPECT_EQ(*open(scales), nullptr);
}

}  // namespace
}  // namespace temper::scaled_tensor_test
