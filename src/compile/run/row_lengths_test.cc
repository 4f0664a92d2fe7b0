#include "compile/run/row_lengths.h"

#include <gtest/gtest.h>

#include "tensor/context_part.h"

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

TEST(RowLengths, CanBeSharedByRanks) {
  EXPECT_EQ(ShorterRows(2048, 4), (std::vector<int64_t>{1024, 512, 256}));
  EXPECT_EQ(ShorterRows(2048, 6), (std::vector<int64_t>{1056, 576, 288}));
  EXPECT_EQ(ShorterRows(192, 6), (std::vector<int64_t>{96}));
}

class OfARun : public testing::Test {
 protected:
  OfARun() {
    config_.data.max_seq_len = 512;
    config_.data.packing = false;
  }
  RowLengths Of() const { return RowLengthsOf(config_, mesh_); }

  RunConfig config_;
  Mesh mesh_;
};

TEST_F(OfARun, PackedRowsHaveOneLength) {
  EXPECT_EQ(Of().train.size(), 3u);
  EXPECT_EQ(Of().eval.size(), 3u);
  config_.data.packing = true;
  EXPECT_TRUE(Of().train.empty());
  EXPECT_TRUE(Of().eval.empty());
  EXPECT_EQ(Of().why_not, "");
  config_.data.packing = false;
  config_.data.pad_to_max_seq_len = true;
  EXPECT_TRUE(Of().train.empty());
}

TEST_F(OfARun, StepsHaveOneLengthWhereTheirMicroBatchesAreNotApart) {
  mesh_.set_size(Axis::kDp, 2);
  mesh_.set_size(Axis::kFsdp, 2);
  mesh_.set_size(Axis::kTp, 2);
  EXPECT_EQ(Of().train, (std::vector<int64_t>{256, 128, 64}));
  EXPECT_FALSE(Of().per_step);
  mesh_.set_size(Axis::kPp, 2);
  EXPECT_TRUE(Of().per_step);
  mesh_ = Mesh();
  EXPECT_FALSE(Of().per_step);
  config_.machine.device = DeviceChoice::kGpu;
  EXPECT_EQ(Of().train.size(), 3u);
  EXPECT_TRUE(Of().per_step);
}

TEST_F(OfARun, RanksOfARingHaveWholeChunksOfEachLength) {
  config_.data.max_seq_len = 528;
  mesh_.set_size(Axis::kCp, 3);
  for (const int64_t row : Of().train) EXPECT_TRUE(ContextPart::Divides(row, 3)) << row;
  EXPECT_EQ(Of().train.size(), 3u);
}

}  // namespace
}  // namespace temper::row_lengths_test
