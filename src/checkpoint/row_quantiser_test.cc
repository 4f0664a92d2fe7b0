#include "checkpoint/row_quantiser.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/project_folder_for_test.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/state_for_test.h"
#include "device/elsewhere_for_test.h"
#include "format/sharded_safetensors_writer.h"
#include "tensor/quantise_for_test.h"

namespace temper::row_quantiser_test {
namespace {

// The weight of tests/format/make_nf4_goldens.py.
std::vector<float> GoldenWeight(const Shape& shape) {
  std::vector<float> x(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < x.size(); ++i) {
    const auto number = static_cast<float>((i * 2654435761 % (uint64_t{1} << 32)) >> 24) - 128;
    const auto scale = static_cast<float>(64 + i / 64 * 37 % 64) / 131072;
    x[i] = ToFloat(ToBF16(number * scale));
  }
  return x;
}

struct Tensor {
  std::string name;
  Shape shape;
  std::vector<float> x;
};
void WriteModel(const std::string& folder, const std::vector<Tensor>& tensors) {
  std::vector<TensorDeclaration> declared;
  for (const Tensor& t : tensors) declared.push_back({t.name, {DType::kBF16, t.shape}});
  auto writer = Must(ShardedSafetensorsWriter::Create(PosixEnv(), folder, declared));
  for (const StoredTensor& stored : writer.order()) {
    for (const Tensor& t : tensors) {
      if (t.name != stored.name) continue;
      std::vector<bf16> numbers;
      for (const float x : t.x) numbers.push_back(ToBF16(x));
      TEMPER_CHECK(writer.Append(t.name, std::as_bytes(std::span(numbers))).ok());
    }
  }
  TEMPER_CHECK(writer.Finish().ok());
}

// Fills the part [begin, begin + shape) of the weight, on a device or on the host.
Result<std::vector<std::byte>> Load(const ModelWeights& files, const StoredWeight& weight, ElementFormat format,
                                    const Shape& begin, const Shape& shape, bool away = false) {
  Elsewhere elsewhere;
  std::vector<std::byte> memory(static_cast<size_t>(TensorType{format, shape}.bytes().v));
  const PartView part(View{memory.data(), {format, shape}}, weight.shape, begin);
  TEMPER_RETURN_IF_ERROR(LoadWeights(files, {&weight, 1}, [&](const std::string& name) {
    if (name != weight.name) return DevicePart();
    return DevicePart(part, away ? static_cast<Stream&>(elsewhere) : HostStream());
  }));
  return memory;
}

// The golden file is bitsandbytes': what it holds is what the weight becomes here, whichever part of it a rank has, and
// numbers are what bitsandbytes dequantises to (format/nf4_tensor_test.cc).
TEST(RowQuantiser, Nf4HasTheBitsOfBitsandbytes) {
  const ModelWeights golden =
      Must(ModelWeights::Open(PosixEnv(), std::string(kProjectFolder) + "/tests/format/nf4.safetensors"));
  for (const auto& [name, shape] : {std::pair<const char*, Shape>{"whole.weight", {40, 448}},
                                    {"crossing.weight", {7, 93}},
                                    {"even.weight", {7, 96}}}) {
    const ScratchFolder folder;
    WriteModel(folder.path(), {{name, shape, GoldenWeight(shape)}});
    const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), folder.path()));
    const StoredWeight weight{"w", shape, WeightSource(FileTensor{.name = name, .shape = shape})};
    std::vector<bf16> values(static_cast<size_t>(shape.elements()));
    ASSERT_TRUE(golden.Find(name).ReadElementsAs(0, DType::kBF16, std::as_writable_bytes(std::span(values))).ok());
    for (const Shape& begin : {Shape{0, 0}, Shape{3, 0}, Shape{2, 7}}) {
      const Shape part = {shape[0] - begin[0], shape[1] - begin[1]};
      for (const bool away : {false, true}) {
        const auto ours = Must(Load(files, weight, ElementFormat::Nf4(), begin, part, away));
        EXPECT_EQ(ours, Must(Load(golden, weight, ElementFormat::Nf4(), begin, part, away)))
            << name << " from " << begin.ToString();
        for (int64_t r = 0; r < part[0]; ++r) {
          const Nf4Row row(ours.data() + r * Nf4RowBytes(part[1]), part[1]);
          for (int64_t c = 0; c < part[1]; ++c) {
            const auto at = static_cast<size_t>((begin[0] + r) * shape[1] + begin[1] + c);
            ASSERT_EQ(row.Number(c).bits, values[at].bits) << name << " element " << at;
          }
        }
      }
    }
  }
}

