#include "tensor/element_format.h"

#include <gtest/gtest.h>

#include <set>

#include "tensor/format_rule.h"
#include "tensor/shape.h"

namespace temper::element_format_test {
namespace {

TEST(ElementFormat, BytesFollowFromFormatAndShape) {
  const ElementFormat int8 = ElementFormat::Int8Rows();
  EXPECT_EQ((TensorType{DType::kBF16, {3, 5}}.bytes()), Bytes{30});
  EXPECT_EQ((TensorType{DType::kF64, {}}.bytes()), Bytes{8});
  EXPECT_EQ((TensorType{int8, {3, 12}}.bytes()), Bytes{3 * 16}) << "integers and the scale of each row";
  EXPECT_EQ((TensorType{int8, {3, 13}}.bytes()), Bytes{3 * 32}) << "rows begin at multiples of 16";
  EXPECT_EQ((TensorType{int8, {0, 13}}.bytes()), Bytes{0});
  EXPECT_EQ((TensorType{int8, {1024, 4096}}.bytes()), Bytes{1024 * (4096 + 16)});
  const ElementFormat nf4 = ElementFormat::Nf4();
  // Indices, those of 65 absmaxes (a row may begin within a block), 2 places, 2 scales, the mean: 2,127 bytes.
  EXPECT_EQ((TensorType{nf4, {1024, 4096}}.bytes()), Bytes{1024 * 2128});
  EXPECT_EQ((TensorType{nf4, {3, 1}}.bytes()), Bytes{3 * 16});
  EXPECT_EQ((TensorType{nf4, {0, 64}}.bytes()), Bytes{0});
  // Elements, the scales of 91 blocks, a place: 1,532 bytes.
  EXPECT_EQ((TensorType{ElementFormat::Mxfp4(), {32, 5760, 2880}}.bytes()), Bytes{int64_t{32} * 5760 * 1536});
  // Elements, the scales of 57 blocks, a place: 7,397 bytes.
  const ElementFormat fp8 = *ParseElementFormat("fp8");
  EXPECT_EQ((TensorType{fp8, {2048, 7168}}.bytes()), Bytes{2048 * 7408});
  EXPECT_EQ((TensorType{fp8, {0, 128}}.bytes()), Bytes{0});
}

TEST(ElementFormat, EveryFormatIsReadBackFromItsName) {
  for (const ElementFormat f :
       {ElementFormat(DType::kF32), ElementFormat(DType::kBF16), ElementFormat(DType::kF16), ElementFormat(DType::kI32),
        ElementFormat(DType::kI64), ElementFormat(DType::kF64), ElementFormat(DType::kU8), ElementFormat::Int8Rows(),
        ElementFormat::Nf4(), ElementFormat::Mxfp4()}) {
    const auto read = ParseElementFormat(ToString(f));
    ASSERT_TRUE(read.ok()) << ToString(f);
    EXPECT_EQ(*read, f) << ToString(f);
  }
  EXPECT_FALSE(ParseElementFormat("int4").ok());
}

TEST(ElementFormat, ARuleIsThatOfItsFormat) {
  EXPECT_EQ(RuleOf(ElementFormat::Int8Rows()).name, "int8");
  EXPECT_EQ(RuleOf(ElementFormat::Nf4()).name, "nf4");
  EXPECT_EQ(RuleOf(ElementFormat::Mxfp4()).name, "mxfp4");
  std::set<ElementFormat> formats;
  for (const FormatRule* rule : FormatRules()) {
    const ElementFormat format = FormatWith(*rule);
    EXPECT_TRUE(format.quantised());
    EXPECT_EQ(&RuleOf(format), rule);
    EXPECT_EQ(format.compute(), DType::kBF16);
    EXPECT_EQ(ParseElementFormat(rule->name).value(), format);
    formats.insert(format);
  }
  EXPECT_EQ(formats.size(), FormatRules().size());
  EXPECT_DEATH((void)RuleOf(DType::kBF16), "bf16 is not quantised");
}

TEST(ElementFormat, CodeThatKnowsNoQuantisedFormatStopsAtOne) {
  const TensorType w{ElementFormat::Int8Rows(), {2, 3}};
  EXPECT_FALSE(w.dtype == DType::kBF16);
  EXPECT_EQ(w.dtype.compute(), DType::kBF16);
  EXPECT_EQ(ElementFormat(DType::kI32).compute(), DType::kI32);
  EXPECT_EQ(w.ToString(), "int8[2, 3]");
  EXPECT_DEATH((void)w.dtype.dtype(), "a quantised format has no dtype");
  EXPECT_DEATH((void)SizeOf(w.dtype), "a quantised format has no dtype");
}

}  // namespace
}  // namespace temper::element_format_test
