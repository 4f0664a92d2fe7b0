#include "checkpoint/row_quantiser.h"

#include <gtest/gtest.h>

#include <cstring>

#include "checkpoint/load_weights.h"
#include "checkpoint/state_for_test.h"
#include "device/elsewhere_for_test.h"
#include "format/sharded_safetensors_writer.h"
#include "tensor/quantise_for_test.h"

namespace temper {
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

uint64_t HashOf(std::span<const bf16> values) {
  uint64_t h = 0xCBF29CE484222325;
  for (const bf16 v : values) h = (h ^ v.bits) * 0x100000001B3;
  return h;
}

// The golden file is bitsandbytes': indices of elements and absmaxes, scales, mean, and the values that it makes of
// them.
TEST(RowQuantiser, Nf4HasTheBitsOfBitsandbytes) {
  const auto golden = Must(SafetensorsFile::Open(PosixEnv(), TEMPER_SOURCE_DIR "/tests/format/nf4.safetensors"));
  const auto numbers = Nf4AbsmaxNumbers();
  for (const auto& [name, shape] : {std::pair<std::string, Shape>{"whole", {40, 448}}, {"crossing", {7, 93}}}) {
    SCOPED_TRACE(name);
    const auto bytes_of = [&](const std::string& what) {
      const StoredTensor* const tensor = Must(golden.Require(name + what));
      std::vector<std::byte> bytes(static_cast<size_t>(tensor->bytes().v));
      TEMPER_CHECK(golden.ReadTensor(name + what, bytes).ok());
      return bytes;
    };
    const std::vector<std::byte> map = bytes_of(".weight.nested_quant_map"), indices = bytes_of(".weight"),
                                 of_absmax = bytes_of(".weight.absmax");
    ASSERT_EQ(std::memcmp(map.data(), numbers.data(), map.size()), 0);
    const std::vector<std::byte> number_map = bytes_of(".weight.quant_map");
    ASSERT_EQ(std::memcmp(number_map.data(), kNf4Numbers, number_map.size()), 0);

    const ScratchFolder folder;
    WriteModel(folder.path(), {{"w", shape, GoldenWeight(shape)}});
    const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), folder.path()));
    const StoredWeight weight{"w", shape, WeightSource(FileTensor{.name = "w", .shape = shape})};
    const auto rows = Must(Load(files, weight, ElementFormat::Nf4(), {0, 0}, shape));
    std::vector<bf16> values;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const std::byte* const row = rows.data() + i / shape[1] * Nf4RowBytes(shape[1]);
      const Nf4Row nf4(row, shape[1]);
      const auto pair = static_cast<int>(indices[static_cast<size_t>(i / 2)]);
      ASSERT_EQ(nf4.Index(i % shape[1]), i % 2 == 0 ? pair >> 4 : pair & 15) << i;
      const int64_t block = i / 64 - i / shape[1] * shape[1] / 64;
      ASSERT_EQ(row[(shape[1] + 1) / 2 + block], of_absmax[static_cast<size_t>(i / 64)]) << i;
      values.push_back(nf4.Number(i % shape[1]));
    }
    EXPECT_EQ(std::to_string(HashOf(values)), golden.metadata().at(name));
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
}  // namespace temper