// Rows and columns of a tensor, of a part of one, and of a transposed one: scales are those of the whole tensor.
TEST(RowQuantiser, PartsHaveTheScalesOfTheWholeTensor) {
  const ScratchFolder folder;
  const FileTensor qkv{.name = "qkv", .shape = {60, 80}}, turned{.name = "turned", .shape = {80, 60}};
  const std::vector<float> x = GoldenWeight({60, 80});
  std::vector<float> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i % 80 * 60 + i / 80] = x[i];
  WriteModel(folder.path(), {{"qkv", {60, 80}, x}, {"turned", {80, 60}, y}});
  const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), folder.path()));
  const StoredWeight weights[] = {{"v", {20, 80}, WeightSource::StridedRows(qkv, 20, 10, 30, 2)},
                                  {"c", {20, 80}, WeightSource::Columns(turned, 20, 20)}};
  for (const ElementFormat format : {ElementFormat::Int8Rows(), ElementFormat::Nf4()}) {
    for (const StoredWeight& weight : weights) {
      const auto row_in_file = [&](int64_t row) { return weight.name == "c" || row < 10 ? 20 + row : 40 + row; };
      for (const int cut : {0, 1}) {
        Shape shape = weight.shape, begin = {0, 0};
        shape.set_dim(cut, shape[cut] / 2 + 1);
        begin.set_dim(cut, weight.shape[cut] - shape[cut]);
        for (const bool away : {false, true}) {
          const auto got = Must(Load(files, weight, format, begin, shape, away));
          for (int64_t r = 0; r < shape[0]; ++r) {
            const Shape in_file = {row_in_file(begin[0] + r), begin[1]};
            const auto want = Quantised(format, x, {60, 80}, in_file, {1, shape[1]});
            EXPECT_EQ(std::memcmp(got.data() + r * std::ssize(want), want.data(), want.size()), 0)
                << weight.name << " as " << ToString(format) << ", row " << r << " cut " << cut;
          }
        }
      }
    }
  }
}

// Each matrix of a stack has its own scales, as if it were alone: whether files have a tensor for each, one for all, or
// one of the transposes, gate above up or not.
TEST(RowQuantiser, EachMatrixOfAStackIsQuantisedByItself) {
  constexpr int64_t kMatrices = 3, kOut = 40, kIn = 48;
  const std::vector<float> x = GoldenWeight({kMatrices * kOut, kIn});
  const auto matrix = [&](int64_t m) { return std::span(x).subspan(static_cast<size_t>(m * kOut * kIn), kOut * kIn); };
  std::vector<float> turned(x.size());
  std::vector<Tensor> tensors = {{"together", {kMatrices, kOut, kIn}, x}};
  std::vector<FileTensor> apart;
  for (int64_t m = 0; m < kMatrices; ++m) {
    for (int64_t o = 0; o < kOut; ++o) {
      for (int64_t i = 0; i < kIn; ++i)
        turned[static_cast<size_t>((m * kIn + i) * kOut + o)] = matrix(m)[static_cast<size_t>(o * kIn + i)];
    }
    apart.push_back({.name = "experts." + std::to_string(m), .shape = {kOut, kIn}});
    tensors.push_back({apart.back().name, {kOut, kIn}, {matrix(m).begin(), matrix(m).end()}});
  }
  tensors.push_back({"turned", {kMatrices, kIn, kOut}, turned});
  const ScratchFolder folder;
  WriteModel(folder.path(), tensors);
  const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), folder.path()));
  const Shape all = {kMatrices, kOut, kIn}, upper = {kMatrices, kOut / 2, kIn};
  const FileTensor together{.name = "together", .shape = all},
      in_out{.name = "turned", .shape = {kMatrices, kIn, kOut}};
  const StoredWeight weights[] = {{"a", all, WeightSource::Stack(apart)},
                                  {"b", upper, WeightSource::RowsOfEach(together, kOut / 2)},
                                  {"c", all, WeightSource::Columns(in_out, 0, kMatrices)}};
  for (const ElementFormat format : {ElementFormat::Int8Rows(), ElementFormat::Nf4()}) {
    for (const StoredWeight& weight : weights) {
      const int64_t first = weight.name == "b" ? kOut / 2 : 0;
      for (const Shape& begin : {Shape{0, 0, 0}, Shape{1, 0, 0}, Shape{0, 7, 0}, Shape{1, 0, 19}}) {
        Shape part = weight.shape;
        for (int d = 0; d < 3; ++d) part.set_dim(d, part[d] - begin[d]);
        const auto want = Quantised(format, x, all, {begin[0], first + begin[1], begin[2]}, part);
        for (const bool away : {false, true}) {
          EXPECT_EQ(Must(Load(files, weight, format, begin, part, away)), want)
              << weight.name << " as " << ToString(format) << " from " << begin.ToString();
        }
      }
    }
  }
}

