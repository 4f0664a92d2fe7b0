#include "base/quantity.h"

#include <gtest/gtest.h>

namespace temper::quantity_test {
namespace {

TEST(Quantity, ReadsNumbersPrefixesAndUnits) {
  EXPECT_DOUBLE_EQ(*ParseQuantity("3.35 TB/s", "B/s"), 3.35e12);
  EXPECT_DOUBLE_EQ(*ParseQuantity("80 GB", "B"), 80e9);
  EXPECT_DOUBLE_EQ(*ParseQuantity("81559MiB", "B"), 81559.0 * (1 << 20));
  EXPECT_DOUBLE_EQ(*ParseQuantity("989.4 TFLOP/s", "FLOP/s"), 989.4e12);
  EXPECT_DOUBLE_EQ(*ParseQuantity("4 us", "s"), 4e-6);
  EXPECT_DOUBLE_EQ(*ParseQuantity("1e3 B", "B"), 1000);
  EXPECT_DOUBLE_EQ(*ParseQuantity("0 B", "B"), 0);
}

TEST(Quantity, RefusesWhatHasNoUnitOrAnother) {
  for (const char* text :
       {"", "80", "GB", "80 GB/s", "80 gb", "-1 GB", "inf B", "nan B", "80 XB", "1 2 B", "80 GiBB"}) {
    EXPECT_FALSE(ParseQuantity(text, "B").ok()) << text;
  }
}

TEST(Quantity, PrintsWhatItReads) {
  for (const double number : {0.0, 1.0, 12345678901.0, 4.25e-6, 1e18}) {
    EXPECT_NEAR(*ParseQuantity(PrintQuantity(number, "B/s"), "B/s"), number, number * 1e-4);
  }
}

TEST(Grouped, SeparatesThousands) {
  EXPECT_EQ(Grouped(4.54), "4.5");
  EXPECT_EQ(Grouped(99.97), "100");
  EXPECT_EQ(Grouped(999.4), "999");
  EXPECT_EQ(Grouped(64979.8), "64,980");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Grouped(-123456), "-123,456");
}

TEST(Counted, OneIsSingular) {
  EXPECT_EQ(Counted(0, "row"), "0 rows");
  EXPECT_EQ(Counted(1, "row"), "1 row");
  EXPECT_EQ(Counted(2, "bad row"), "2 bad rows");
  EXPECT_EQ(Counted(1, "micro-batch", "micro-batches"), "1 micro-batch");
  EXPECT_EQ(Counted(2, "micro-batch", "micro-batches"), "2 micro-batches");
}

}  // namespace
}  // namespace temper::quantity_test
