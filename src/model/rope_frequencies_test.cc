#include "model/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace temper {
namespace {

std::vector<double> Read(const char* text, int64_t head_dim = 64, int64_t max_positions = 2048) {
  const auto f = RopeFrequencies(Json::parse(text), head_dim, max_positions, "config.json");
  EXPECT_TRUE(f.ok()) << f.status().message();
  return f.ok() ? *f : std::vector<double>();
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

TEST(RopeFrequencies, ArePowersOfTheta) {
  ExpectNear(Read("{}"), Plain(10000, 64));
  ExpectNear(Read(R"({"rope_theta": 500000.0})", 128), Plain(500000, 128));
  ExpectNear(Read(R"({"rope_theta": 500000, "rope_scaling": null})", 128), Plain(500000, 128));
  ExpectNear(Read(R"({"rope_parameters": {"rope_type": "default", "rope_theta": 1e6}})"), Plain(1e6, 64));
  EXPECT_EQ(Read("{}")[0], 1.0);
}

TEST(RopeFrequencies, LinearScalingDividesThemAll) {
  std::vector<double> want = Plain(10000, 64);
  for (double& f : want) f /= 4;
  ExpectNear(Read(R"({"rope_scaling": {"type": "linear", "factor": 4.0}})"), want);
  ExpectNear(Read(R"({"rope_scaling": {"rope_type": "linear", "factor": 4}})"), want);
  ExpectNear(Read(R"({"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}})"), want);
}

// Llama 3.1's: the formula of the paper's authors (rope scaling of llama-models), in wavelengths.
TEST(RopeFrequencies, Llama3StretchesLongWaves) {
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

TEST(RopeFrequencies, RefuseWhatTheyCannotDo) {
  const auto refused = [](const char* text, StatusCode code) {
    const auto f = RopeFrequencies(Json::parse(text), 64, 2048, "config.json");
    ASSERT_FALSE(f.ok()) << text;
    EXPECT_EQ(f.status().code(), code) << f.status().message();
    EXPECT_NE(f.status().message().find("config.json"), std::string::npos);
  };
  for (const char* type : {"yarn", "dynamic", "longrope", "Linear"}) {
    refused((std::string(R"({"rope_scaling": {"rope_type": ")") + type + R"(", "factor": 2.0}})").c_str(),
            StatusCode::kUnsupported);
  }
  refused(R"({"partial_rotary_factor": 0.5})", StatusCode::kUnsupported);
  refused(R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}})", StatusCode::kUnsupported);
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
}  // namespace temper
