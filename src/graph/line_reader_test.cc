#include "graph/line_reader.h"

#include <gtest/gtest.h>

namespace temper::line_reader_test {
namespace {

TEST(LineReader, ReadsWhatThePrintersWrite) {
  LineReader in("value %12 \"model.norm.weight\" bf16[3, 64] word (%1, %-1) {a=1} -5");
  int id = 0;
  int64_t n = 0;
  std::string name;
  TensorType type;
  std::string_view word;
  std::vector<int> ids;
  Attributes attributes;
  EXPECT_TRUE(in.Eat("value %") && in.Number(&id) && in.Eat(" ") && in.Quoted(&name) && in.Eat(" ") && in.Type(&type) &&
              in.Eat(" ") && in.Word(&word) && in.Eat(" ") && in.IdList(&ids) && in.Eat(" ") &&
              in.Braced(&attributes) && in.Eat(" ") && in.Number(&n) && in.AtEnd());
  EXPECT_EQ(id, 12);
  EXPECT_EQ(name, "model.norm.weight");
  EXPECT_EQ(type, (TensorType{DType::kBF16, {3, 64}}));
  EXPECT_EQ(word, "word");
  EXPECT_EQ(ids, (std::vector<int>{1, -1}));
  EXPECT_EQ(attributes.Int("a"), 1);
  EXPECT_EQ(n, -5);
}

TEST(LineReader, ReadsLayouts) {
  const TensorType packed{DType::kBF16, {3, 64}, ElementLayout::kRowPairs};
  const std::string text = packed.ToString();
  LineReader in(text);
  TensorType type;
  EXPECT_TRUE(in.Type(&type) && in.AtEnd()) << text;
  EXPECT_EQ(type, packed);
  for (const char* other : {"bf16.[3, 64]", "bf16.pairs[3, 64]", "f32.row_pairs[3, 64]", "bf16.row_pairs[3]"}) {
    LineReader wrong(other);
    EXPECT_FALSE(wrong.Type(&type)) << other;
  }
}

TEST(LineReader, RefusesOtherThings) {
  int id = 0;
  int64_t n = 0;
  std::string name;
  std::string_view word;
  std::vector<int> ids;
  Attributes attributes;
  for (const char* text : {"", "x", "99999999999999999999"}) EXPECT_FALSE(LineReader(text).Number(&n)) << text;
  EXPECT_FALSE(LineReader("3000000000").Number(&id)) << "does not fit an int";
  for (const char* text : {"", "x\"", "\"x"}) EXPECT_FALSE(LineReader(text).Quoted(&name)) << text;
  for (const char* text : {"", " x"}) EXPECT_FALSE(LineReader(text).Word(&word)) << text;
  for (const char* text : {"", "(", "(%", "(1)", "(%1,%2)", "(%1 %2)", "(%1, )", "(%x)", "%1)"}) {
    ids.clear();
    EXPECT_FALSE(LineReader(text).IdList(&ids)) << text;
  }
  for (const char* text : {"", "{", "a=1}", "{a}"}) EXPECT_FALSE(LineReader(text).Braced(&attributes)) << text;
}

TEST(LineReader, BoundsTheSizesOfTensors) {
  TensorType type;
  EXPECT_TRUE(LineReader("f32[]").Type(&type)) << "a scalar";
  EXPECT_EQ(type.shape.rank(), 0);
  EXPECT_TRUE(LineReader("i64[1048576, 1048576]").Type(&type));
  EXPECT_EQ(type.shape.elements(), LineReader::kMaxElements);
  for (const char* text :
       {"", "f32", "f32[", "f32[1", "f32[1,2]", "f32[1, ]", "f33[1]", "[1]", "f32[-1]", "f32[1, 2, 3, 4, 5, 6]",
        "f32[1048576, 1048577]", "f32[9223372036854775807]", "f32[4294967296, 4294967296]", "f32[x]"}) {
    EXPECT_FALSE(LineReader(text).Type(&type)) << text;
  }
}

}  // namespace
}  // namespace temper::line_reader_test
