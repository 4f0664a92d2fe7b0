#include "data/weight_search.h"

#include <gtest/gtest.h>

#include <random>

#include "base/scratch_folder.h"
#include "data/records.h"
#include "data/template/conversation.h"
#include "format/memory_env_for_test.h"

namespace temper::weight_search_test {
namespace {

TEST(HasWeights, IsExact) {
  const ScratchFolder folder;
  const auto has = [&](const std::string& name, const std::string& text) {
    const std::string path = folder / name;
    TEMPER_CHECK(WriteTextFileAtomically(PosixEnv(), path, text).ok());
    return HasWeights(PosixEnv(), path);
  };
  const std::string plain = "{\"prompt\":\"a\",\"completion\":\"b\"}\n";
  EXPECT_FALSE(has("w0.jsonl", plain + plain));
  EXPECT_FALSE(has("w1.jsonl", plain + R"({"prompt":"a","completion":"my \"weight\"","weight":1.0})"));
  EXPECT_FALSE(has("w2.jsonl", plain + R"({"prompt":"a","completion":"b","weight":0})"));
  EXPECT_TRUE(has("w3.jsonl", plain + R"({"prompt":"a","completion":"b","weight":0.5})"));
  EXPECT_TRUE(has("w4.jsonl", plain + R"({"prompt":"a","completion":"b","\u0077eight":2})"));
  EXPECT_TRUE(has("w5.json", R"([{"messages":[{"role":"assistant","content":"b","loss":0.5}]}])"));
  EXPECT_FALSE(has("w6.json", R"([{"messages":[{"role":"assistant","content":"b","train":false}]}])"));
  EXPECT_FALSE(has("w7.txt", R"({"text":"a","weight":0.5})"));
  EXPECT_FALSE(has("w8.jsonl", "not JSON, a \"weight\" of 0.5\n"));
  EXPECT_TRUE(has("w9.jsonl", plain + R"({"prompt":"a","completion":"b","weight" : 1e-1 })"));
  EXPECT_FALSE(has("w10.jsonl", plain + R"({"prompt":"a","completion":"b","weight" : 1e0, "gross":{"weight":72}})"));
  EXPECT_TRUE(has("w11.jsonl", plain + R"({"messages":[]})" + "\n" + R"({"prompt":"a","completion":"b","weight":2})"));
  EXPECT_TRUE(has("w12.jsonl", R"({"messages":[{"role":"assistant","content":"b","loss\u005fweight":0.5}]})"));
  EXPECT_FALSE(HasWeights(PosixEnv(), "/nonexistent.jsonl"));
}

constexpr size_t kNowhere = std::string_view::npos;

TEST(FindWeight, FindsEveryWeightThatIsNot0Or1) {
  for (const char* text :
       {R"({"weight":0.5})", R"({"weight":2})", R"({"loss": 10})", "{\"train\"\n:\t\"yes\"}", R"({"loss_weight":1.5})",
        R"({"\u0077eight":1})", R"({"loss\u005Fweight":1})", R"({"weight":-0})", R"({"weight":1)"}) {
    const WeightMention mention = FindWeight(text, /*at_end=*/true);
    EXPECT_NE(mention.at, kNowhere) << text;
    EXPECT_FALSE(mention.cut_off) << text;
  }
  for (const char* text : {R"({"weight":1})", R"({"weight" : 0.0 })", R"({"train":true,"loss":null})",
                           R"({"a":"its weight", "b":2})", R"({"a":"\"weight\": 3"})", R"({"weights":3})",
                           R"({"a":"\u00e9\u4e00"})", R"(["weight")", R"({"weight")", "\\u00"}) {
    EXPECT_EQ(FindWeight(text, /*at_end=*/true).at, kNowhere) << text;
  }
}

