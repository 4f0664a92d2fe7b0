#include "disk/stored_slice.h"

#include "disk/model_files_for_test.h"

namespace temper::stored_slice_test {
namespace {

PartView Part(DType dtype, const Shape& box, const Shape& global, const Shape& begin) {
  return {View{nullptr, {dtype, box}}, global, begin};
}

TEST(StoredSlice, RowsAreWhereTheyAreStoredAndColumnsAreRefused) {
  const ScratchFolder scratch;
  const std::string path = scratch / "model.safetensors";
  WriteModelFile(path, {{"first", {DType::kBF16, {7}}}, {"w", {DType::kBF16, {10, 6}}}});
  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), scratch.path()));
  const ModelWeights::Entry w = Must(weights.Require("w"));
  const int64_t begin = w.file->data_begin() + w.tensor->begin;

  const StoredSlice whole = Must(FindSlice(w, WholeOf(w, DType::kF32)));
  EXPECT_EQ(whole.path, path);
  EXPECT_EQ(whole.name, "w");
  EXPECT_EQ(whole.version, w.file->version());
  EXPECT_GT(whole.version.inode, 0u);
  EXPECT_EQ(whole.begin, begin);
  EXPECT_EQ(whole.elements, 60);
  EXPECT_EQ(whole.bytes(), Bytes{240});
  EXPECT_TRUE(whole.converts());

  const StoredSlice rows = Must(FindSlice(w, Part(DType::kBF16, {3, 6}, {10, 6}, {4, 0})));
  EXPECT_EQ(rows.begin, begin + 4 * 6 * 2);
  EXPECT_EQ(rows.elements, 18);
  EXPECT_FALSE(rows.converts());
  const StoredSlice of_one_row = Must(FindSlice(w, Part(DType::kBF16, {1, 2}, {10, 6}, {9, 3})));
  EXPECT_EQ(of_one_row.begin, begin + (9 * 6 + 3) * 2);

  for (const auto& columns :
       {Part(DType::kBF16, {10, 3}, {10, 6}, {0, 3}), Part(DType::kBF16, {2, 5}, {10, 6}, {0, 0})}) {
    const auto refused = FindSlice(w, columns);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
    const std::string message = refused.status().message();
    EXPECT_NE(message.find(path), std::string::npos) << message;
    EXPECT_NE(message.find("tensor 'w'"), std::string::npos) << message;
  }
}

TEST(StoredSlice, BoxesOfManyDimsAreOneRunWhereTheirElementsFollowEachOther) {
  const ScratchFolder scratch;
  const Shape global{3, 4, 5};
  WriteModelFile(scratch / "model.safetensors", {{"w", {DType::kF32, global}}});
  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), scratch.path()));
  const ModelWeights::Entry w = Must(weights.Require("w"));
  // Every box there is, against the places of its elements.
  for (int64_t i = 0; i < 27 * 27 * 27; ++i) {
    Shape box, begin;
    int64_t rest = i;
    for (int d = 0; d < 3; ++d) {
      const int64_t b = rest % 5, n = rest / 5 % 5 + 1;
      rest /= 25;
      if (b + n > global[d]) break;
      begin.Append(b);
      box.Append(n);
    }
    if (box.rank() < 3) continue;
    int64_t first = -1, last = -1;
    for (int64_t x = 0; x < box[0]; ++x) {
      for (int64_t y = 0; y < box[1]; ++y) {
        for (int64_t z = 0; z < box[2]; ++z) {
          last = ((begin[0] + x) * 4 + begin[1] + y) * 5 + begin[2] + z;
          if (first < 0) first = last;
        }
      }
    }
    const auto slice = FindSlice(w, Part(DType::kF32, box, global, begin));
    ASSERT_EQ(slice.ok(), last - first + 1 == box.elements()) << box.ToString() << " at " << begin.ToString();
    if (slice.ok()) {
      ASSERT_EQ(slice->begin, w.file->data_begin() + first * 4);
    }
  }
}

TEST(StoredSlice, PiecesAndTypesThatDoNotConvertAreRefused) {
  const ScratchFolder scratch;
  const std::string path = scratch / "model.safetensors";
  WriteModelFile(path, {{"a", {DType::kF32, {2, 3}}}, {"b", {DType::kF32, {2, 3}}}, {"i", {DType::kI32, {4}}}});
  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), scratch.path()));
  const auto integers = FindSlice(Must(weights.Require("i")), View{nullptr, {DType::kF32, {4}}});
  EXPECT_EQ(integers.status().code(), StatusCode::kUnsupported);
  EXPECT_TRUE(FindSlice(Must(weights.Require("i")), View{nullptr, {DType::kI32, {4}}}).ok());

  const ModelWeights::PieceList list{"w", {DType::kF32, {4, 3}}, {{0, "a", {0, 0}}, {0, "b", {2, 0}}}};
  const ModelWeights pieces = Must(ModelWeights::OfPieces(PosixEnv(), scratch.path(), {path}, {&list, 1}));
  const auto refused = FindSlice(Must(pieces.Require("w")), View{nullptr, {DType::kF32, {4, 3}}});
  EXPECT_EQ(refused.status().code(), StatusCode::kUnsupported);
}

// Gate and up of experts whose files have one above the other.
TEST(StoredSlice, LongRunsOfEachMatrixAreASliceEach) {
  const ScratchFolder scratch;
  const Shape stack{3, 8, 5000};
  WriteModelFile(scratch / "model.safetensors", {{"w", {DType::kBF16, stack}}});
  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), scratch.path()));
  const ModelWeights::Entry w = Must(weights.Require("w"));
  const int64_t begin = w.file->data_begin() + w.tensor->begin;

  const auto up = Must(FindSlices(w, Part(DType::kBF16, {2, 7, 5000}, stack, {1, 1, 0})));
  ASSERT_EQ(up.size(), 2u);
  for (int64_t m = 0; m < 2; ++m) {
    const StoredSlice& of_matrix = up[static_cast<size_t>(m)];
    EXPECT_EQ(of_matrix.begin, begin + ((m + 1) * 8 + 1) * 5000 * 2);
    EXPECT_EQ(of_matrix.elements, 7 * 5000);
  }
  const auto short_rows = FindSlices(w, Part(DType::kBF16, {2, 6, 5000}, stack, {1, 2, 0}));
  EXPECT_EQ(short_rows.status().code(), StatusCode::kUnsupported) << "60,000 bytes are fewer than " << kShortestRun.v;
}

}  // namespace
}  // namespace temper::stored_slice_test
