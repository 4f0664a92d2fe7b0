#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "graph/ops/rope_table.h"

namespace temper::rope_test {
namespace {

Result<RopeSpec> Rope(const std::string& text, int64_t head_dim = 64, int64_t max_positions = 2048,
                      const RopeDefaults& defaults = {}) {
  return ReadRope(Json::parse(text), "full_attention", defaults, head_dim, max_positions, "config.json");
}
std::vector<double> Read(const char* text, int64_t head_dim = 64, int64_t max_positions = 2048) {
  const auto rope = Rope(text, head_dim, max_positions);
  EXPECT_TRUE(rope.ok()) << rope.status().message();
  return rope.ok() ? rope->inv_freq : std::vector<double>();
}
void ExpectNear(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], want[i], 0x1p-24 * want[i]) << i;  // rounded to f32 once
    EXPECT_EQ(got[i], static_cast<double>(static_cast<float>(got[i]))) << i;
  }
}
std::vector<double> Plain(double theta, int64_t head_dim) {
  std::vector<double> f;
  for (int64_t i = 0; i < head_dim; i += 2)
    f.push_back(1.0 / std::pow(theta, static_cast<double>(i) / static_cast<double>(head_dim)));
  return f;
}
// The table's node in a pass over rows of `row` tokens.
struct Table {
  Attributes attributes;
  size_t inputs;
  std::vector<double> For(int64_t length) const {
    const RopeFrequencies frequencies(attributes);
    const RopeFrequencies::OfDocument of = frequencies.Of(length);
    std::vector<double> listed;
    for (int64_t e = 0; e < of.half; ++e) listed.push_back(of[e]);
    return listed;
  }
};
Table TableOf(const RopeSpec& rope, int64_t row) {
  Graph graph;
  ForwardBuilder builder(&graph, {.tokens = row, .row = row});
  RopeTableOf(builder, rope, /*of_queries=*/false, "rope");
  const Node& node = graph.nodes().back();
  return {node.attributes, node.inputs.size()};
}

TEST(Rope, FrequenciesArePowersOfTheta) {
  ExpectNear(Read("{}"), Plain(10000, 64));
  ExpectNear(Read(R"({"rope_theta": 500000.0})", 128), Plain(500000, 128));
  ExpectNear(Read(R"({"rope_theta": 500000, "rope_scaling": null})", 128), Plain(500000, 128));
  ExpectNear(Read(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})"), Plain(1e6, 64));
  EXPECT_EQ(Read("{}")[0], 1.0);
}

TEST(Rope, LinearScalingDividesAllFrequencies) {
  std::vector<double> want = Plain(10000, 64);
  for (double& f : want) f /= 4;
  ExpectNear(Read(R"({"rope_scaling": {"type": "linear", "factor": 4.0}})"), want);
  ExpectNear(Read(R"({"rope_scaling": {"rope_type": "linear", "factor": 4}})"), want);
  ExpectNear(Read(R"({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}})"), want);
}

// Llama 3.1's: the formula of the paper's authors (rope scaling of llama-models), in wavelengths.
TEST(Rope, Llama3StretchesLongWaves) {
  const double factor = 8, low = 1, high = 4, original = 8192, theta = 500000;
  std::vector<double> want = Plain(theta, 128);
  int kept = 0, stretched = 0, between = 0;
  for (double& f : want) {
    const double wavelength = 2 * M_PI / f;
    if (wavelength < original / high) {
      ++kept;
    } else if (wavelength > original / low) {
      f /= factor;
      ++stretched;
    } else {
      const double smooth = (original / wavelength - low) / (high - low);
      f = (1 - smooth) * f / factor + smooth * f;
      ++between;
    }
  }
  EXPECT_TRUE(kept > 0 && stretched > 0 && between > 0);
  const char* v4 = R"({"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})";
  const char* v5 = R"({"rope_parameters": {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}})";
  ExpectNear(Read(v4, 128, 131072), want);
  ExpectNear(Read(v5, 128, 131072), want);
}

