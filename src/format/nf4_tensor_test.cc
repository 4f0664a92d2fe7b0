#include "format/nf4_tensor.h"

#include <gtest/gtest.h>

#include "base/project_folder_for_test.h"
#include "format/model_weights.h"

namespace temper::nf4_tensor_test {
namespace {

uint64_t HashOf(std::span<const bf16> values) {
  uint64_t h = 0xCBF29CE484222325;
  for (const bf16 v : values) h = (h ^ v.bits) * 0x100000001B3;
  return h;
}

// tests/format/make_nf4_goldens.py: the file and the hash of the values are bitsandbytes'.
TEST(Nf4Tensor, DequantisesToTheBitsOfBitsandbytes) {
  const auto files = ModelWeights::Open(PosixEnv(), std::string(kProjectFolder) + "/tests/format/nf4.safetensors");
  ASSERT_TRUE(files.ok()) << files.status().message();
  ASSERT_EQ(files->entries().size(), 3u) << "the parts of a weight are one tensor";
  for (const auto& [name, type] :
       {std::pair{"whole", "BF16[40, 448]"}, {"crossing", "BF16[7, 93]"}, {"even", "BF16[7, 96]"}}) {
    const ModelWeights::Entry entry = files->Find(std::string(name) + ".weight");
    ASSERT_NE(entry.quantised, nullptr);
    EXPECT_EQ(entry.tensor->ToString(), type);
    std::vector<bf16> values(static_cast<size_t>(entry.tensor->elements()));
    ASSERT_TRUE(entry.ReadElementsAs(0, DType::kBF16, std::as_writable_bytes(std::span(values))).ok());
    EXPECT_EQ(std::to_string(HashOf(values)), entry.file->metadata().at(name));
    // From anywhere, in another type.
    for (const size_t first : {size_t{1}, size_t{64}, size_t{301}}) {
      std::vector<float> some(values.size() - first - 5);
      ASSERT_TRUE(
          entry.ReadElementsAs(static_cast<int64_t>(first), DType::kF32, std::as_writable_bytes(std::span(some))).ok());
      for (size_t i = 0; i < some.size(); ++i) ASSERT_EQ(some[i], ToFloat(values[first + i])) << first + i;
    }
  }
}

}  // namespace
}  // namespace temper::nf4_tensor_test