// Wherever a text is cut, the result for its beginning is right, or says where to search again.
TEST(FindWeight, SaysWhereToSearchAgainIfTheTextIsCut) {
  for (const std::string text : {R"(["some text", {"x":1, "weight" : 0.5 }])", R"({"a": 1, "tr\u0061in":0.5})"}) {
    const size_t at = FindWeight(text, true).at;
    ASSERT_NE(at, kNowhere);
    for (size_t cut = 0; cut < text.size(); ++cut) {
      const WeightMention mention = FindWeight(std::string_view(text).substr(0, cut), false);
      if (cut <= at) {
        EXPECT_EQ(mention.at, kNowhere) << cut;
      } else {
        EXPECT_EQ(mention.at, at) << cut;
      }
    }
  }
  EXPECT_TRUE(FindWeight(R"({"weight":1)", false).cut_off);  // it may be 1.5
}

// Compares with parsing every row.
TEST(HasWeights, AgreesWithParsingEveryRow) {
  MemoryEnv env;
  const std::string path = "random.jsonl";
  const std::vector<std::string> keys = {"weight",         "loss_weight",  "loss", "train",     R"(\u0077eight)",
                                         R"(weigh\u0074)", R"(lo\u0073s)", "x",    R"(tags\")", "weights"};
  const std::vector<std::string> values = {"0",          "1",    "0.5", "1.0", "1e0",   "1e-1",     "-0",
                                           "true",       "null", "NaN", "256", "[0.5]", R"("0.5")", R"({"weight":0.5})",
                                           "1.00000001", "7e9"};
  std::mt19937 random(7);
  const auto any = [&](const std::vector<std::string>& of) { return of[random() % of.size()]; };
  const auto field = [&] {
    const std::vector<std::string> spaces = {"", " ", "\t ", "   "};
    return ",\"" + any(keys) + "\"" + any(spaces) + ":" + any(spaces) + any(values) + any(spaces);
  };
  int with = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (int row = 0; row < 2; ++row) {
      text += R"({"messages":[{"role":"user","content":"a \"weight\": 3"},{"role":"assistant","content":"b")";
      text += random() % 2 ? field() : "";
      text += "}]";
      text += random() % 2 ? field() : "";
      text += "}\n";
    }
    env.files[path] = text;
    bool expected = false;
    const auto reader = RecordReader::Open(env, path);
    for (RawRow row; reader.ok() && *(*reader)->Next(row);) {
      const auto record = (*reader)->Parse(row);
      if (!record.ok()) continue;
      const auto weighs = [](TokenWeight w) { return w != 0 && w != kUnitWeight; };
      expected |= weighs(record->weight);
      for (const OrderedJson& message : record->messages) expected |= weighs(WeightOf(message));
    }
    ASSERT_EQ(HasWeights(env, path), expected) << text;
    with += expected;
  }
  EXPECT_GT(with, 300);
  EXPECT_LT(with, 2700);
}

TEST(HasWeights, FindsAWeightAcrossTwoBlocks) {
  MemoryEnv env;
  const std::string path = "long.jsonl";
  const std::string plain = "{\"text\":\"b\"}\n", row = R"({"text":"b","weight":)" + std::string(40, ' ') + "0.5}";
  constexpr size_t kBlock = 1 << 20;
  for (size_t before = 0; before <= row.size(); before += 3) {
    // The first row is parsed, which takes longer than a search; the second one fills the block.
    const size_t fill = kBlock - before - 2 * plain.size();
    const std::string filling = "{\"text\":\"b" + std::string(fill, 'x') + "\"}\n";
    env.files[path] = plain + filling + row;
    EXPECT_TRUE(HasWeights(env, path)) << before;
    env.files[path] = plain + filling + plain;
    EXPECT_FALSE(HasWeights(env, path)) << before;
  }
  env.files[path] = plain + "{\"text\":\"" + std::string(3 * kBlock, 'x') + "\"}\n" + plain;
  EXPECT_FALSE(HasWeights(env, path));
}

}  // namespace
}  // namespace temper::weight_search_test