TEST(Rope, PartialRotaryUsesTheFrequenciesOfThatPart) {
  const auto part = [](const char* text, int64_t head_dim) {
    return ReadRope(*ParseJson(text, "config.json"), nullptr, {.may_be_partial = true}, head_dim, 2048, "config.json");
  };
  ExpectNear(part(R"({"partial_rotary_factor": 0.75})", 16)->inv_freq, Plain(10000, 12));
  ExpectNear(part(R"({"partial_rotary_factor": 1, "rope_parameters": {"partial_rotary_factor": 0.5}})", 64)->inv_freq,
             Plain(10000, 32));
  // transformers' Llama, Qwen, ... turn whole heads whatever the file says, or fail.
  EXPECT_EQ(Rope(R"({"partial_rotary_factor": 0.5})").status().code(), StatusCode::kUnsupported);
}

TEST(Rope, IsReadForTheTypeOfLayer) {
  const std::string text = R"({"rope_theta": 3, "rope_parameters": {"full_attention": {"rope_theta": 1e6},
      "sliding_attention": {"rope_theta": 500}}})";
  ExpectNear(Rope(text)->inv_freq, Plain(1e6, 64));
  ExpectNear(ReadRope(Json::parse(text), "sliding_attention", {}, 64, 2048, "f")->inv_freq, Plain(500, 64));
  ExpectNear(Rope("{}", 64, 2048, {.theta = 77})->inv_freq, Plain(77, 64));
}

// By the paper's formula (Peng et al. 2023, section 3.2), in turns of a pair within the original context.
TEST(Rope, YarnStretchesSlowWaves) {
  const auto rope = Rope(R"({"rope_scaling": {"rope_type": "yarn", "factor": 8,
      "original_max_position_embeddings": 512}})",
                         64, 4096);
  const std::vector<double> plain = Plain(10000, 64);
  int kept = 0, stretched = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double turns = 512 * plain[i] / (2 * M_PI);
    if (turns > 32 * 1.4) {
      EXPECT_NEAR(rope->inv_freq[i], plain[i], 1e-7 * plain[i]);
      ++kept;
    } else if (turns < 1 / 1.4) {
      EXPECT_NEAR(rope->inv_freq[i], plain[i] / 8, 1e-7 * plain[i]);
      ++stretched;
    } else {
      EXPECT_LE(rope->inv_freq[i], plain[i] * (1 + 1e-7));
      EXPECT_GE(rope->inv_freq[i], plain[i] / 8 * (1 - 1e-7));
    }
  }
  EXPECT_TRUE(kept > 0 && stretched > 0);
  EXPECT_DOUBLE_EQ(rope->scale, 0.1 * std::log(8) + 1);
  EXPECT_EQ(rope->original, 0) << "the same in all contexts";
  const char* both = R"({"rope_scaling": {"rope_type": "yarn", "factor": 8, "mscale": 1, "mscale_all_dim": 1}})";
  EXPECT_EQ(Rope(both)->scale, 1);
}

TEST(Rope, LongropeHasOtherFactorsForDocumentsBeyondTheOriginalLength) {
  const char* text = R"({"rope_scaling": {"type": "su", "short_factor": [1, 2], "long_factor": [4, 8]}})";
  const auto rope = Rope(text, 4, 65536, {.yarn_is_longrope = true, .original = 4096});
  ASSERT_TRUE(rope.ok()) << rope.status().message();
  const std::vector<double> plain = Plain(10000, 4);
  ExpectNear(TableOf(*rope, 8192).For(4096), {plain[0], plain[1] / 2});
  ExpectNear(TableOf(*rope, 8192).For(4097), {plain[0] / 4, plain[1] / 8});
  EXPECT_DOUBLE_EQ(rope->scale, std::sqrt(1 + std::log(16) / std::log(4096)));
  EXPECT_EQ(Rope(text, 4).status().code(), StatusCode::kUnsupported) << "only Phi-3 calls it so";
}

// transformers' _compute_dynamic_ntk_parameters.
TEST(Rope, DynamicGrowsThetaWithDocumentsBeyondTheLongestOfTheModel) {
  const auto rope = Rope(R"({"rope_scaling": {"type": "dynamic", "factor": 2}})");
  ExpectNear(TableOf(*rope, 8192).For(2048), Plain(10000, 64));
  ExpectNear(TableOf(*rope, 8192).For(4096), Plain(10000 * std::pow(2.0 * 2 - 1, 64.0 / 62), 64));
  ExpectNear(TableOf(*rope, 8192).For(8192), Plain(10000 * std::pow(2.0 * 4 - 1, 64.0 / 62), 64));
}