// Blocks and scales of a file in MXFP4 are what memory has, whichever part of the matrices, rows and columns.
TEST(RowQuantiser, Mxfp4KeepsTheBytesOfTheFile) {
  constexpr int64_t kMatrices = 2, kOut = 5, kIn = 96;
  std::vector<std::byte> blocks, scales;
  for (int64_t i = 0; i < kMatrices * kOut * kIn / 2; ++i) blocks.push_back(static_cast<std::byte>(i * 37 % 256));
  for (int64_t i = 0; i < kMatrices * kOut * kIn / 32; ++i) scales.push_back(static_cast<std::byte>(110 + i * 7 % 30));
  const StoredDType* const u8 = FindStoredDType("U8");
  const StoredTensor of_blocks{.dtype = u8, .dims = {kMatrices, kOut, kIn / 32, 16}, .end = std::ssize(blocks)};
  const StoredTensor of_scales{.dtype = u8, .dims = {kMatrices, kOut, kIn / 32}, .end = std::ssize(scales)};
  const ScratchFolder folder;
  auto writer = Must(ShardedSafetensorsWriter::Create(
      PosixEnv(), folder.path(),
      {{.name = "w_blocks", .type = {}, .as = &of_blocks}, {.name = "w_scales", .type = {}, .as = &of_scales}}));
  ASSERT_TRUE(writer.Append("w_blocks", blocks).ok());
  ASSERT_TRUE(writer.Append("w_scales", scales).ok());
  ASSERT_TRUE(writer.Finish().ok());
  const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), folder.path()));
  const Shape all = {kMatrices, kOut, kIn};
  const StoredWeight weight{"w", all,
                            WeightSource::Columns({.name = "w", .shape = {kMatrices, kIn, kOut}}, 0, kMatrices)};
  for (const Shape& begin : {Shape{0, 0, 0}, Shape{1, 2, 0}, Shape{0, 1, 32}, Shape{1, 0, 45}}) {
    Shape part = all;
    for (int d = 0; d < 3; ++d) part.set_dim(d, part[d] - begin[d]);
    for (const bool away : {false, true}) {
      const auto rows = Must(Load(files, weight, ElementFormat::Mxfp4(), begin, part, away));
      for (int64_t r = 0; r < part[0] * part[1]; ++r) {
        const int64_t row = (begin[0] + r / part[1]) * kOut + begin[1] + r % part[1];
        std::vector<std::byte> want(static_cast<size_t>(Mxfp4RowBytes(part[2])));
        WriteMxfp4Row(std::span(blocks).subspan(static_cast<size_t>(row * kIn / 2), kIn / 2),
                      std::span(scales).subspan(static_cast<size_t>(row * kIn / 32), kIn / 32), begin[2], part[2],
                      want.data());
        EXPECT_EQ(std::memcmp(rows.data() + r * Mxfp4RowBytes(part[2]), want.data(), want.size()), 0)
            << "row " << r << " from " << begin.ToString();
        if (begin[2] > 0) continue;  // the first bytes are those of the file
        EXPECT_EQ(std::memcmp(rows.data() + r * Mxfp4RowBytes(kIn), blocks.data() + row * kIn / 2, kIn / 2), 0);
        EXPECT_EQ(std::memcmp(rows.data() + r * Mxfp4RowBytes(kIn) + kIn / 2, scales.data() + row * kIn / 32, kIn / 32),
                  0);
      }
      // And its numbers those that are read of the file in any other type.
      const auto numbers = Must(Load(files, weight, DType::kBF16, begin, part, away));
      for (int64_t i = 0; i < part.elements(); ++i) {
        bf16 want;
        std::memcpy(&want, numbers.data() + 2 * i, sizeof want);
        const std::byte* const row = rows.data() + i / part[2] * Mxfp4RowBytes(part[2]);
        ASSERT_EQ(ElementFormat::Mxfp4().Number(row, part[2], i % part[2]).bits, want.bits) << i;
      }
    }
  }
}

TEST(RowQuantiser, AnElementThatIsNotFiniteIsNamed) {
  const ScratchFolder folder;
  std::vector<float> x(5 * 80);
  x[3 * 80 + 7] = std::nanf("");
  WriteModel(folder.path(), {{"w", {5, 80}, x}});
  const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), folder.path()));
  const StoredWeight weight{"w", {5, 80}, WeightSource(FileTensor{.name = "w", .shape = {5, 80}})};
  for (const ElementFormat format : {ElementFormat::Int8Rows(), ElementFormat::Nf4()}) {
    const auto loaded = Load(files, weight, format, {0, 0}, {5, 80});
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(loaded.status().message().find("not finite in row 3, which " + std::string(ToString(format))),
              std::string::npos)
        << loaded.status().message();
  }
}

}  // namespace
}  // namespace temper::row_quantiser_test
