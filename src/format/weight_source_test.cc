#include "format/weight_source.h"

#include <gtest/gtest.h>

#include <numeric>

#include "format/transpose.h"

namespace temper::weight_source_test {
namespace {

// A file's tensors, of which each element is the number of its place; and the weight that `source` makes of them.
std::vector<float> Numbers(const FileTensor& tensor, float first) {
  std::vector<float> numbers(static_cast<size_t>(tensor.shape.elements()));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}
constexpr float kPerTensor = 1000;

// What a part of the weight holds, read box by box.
std::vector<float> Read(const WeightSource& source, const Shape& shape, const Shape& begin, const Shape& part) {
  std::vector<float> memory(static_cast<size_t>(part.elements()), -1);
  const PartView view({reinterpret_cast<std::byte*>(memory.data()), {DType::kF32, part}}, shape, begin);
  for (const auto& [tensor, in_file, transposed] : source.FileParts(view)) {
    const size_t number = static_cast<size_t>(tensor - source.tensors().data());
    const std::vector<float> file = Numbers(*tensor, kPerTensor * static_cast<float>(number));
    EXPECT_EQ(in_file.global, transposed ? Transposed(tensor->shape) : tensor->shape);
    auto* to = reinterpret_cast<float*>(in_file.view.data);
    const Shape& own = in_file.view.type.shape;
    const int last = own.rank() - 1;
    for (int64_t row = 0; row < in_file.rows(); ++row) {
      for (int64_t c = 0; c < in_file.columns(); ++c) {
        int64_t place = in_file.RowBegin(row) + c;
        if (transposed) {
          const int64_t matrix = last < 2 ? 0 : in_file.begin[0] + row / own[last - 1];
          place = (matrix * tensor->shape[last - 1] + in_file.begin[last] + c) * tensor->shape[last] +
                  in_file.begin[last - 1] + row % own[last - 1];
        }
        *to++ = file[static_cast<size_t>(place)];
      }
    }
  }
  return memory;
}
std::vector<float> Whole(const WeightSource& source, const Shape& shape) {
  Shape zeros = shape;
  for (int d = 0; d < shape.rank(); ++d) zeros.set_dim(d, 0);
  return Read(source, shape, zeros, shape);
}
using Floats = std::vector<float>;

TEST(WeightSource, AWholeTensorIsTheWeight) {
  const WeightSource source(FileTensor{.name = "w", .shape = {3, 2}});
  EXPECT_EQ(Whole(source, {3, 2}), (Floats{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Read(source, {3, 2}, {1, 1}, {2, 1}), (Floats{3, 5}));
}

TEST(WeightSource, SegmentsOfAFusedTensorAreItsRows) {
  const FileTensor fused{.name = "qkv", .shape = {6, 2}};
  const WeightSource k = WeightSource::Rows(fused, 2, 3);
  EXPECT_EQ(Whole(k, {3, 2}), (Floats{4, 5, 6, 7, 8, 9}));
  EXPECT_EQ(Read(k, {3, 2}, {1, 1}, {2, 1}), (Floats{7, 9})) << "the part of a rank";
  const FileTensor bias{.name = "b", .shape = {6}};
  EXPECT_EQ(Whole(WeightSource::Rows(bias, 4, 2), {2}), (Floats{4, 5}));
}

TEST(WeightSource, SegmentsThatAFileInterleavesByHeadAreEveryStrideRows) {
  // Two heads of q, k, v with two rows each.
  const FileTensor fused{.name = "qkv", .shape = {12, 1}};
  const WeightSource v = WeightSource::StridedRows(fused, /*first=*/4, /*rows=*/2, /*stride=*/6, /*groups=*/2);
  EXPECT_EQ(Whole(v, {4, 1}), (Floats{4, 5, 10, 11}));
  EXPECT_EQ(Read(v, {4, 1}, {1, 0}, {2, 1}), (Floats{5, 10})) << "across heads";
}

TEST(WeightSource, ColumnsOfATransposedTensorAreItsRows) {
  // Two inputs, five outputs, of which the last three are the weight's.
  const FileTensor fused{.name = "c_attn", .shape = {2, 5}};
  const WeightSource source = WeightSource::Columns(fused, /*first=*/2, /*columns=*/3);
  EXPECT_EQ(Whole(source, {3, 2}), (Floats{2, 7, 3, 8, 4, 9}));
  EXPECT_EQ(Read(source, {3, 2}, {1, 0}, {2, 2}), (Floats{3, 8, 4, 9})) << "outputs of a rank";
  EXPECT_EQ(Read(source, {3, 2}, {0, 1}, {3, 1}), (Floats{7, 8, 9})) << "inputs of a rank";
}

TEST(WeightSource, MatricesOfATransposedStackAreTransposedEach) {
  // Two experts of three inputs and two outputs.
  const WeightSource source = WeightSource::Columns(FileTensor{.name = "down", .shape = {2, 3, 2}}, 0, 2);
  EXPECT_EQ(Whole(source, {2, 2, 3}), (Floats{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
  EXPECT_EQ(Read(source, {2, 2, 3}, {1, 1, 0}, {1, 1, 3}), (Floats{7, 9, 11})) << "outputs of a rank";
  EXPECT_EQ(Read(source, {2, 2, 3}, {0, 0, 1}, {2, 2, 2}), (Floats{2, 4, 3, 5, 8, 10, 9, 11})) << "its inputs";
}

TEST(WeightSource, SegmentsOfAStacksMatricesAreRowsOfEach) {
  // Two experts with two rows of gate and one of up.
  const FileTensor gate_up{.name = "gate_up", .shape = {2, 3, 2}};
  EXPECT_EQ(Whole(WeightSource::RowsOfEach(gate_up, 0), {2, 2, 2}), (Floats{0, 1, 2, 3, 6, 7, 8, 9}));
  EXPECT_EQ(Whole(WeightSource::RowsOfEach(gate_up, 2), {2, 1, 2}), (Floats{4, 5, 10, 11}));
  const WeightSource gate = WeightSource::RowsOfEach(gate_up, 0);
  EXPECT_EQ(Read(gate, {2, 2, 2}, {1, 1, 0}, {1, 1, 2}), (Floats{8, 9})) << "outputs of a rank";
  EXPECT_EQ(Read(gate, {2, 2, 2}, {0, 0, 1}, {2, 2, 1}), (Floats{1, 3, 7, 9})) << "its inputs";
}

TEST(WeightSource, AStackHasARowPerTensor) {
  std::vector<FileTensor> experts;
  for (const char* name : {"e0", "e1", "e2"}) experts.push_back({.name = name, .shape = {2, 2}});
  const WeightSource source = WeightSource::Stack(experts);
  EXPECT_EQ(Whole(source, {3, 2, 2}), (Floats{0, 1, 2, 3, 1000, 1001, 1002, 1003, 2000, 2001, 2002, 2003}));
  EXPECT_EQ(Read(source, {3, 2, 2}, {1, 1, 0}, {2, 1, 2}), (Floats{1002, 1003, 2002, 2003})) << "ffn in parts";
  EXPECT_EQ(Read(source, {3, 2, 2}, {0, 0, 1}, {3, 2, 1}), (Floats{1, 3, 1001, 1003, 2001, 2003}));
}

TEST(WeightSource, AWeightOfThreeDimsMayBeOneTensor) {
  const WeightSource source(FileTensor{.name = "w", .shape = {2, 2, 3}});
  EXPECT_EQ(Read(source, {2, 2, 3}, {0, 1, 1}, {2, 1, 2}), (Floats{4, 5, 10, 11}));
}

TEST(WeightSource, AnEmptyPartHasOneEmptyBox) {
  const WeightSource source = WeightSource::Rows(FileTensor{.name = "w", .shape = {6, 2}}, 2, 3);
  for (const int64_t row : {0, 2, 3}) {
    const auto parts = source.FileParts(PartView({nullptr, {DType::kF32, {0, 2}}}, {3, 2}, {row, 0}));
    ASSERT_EQ(parts.size(), 1u) << row;
    EXPECT_EQ(parts[0].part.view.type.shape.elements(), 0);
    EXPECT_EQ(parts[0].part.view.data, nullptr);
  }
}

TEST(WeightSource, TensorsThatSeveralWeightsLieInAreListedOnce) {
  const FileTensor fused{.name = "qkv", .shape = {6, 2}}, other{.name = "o", .shape = {2, 2}};
  const std::vector<StoredWeight> weights = {{"q", {4, 2}, WeightSource::Rows(fused, 0, 4)},
                                             {"k", {2, 2}, WeightSource::Rows(fused, 4, 2)},
                                             {"o", {2, 2}, WeightSource(other)}};
  EXPECT_EQ(FileTensorsOf(weights), (std::vector<FileTensor>{fused, other}));
}

}  // namespace
}  // namespace temper::weight_source_test
