#include "graph/attributes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace temper::attributes_test {
namespace {

// Bits, not values: NaN and -0.0 count.
bool SameBits(const AttributeValue& a, const AttributeValue& b) {
  if (a.index() != b.index()) return false;
  const auto bits = [](double x) { return std::bit_cast<uint64_t>(x); };
  if (const auto* x = std::get_if<double>(&a)) return bits(*x) == bits(std::get<double>(b));
  if (const auto* x = std::get_if<std::vector<double>>(&a)) {
    const auto& y = std::get<std::vector<double>>(b);
    return std::equal(x->begin(), x->end(), y.begin(), y.end(), [&](double p, double q) { return bits(p) == bits(q); });
  }
  return a == b;
}

void ExpectReadsBack(const AttributeValue& value) {
  const Attributes attributes = {{"key", value}, {"other", int64_t{1}}};
  const auto back = Attributes::Parse(attributes.ToString());
  ASSERT_TRUE(back.ok()) << back.status().message();
  ASSERT_EQ(back->entries().size(), 2u) << attributes.ToString();
  EXPECT_TRUE(SameBits(back->entries()[0].second, value)) << attributes.ToString();
  EXPECT_EQ(back->ToString(), attributes.ToString());
}

TEST(Attributes, EveryDoubleReadsBackToTheBitAndAsADouble) {
  using Limits = std::numeric_limits<double>;
  for (double x : {0.0,
                   -0.0,
                   1.0,
                   -1.0,
                   5.0,
                   0.1,
                   1e-5,
                   1e300,
                   -1e300,
                   1e22,
                   123456789012345678.0,
                   Limits::infinity(),
                   -Limits::infinity(),
                   Limits::quiet_NaN(),
                   Limits::min(),
                   Limits::denorm_min(),
                   Limits::max(),
                   Limits::lowest(),
                   Limits::epsilon(),
                   1.0 / 3,
                   2e16,
                   1e15}) {
    SCOPED_TRACE(x);
    ExpectReadsBack(x);
  }
  uint64_t state = 1;
  for (int i = 0; i < 2000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const double x = std::bit_cast<double>(state);
    if (!std::isnan(x)) ExpectReadsBack(x);  // payloads of NaNs have no text
  }
}

TEST(Attributes, IntegersStringsAndListsReadBack) {
  for (int64_t n : {int64_t{0}, int64_t{-1}, int64_t{42}, std::numeric_limits<int64_t>::max(),
                    std::numeric_limits<int64_t>::min()}) {
    ExpectReadsBack(n);
  }
  for (const char* text : {"", "bf16", "a b, c=d", "[1, 2]", "{", "e", "inf", "1.5"})
    ExpectReadsBack(std::string(text));
  ExpectReadsBack(std::vector<double>{});
  ExpectReadsBack(std::vector<double>{1.0});
  ExpectReadsBack(std::vector<double>{-0.0, 1e-300, 0.1, std::numeric_limits<double>::infinity()});
}

TEST(Attributes, AreSortedAndTheLastSetWins) {
  Attributes a = {{"z", int64_t{1}}, {"a", 2.0}};
  a.Set("m", std::string("x"));
  a.Set("z", int64_t{3});
  EXPECT_EQ(a.ToString(), "{a=2.0, m=\"x\", z=3}");
  EXPECT_EQ(a, (Attributes{{"a", 2.0}, {"m", std::string("x")}, {"z", int64_t{3}}}));
  EXPECT_FALSE(a == (Attributes{{"a", 2.0}, {"m", std::string("x")}, {"z", 3.0}})) << "3 is not 3.0";
  EXPECT_EQ(Attributes().ToString(), "{}");
}

TEST(Attributes, RefuseWhatIsNoListOfAttributes) {
  for (const char* text : {"",
                           "{",
                           "}",
                           "{}}",
                           "{} ",
                           " {}",
                           "{a}",
                           "{a=}",
                           "{=1}",
                           "{a=1",
                           "{a=1,b=2}",
                           "{a=1, }",
                           "{a=1, a=2}",
                           "{a=1x}",
                           "{a=1.5.5}",
                           "{a=[1.0}",
                           "{a=[1.0,2.0]}",
                           "{a=[1.0, ]}",
                           "{a=[, 1.0]}",
                           "{a=\"x}",
                           "{a=\"x\"y}",
                           "{a b=1}",
                           "{a=99999999999999999999}",
                           "{a=0x10}",
                           "{a= 1}",
                           "{a=1e999999}",
                           "{\"a\"=1}",
                           "{a=nonsense}",
                           "{a=--1}",
                           "{a=\"\n\"}",
                           "{a=[1.0]]}",
                           "{a=true}",
                           "{a\n=1}"}) {
    EXPECT_FALSE(Attributes::Parse(text).ok()) << text;
  }
}

TEST(Attributes, MutatedTextIsRefusedOrReadsBack) {
  const std::string good = Attributes{
      {"eps", 1e-5},
      {"heads", int64_t{12}},
      {"inv_freq", std::vector<double>{1.0, 0.1, 1e-10}},
      {"out",
       std::string("f32")}}.ToString();
  uint64_t state = 7;
  const auto next = [&] { return state = state * 6364136223846793005u + 1442695040888963407u, state >> 33; };
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (uint64_t k = 0; k <= next() % 3; ++k) text[next() % text.size()] = static_cast<char>(next());
    if (next() % 4 == 0) text.resize(next() % text.size());
    const auto read = Attributes::Parse(text);
    if (!read.ok()) continue;
    ++accepted;
    const auto again = Attributes::Parse(read->ToString());
    ASSERT_TRUE(again.ok()) << text;
    EXPECT_EQ(again->ToString(), read->ToString()) << text;
  }
  EXPECT_GT(accepted, 100) << "the mutations hit only what is refused anyway";
}

TEST(AttributesDeathTest, HoldNothingThatHasNoText) {
  Attributes a;
  EXPECT_DEATH(a.Set("a=b", int64_t{1}), "cannot be printed");
  EXPECT_DEATH(a.Set("", int64_t{1}), "cannot be printed");
  EXPECT_DEATH(a.Set("a", std::string("\"")), "cannot be printed");
  EXPECT_DEATH(a.Set("a", std::string("}")), "cannot be printed");
  EXPECT_DEATH(a.Set("a", std::string("\n")), "cannot be printed");
  EXPECT_DEATH((void)a.Int("absent"), "attribute absent");
}

}  // namespace
}  // namespace temper::attributes_test