// Such Programs are what they would be without the scaling.
TEST(Rope, RowsTooShortForALongDocumentTakeNoLengths) {
  const auto dynamic = Rope(R"({"rope_scaling": {"type": "dynamic", "factor": 2}})");
  EXPECT_EQ(TableOf(*dynamic, 2048).attributes, TableOf(*Rope("{}"), 2048).attributes);
  EXPECT_EQ(TableOf(*dynamic, 2048).inputs, 1u);
  EXPECT_EQ(TableOf(*dynamic, 2049).inputs, 2u);
  EXPECT_EQ(TableOf(*Rope("{}"), 1 << 20).inputs, 1u);
}

TEST(Rope, InvalidOrUnsupportedSettingsAreRefused) {
  const auto refused = [](const char* text, StatusCode code) {
    const auto f = Rope(text);
    ASSERT_FALSE(f.ok()) << text;
    EXPECT_EQ(f.status().code(), code) << f.status().message();
    EXPECT_NE(f.status().message().find("config.json"), std::string::npos);
  };
  for (const char* type : {"axial", "Linear"}) {
    refused((std::string(R"({"rope_scaling": {"rope_type": ")") + type + R"(", "factor": 2.0}})").c_str(),
            StatusCode::kUnsupported);
  }
  for (const char* partial : {"0", "-0.5", "1.5", "0.05", "0.01"}) {  // the last two leave 3 elements and none
    refused((std::string(R"({"partial_rotary_factor": )") + partial + "}").c_str(), StatusCode::kCorrupt);
  }
  const std::string more = R"({"rope_type": "longrope", "long_factor": [1, 2, 3, 4])";
  const std::vector<std::string> lists = {R"({"rope_type": "longrope"})",
                                          more + "}",
                                          more + R"(, "short_factor": [1, 2, 3]})",
                                          more + R"(, "short_factor": [1, 2, 3, 0]})",
                                          more + R"(, "short_factor": [1, 2, 3, "4"]})",
                                          more + R"(, "short_factor": [1, 2, 3, 4, 5]})"};
  for (const std::string& bad : lists) {
    EXPECT_EQ(Rope(R"({"rope_scaling": )" + bad + "}", 8).status().code(), StatusCode::kCorrupt) << bad;
  }
  for (const char* bad :
       {R"("factor": 0)", R"("beta_fast": -1)", R"("mscale": -1)", R"("rope_theta": 1)",
        R"("original_max_position_embeddings": -4)", R"("truncate": 1)", R"("attention_factor": 0)"}) {
    refused((std::string(R"({"rope_scaling": {"rope_type": "yarn", )") + bad + "}}").c_str(), StatusCode::kCorrupt);
  }
  refused(R"({"rope_scaling": {"rope_type": "dynamic", "factor": 0}})", StatusCode::kCorrupt);
  refused(R"({"rope_theta": 0})", StatusCode::kCorrupt);
  refused(R"({"rope_theta": -10000})", StatusCode::kCorrupt);
  refused(R"({"rope_theta": "10000"})", StatusCode::kCorrupt);
  refused(R"({"rope_scaling": {"type": "linear", "factor": 0}})", StatusCode::kCorrupt);
  refused(R"({"rope_scaling": {"type": "linear", "factor": "2"}})", StatusCode::kCorrupt);
  refused(R"({"rope_scaling": {"type": 3}})", StatusCode::kCorrupt);
  refused(R"({"rope_scaling": {"type": "llama3", "factor": -1}})", StatusCode::kCorrupt);
  refused(R"({"rope_scaling": {"type": "llama3", "low_freq_factor": 4, "high_freq_factor": 4}})", StatusCode::kCorrupt);
  refused(R"({"rope_scaling": {"type": "llama3", "original_max_position_embeddings": 0}})", StatusCode::kCorrupt);
}

}  // namespace
}  // namespace temper::rope_test
