#include "compile/run/row_lengths.h"

#include <gtest/gtest.h>

namespace temper::row_lengths_test {
namespace {

TEST(RowLengths, AreHalvesQuartersAndEighthsThatAreWorthAProgram) {
  EXPECT_EQ(ShorterRows(2048), (std::vector<int64_t>{1024, 512, 256}));
  EXPECT_EQ(ShorterRows(512), (std::vector<int64_t>{256, 128, 64}));
  EXPECT_EQ(ShorterRows(256), (std::vector<int64_t>{128, 64}));
  EXPECT_EQ(ShorterRows(1000), (std::vector<int64_t>{512, 256, 128}));
  EXPECT_EQ(ShorterRows(97), (std::vector<int64_t>{64}));
  EXPECT_EQ(ShorterRows(64), std::vector<int64_t>());
  EXPECT_EQ(ShorterRows(2), std::vector<int64_t>());
}

class OfARun : public testing::Test {
 protected:
  OfARun() {
    config_.data.max_seq_len = 512;
    config_.data.packing = false;
  }
  RowLengths Of() const { return RowLengthsOf(facts_, config_, mesh_); }

  ModelFacts facts_;
  RunConfig config_;
  Mesh mesh_;
};

TEST_F(OfARun, PackedRowsHaveOneLength) {
  EXPECT_EQ(Of().train.size(), 3u);
  EXPECT_EQ(Of().eval.size(), 3u);
  EXPECT_EQ(Of().why_not, "");
  config_.data.packing = true;
  EXPECT_TRUE(Of().train.empty());
  EXPECT_TRUE(Of().eval.empty());
  EXPECT_EQ(Of().why_not, "");
}

TEST_F(OfARun, WhatADrawDependsOnStaysAsItIs) {
  config_.lora.dropout = 0.1;
  EXPECT_EQ(Of().train.size(), 3u);
  config_.batch.per_device_train_batch_size = 2;
  EXPECT_TRUE(Of().train.empty());
  EXPECT_EQ(Of().eval.size(), 3u);
  EXPECT_NE(Of().why_not, "");
}

TEST_F(OfARun, RanksGpusAndExpertsKeepTheLongest) {
  facts_.experts = 8;
  EXPECT_TRUE(Of().train.empty() && Of().eval.empty());
  EXPECT_NE(Of().why_not, "");
  facts_.experts = 0;
  config_.machine.device = DeviceChoice::kGpu;
  EXPECT_TRUE(Of().train.empty() && Of().eval.empty());
  config_.machine.device = DeviceChoice::kCpu;
  mesh_.set_size(Axis::kTp, 2);
  EXPECT_TRUE(Of().train.empty() && Of().eval.empty());
}

TEST_F(OfARun, RanksOfWholeRowsEvaluateInShorterOnes) {
  mesh_.set_size(Axis::kDp, 2);
  mesh_.set_size(Axis::kFsdp, 2);
  EXPECT_TRUE(Of().train.empty());
  EXPECT_EQ(Of().eval.size(), 3u);
  EXPECT_NE(Of().why_not, "");
  mesh_.set_size(Axis::kPp, 2);
  EXPECT_TRUE(Of().eval.empty());
}

}  // namespace
}  // namespace temper::row_lengths_test
