// Rows that stay in the blocks of a GGUF file. The numbers in f32 are the gguf package's (gguf_file_test.cc).
#include "format/gguf/block_tensor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "format/json.h"
#include "format/memory_env_for_test.h"
#include "format/model_weights.h"
#include "tensor/format_rule.h"

namespace temper::block_tensor_test {
namespace {

constexpr const char* kTypes[] = {"q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k"};

// The golden file, [3, 512] of each type, and a map for its tensors.
class Blocks : public ::testing::Test {
 protected:
  Blocks() {
    env_.files["g.gguf"] = *ReadTextFile(PosixEnv(), std::string(kProjectFolder) + "/tests/format/golden.gguf");
    const auto file = env_.OpenForRead("g.gguf");
    map_ = {.file = "g.gguf", .bytes = (*file)->size().v, .modified_ns = (*file)->version().modified_ns};
    for (const char* type : kTypes) {
      map_.tensors.push_back({.name = type, .dims = {3, 512}, .parts = {{type, 0, 3}}, .in_blocks = true});
    }
  }
  Result<ModelWeights> Open() {
    env_.files["gguf_weights.json"] = map_.ToJson();
    return ModelWeights::Open(env_, "gguf_weights.json");
  }
  static std::vector<float> Numbers(const ModelWeights::Entry& entry) {
    std::vector<float> x(static_cast<size_t>(entry.tensor->elements()));
    EXPECT_TRUE(entry.ReadElementsAs(0, DType::kF32, std::as_writable_bytes(std::span(x))).ok());
    return x;
  }

  MemoryEnv env_;
  GgufMap map_;
};

TEST_F(Blocks, AnyColumnsHaveTheNumbersOfTheFileRoundedOnce) {
  const auto weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  for (const char* type : kTypes) {
    const ModelWeights::Entry entry = weights->Find(type);
    ASSERT_NE(entry.quantised, nullptr) << type;
    const ElementFormat format = entry.quantised->format();
    EXPECT_EQ(ToString(format), type);
    const int64_t row_bytes = entry.quantised->bytes().v / 3;  // in the file
    EXPECT_EQ(format.RowBytes(512), (row_bytes + 15) / 16 * 16) << type;
    const std::vector<float> want = Numbers(entry);
    for (const auto& [begin, columns] : {std::pair<int64_t, int64_t>{0, 512}, {256, 256}, {3, 301}, {260, 250}}) {
      std::vector<std::byte> rows(static_cast<size_t>(2 * format.RowBytes(columns)));
      const Status read = entry.quantised->OpenRows()->Read(1, 2, begin, columns, rows.data());
      ASSERT_TRUE(read.ok()) << read.message();
      for (int64_t i = 0; i < 2 * columns; ++i) {
        const std::byte* const row = rows.data() + i / columns * format.RowBytes(columns);
        const float x = want[static_cast<size_t>((1 + i / columns) * 512 + begin + i % columns)];
        ASSERT_EQ(format.Number(row, columns, i % columns).bits, ToBF16(x).bits) << type << " " << begin << " " << i;
      }
    }
    std::vector<std::byte> row(static_cast<size_t>(format.RowBytes(256)));
    const Status within = entry.quantised->OpenRows()->Read(0, 1, 7, 256, row.data());
    EXPECT_EQ(within.code(), StatusCode::kUnsupported);
    EXPECT_NE(within.message().find("fewer ranks"), std::string::npos) << within.message();
  }
}

TEST_F(Blocks, RowsFollowTheMap) {
  map_.tensors.clear();
  map_.tensors.push_back({.name = "w",
                          .dims = {6, 512},
                          .parts = {{"q4_k", 0, 3, {.head = 3, .rotary = 2}}, {"q4_k", 0, 3}},
                          .in_blocks = true});
  map_.tensors.push_back({.name = "x", .dims = {6, 512}, .parts = map_.tensors[0].parts});
  const auto weights = Open();
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  const ModelWeights::Entry entry = weights->Find("w");
  ASSERT_NE(entry.quantised, nullptr);
  EXPECT_EQ(weights->Find("x").quantised, nullptr) << "which the map does not keep";
  EXPECT_EQ(Numbers(entry), Numbers(weights->Find("x")));
  const ElementFormat format = entry.quantised->format();
  std::vector<std::byte> rows(static_cast<size_t>(6 * format.RowBytes(512)));
  ASSERT_TRUE(entry.quantised->OpenRows()->Read(0, 6, 0, 512, rows.data()).ok());
  const std::vector<float> want = Numbers(entry);
  for (int64_t i = 0; i < 6 * 512; ++i) {
    const bf16 got = format.Number(rows.data() + i / 512 * format.RowBytes(512), 512, i % 512);
    ASSERT_EQ(got.bits, ToBF16(want[static_cast<size_t>(i)]).bits) << i;
  }
}

TEST_F(Blocks, ScalesThatAreNoNumbersAndMapsThatDoNotFitAreRefused) {
  for (const auto& [type, at] : {std::pair{"q8_0", 0}, {"q4_k", 2}, {"q6_k", 208}}) {
    const auto file = GgufFile::Open(env_, "g.gguf");
    const std::string whole = env_.files["g.gguf"];
    const size_t byte = static_cast<size_t>(file->data_begin() + file->Find(type)->begin + at);
    env_.files["g.gguf"][byte + 1] = '\x7C';
    const auto weights = Open();
    ASSERT_TRUE(weights.ok()) << weights.status().message();
    const ModelWeights::Entry entry = weights->Find(type);
    std::vector<std::byte> rows(static_cast<size_t>(3 * entry.quantised->format().RowBytes(512)));
    const Status read = entry.quantised->OpenRows()->Read(0, 3, 0, 512, rows.data());
    EXPECT_EQ(read.code(), StatusCode::kCorrupt) << type;
    EXPECT_NE(read.message().find("no number in row 0"), std::string::npos) << read.message();
    env_.files["g.gguf"] = whole;
  }
  map_.tensors[0].parts[0].added = 1;
  EXPECT_NE(Open().status().message().find("no matrix in blocks"), std::string::npos) << Open().status().message();
  map_.tensors[0].parts[0].added = 0;
  map_.tensors[0].parts[0].tensor = "f32";
  EXPECT_FALSE(Open().ok());
}

}  // namespace
}  // namespace temper::block_tensor_test
