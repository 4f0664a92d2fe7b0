#include "checkpoint/load_weights.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <map>

#include "base/machine_memory.h"
#include "base/philox.h"
#include "checkpoint/state_for_test.h"
#include "device/elsewhere_for_test.h"
#include "format/sharded_safetensors_writer.h"
#include "program/buffer_names.h"

namespace temper::load_weights_test {
namespace {

// Bytes that this process has asked files for so far.
int64_t BytesRead() {
  std::ifstream in("/proc/self/io");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("rchar:")) return std::atoll(line.c_str() + 6);
  }
  return -1;
}

// From here on PeakResidentMemory is of what follows. False where the kernel does not do that.
bool ForgetPeakResident() {
  std::ofstream out("/proc/self/clear_refs");
  return static_cast<bool>(out << "5" << std::flush);
}
Bytes PeakResidentNow() {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("VmHWM:")) return KiB(std::atoll(line.c_str() + 6));
  }
  return {};
}

struct Tensor {
  std::string name;
  Shape shape;
};

// A model of bf16 tensors, in one file.
void WriteModel(const std::string& folder, const std::vector<Tensor>& tensors) {
  std::vector<TensorDeclaration> declared;
  for (const Tensor& t : tensors) declared.push_back({t.name, {DType::kBF16, t.shape}});
  auto writer = Must(ShardedSafetensorsWriter::Create(PosixEnv(), folder, declared));
  for (const StoredTensor& t : writer.order()) {
    std::vector<bf16> numbers(static_cast<size_t>(t.elements()));
    const uint64_t key = HashName(t.name);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = ToBF16(static_cast<float>((key + i * 7919) % 1021) - 510);
    TEMPER_CHECK(writer.Append(t.name, std::as_bytes(std::span(numbers))).ok());
  }
  TEMPER_CHECK(writer.Finish().ok());
}
float Expected(const std::string& name, int64_t i) {
  return ToFloat(ToBF16(static_cast<float>((HashName(name) + static_cast<uint64_t>(i) * 7919) % 1021) - 510));
}

// What one of two ranks has of each tensor: half of its rows, or with `columns` of its columns; with a master if it is
// trained.
class RankMemory {
 public:
  RankMemory(const std::vector<Tensor>& tensors, bool columns, bool trained) {
    for (const Tensor& t : tensors) {
      const int dim = columns && t.shape.rank() > 1 ? 1 : 0;
      Shape shape = t.shape, begin = t.shape;
      for (int d = 0; d < begin.rank(); ++d) begin.set_dim(d, 0);
      shape.set_dim(dim, t.shape[dim] / 2);
      begin.set_dim(dim, t.shape[dim] / 2);
      Add(t.name, {DType::kBF16, shape}, t.shape, begin);
      if (trained) Add(MasterName(t.name), {DType::kF32, shape}, t.shape, begin);
      weights.push_back({t.name, t.shape, WeightSource(FileTensor{.name = t.name, .shape = t.shape})});
      share += parts_.at(t.name).view.type.bytes();
    }
  }
  // The masters are the host's.
  BufferLookup Lookup(Stream& of_weights) const {
    return [this, &of_weights](const std::string& name) {
      const auto it = parts_.find(name);
      if (it == parts_.end()) return DevicePart();
      return it->second.view.type.dtype == DType::kF32 ? DevicePart(it->second) : DevicePart(it->second, of_weights);
    };
  }
  const PartView& Part(const std::string& name) const { return parts_.at(name); }

  std::vector<StoredWeight> weights;
  Bytes share;  // of the file

 private:
  void Add(const std::string& name, const TensorType& type, const Shape& global, const Shape& begin) {
    auto& memory = memory_[name];
    memory.assign(static_cast<size_t>(type.bytes().v), std::byte{1});  // touched
    parts_[name] = PartView(View{memory.data(), type}, global, begin);
  }
  std::map<std::string, std::vector<std::byte>> memory_;
  std::map<std::string, PartView> parts_;
};

TEST(LoadWeights, ARankReadsItsShareOnceAndTakesNoMemoryBesideIt) {
  const ScratchFolder folder;
  const std::vector<Tensor> tensors = {{"model.embed_tokens.weight", {24'000, 2048}},
                                       {"model.layers.0.mlp.up_proj.weight", {8192, 2048}},
                                       {"model.layers.1.mlp.experts.up_proj", {2, 4096, 1024}},
                                       {"model.norm.weight", {2048}}};
  WriteModel(folder.path(), tensors);
  for (const bool columns : {false, true}) {
    for (const bool trained : {false, true}) {
      for (const bool away : {false, true}) {
        SCOPED_TRACE(testing::Message() << (columns ? "columns" : "rows") << (trained ? ", trained" : "")
                                        << (away ? ", weights away" : ""));
        const RankMemory rank(tensors, columns, trained);
        Elsewhere elsewhere;
        Stream& stream = away ? elsewhere : HostStream();
        const bool peaks = ForgetPeakResident();
        const Bytes resident = ResidentMemory();
        const int64_t before = BytesRead();
        ASSERT_TRUE(
            LoadWeights(Must(ModelWeights::Open(PosixEnv(), folder.path())), rank.weights, rank.Lookup(stream)).ok());
        const int64_t read = BytesRead() - before;
        if (before >= 0) {
          EXPECT_GE(read, rank.share.v);
          EXPECT_LE(read, rank.share.v + rank.share.v / 100 + (64 << 10)) << "and headers";
        }
        if (peaks) {
          EXPECT_LE(PeakResidentNow(), resident + MiB(64));
        }
        EXPECT_EQ(elsewhere.most() > 0, away);
        EXPECT_LE(elsewhere.most(), static_cast<size_t>(HostWindow::kBytes.v));
        for (const Tensor& t : tensors) {
          for (const std::string& name : {t.name, MasterName(t.name)}) {
            if (name != t.name && !trained) continue;
            const PartView& part = rank.Part(name);
            for (int64_t row = 0; row < part.rows(); row += 997) {
              const int64_t column = row % part.columns(), i = row * part.columns() + column;
              const float got = part.view.type.dtype == DType::kF32
                                    ? part.view.as<float>()[static_cast<size_t>(i)]
                                    : ToFloat(part.view.as<bf16>()[static_cast<size_t>(i)]);
              ASSERT_EQ(got, Expected(t.name, part.RowBegin(row) + column)) << name << " row " << row;
            }
          }
        }
      }
    }
  }
}

// A part of the rows and columns of values whose rows lie one way or another in their files; more than one window.
TEST(LoadWeights, APackedWeightIsReadIntoBothOfItsLayouts) {
  const ScratchFolder folder;
  const FileTensor wide{.name = "wide", .shape = {400, 3000}}, two{.name = "two", .shape = {140, 96}},
      turned{.name = "turned", .shape = {96, 140}};
  WriteModel(folder.path(), {{"wide", wide.shape}, {"two", two.shape}, {"turned", turned.shape}});
  const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), folder.path()));
  struct PackedCase {
    StoredWeight stored;
    Shape begin, shape;                                        // of the part
    std::function<float(int64_t row, int64_t column)> number;  // of the value
  };
  const PackedCase cases[] = {
      {{"whole", {400, 3000}, WeightSource(wide)},
       {100, 300},
       {299, 2001},
       [](int64_t r, int64_t c) { return Expected("wide", r * 3000 + c); }},
      {{"up", {70, 96}, WeightSource::StridedRows(two, 7, 7, 14, 10)},
       {0, 0},
       {70, 96},
       [](int64_t r, int64_t c) { return Expected("two", (7 + r / 7 * 14 + r % 7) * 96 + c); }},
      {{"t", {140, 96}, WeightSource::Columns(turned, 0, 140)}, {0, 0}, {140, 96}, [](int64_t r, int64_t c) {
         return Expected("turned", c * 140 + r);
       }}};
  for (const PackedCase& p : cases) {
    for (const bool backward : {false, true}) {
      SCOPED_TRACE(p.stored.name);
      std::map<std::string, std::vector<std::byte>> memory;
      std::map<std::string, PartView> parts;
      const auto add = [&](const std::string& name, ElementLayout layout) {
        const TensorType type{DType::kBF16, p.shape, layout};
        memory[name].assign(static_cast<size_t>(type.bytes().v), std::byte{1});
        parts[name] = PartView(View{memory[name].data(), type}, p.stored.shape, p.begin);
      };
      add(p.stored.name, ElementLayout::kColumnPairs);
      if (backward) add(RowPairsName(p.stored.name), ElementLayout::kRowPairs);
      const auto lookup = [&](const std::string& name) {
        const auto it = parts.find(name);
        return it == parts.end() ? DevicePart() : DevicePart(it->second);
      };
      Bytes done{}, total{};
      const Status loaded = LoadWeights(files, {&p.stored, 1}, lookup, [&](Bytes d, Bytes t) { done = d, total = t; });
      ASSERT_TRUE(loaded.ok()) << loaded.message();
      EXPECT_EQ(done, total);
      EXPECT_EQ(total.v, p.shape.elements() * SizeOf(DType::kBF16));
      for (const auto& [name, part] : parts) {
        const PackedPanels panels(part.view.type.layout, p.shape[0], p.shape[1]);
        for (int64_t r = 0; r < p.shape[0]; ++r) {
          for (int64_t c = 0; c < p.shape[1]; ++c) {
            const auto got = ToFloat(*reinterpret_cast<const bf16*>(part.view.data + panels.Offset(r, c)));
            ASSERT_EQ(got, p.number(p.begin[0] + r, p.begin[1] + c)) << name << " " << r << ", " << c;
          }
        }
      }
    }
  }
}

// The second half of a value's rows or columns, wherever its elements lie in the files; and of its master.
TEST(LoadWeights, AWeightMayLieInAPartOfATensorOrInSeveral) {
  const ScratchFolder folder;
  const FileTensor qkv{.name = "qkv", .shape = {12, 8}};
  std::vector<FileTensor> experts;
  std::vector<Tensor> tensors = {{"qkv", {12, 8}}};
  for (const char* name : {"e0", "e1", "e2", "e3"}) {
    experts.push_back({.name = name, .shape = {6, 8}});
    tensors.push_back({name, {6, 8}});
  }
  WriteModel(folder.path(), tensors);
  const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), folder.path()));
  const std::vector<StoredWeight> weights = {{"k", {4, 8}, WeightSource::Rows(qkv, 6, 4)},
                                             {"v", {4, 8}, WeightSource::StridedRows(qkv, 4, 2, 6, 2)},
                                             {"experts", {4, 6, 8}, WeightSource::Stack(experts)}};
  EXPECT_TRUE(CheckTensors(files, FileTensorsOf(weights)).ok());
  EXPECT_TRUE(UnusedTensors(files, FileTensorsOf(weights)).empty());
  // The tensor and the element of it that element `at` of a value is.
  const auto expected = [&](const std::string& name, int64_t at) {
    const int64_t row = at / 8, column = at % 8;
    if (name == "k") return Expected("qkv", (6 + row) * 8 + column);
    if (name == "v") return Expected("qkv", ((row < 2 ? 4 : 8) + row) * 8 + column);
    return Expected(fmt::format("e{}", row / 6), row % 6 * 8 + column);
  };
  for (int dim = 0; dim < 3; ++dim) {
    for (const bool away : {false, true}) {
      Elsewhere elsewhere;
      Stream& stream = away ? elsewhere : HostStream();
      std::map<std::string, std::vector<std::byte>> memory;
      std::map<std::string, PartView> parts;
      for (const StoredWeight& w : weights) {
        const int cut = std::min(dim, w.shape.rank() - 1);
        Shape shape = w.shape, begin = w.shape;
        for (int d = 0; d < begin.rank(); ++d) begin.set_dim(d, 0);
        shape.set_dim(cut, w.shape[cut] / 2);
        begin.set_dim(cut, w.shape[cut] / 2);
        for (const auto& [name, dtype] : {std::pair{w.name, DType::kBF16}, {MasterName(w.name), DType::kF32}}) {
          memory[name].resize(static_cast<size_t>(shape.elements() * SizeOf(dtype)));
          parts[name] = PartView(View{memory[name].data(), {dtype, shape}}, w.shape, begin);
        }
      }
      const Status loaded = LoadWeights(files, weights, [&](const std::string& name) {
        const PartView& part = parts.at(name);
        return part.view.type.dtype == DType::kF32 ? DevicePart(part) : DevicePart(part, stream);
      });
      ASSERT_TRUE(loaded.ok()) << loaded.message();
      for (const StoredWeight& w : weights) {
        const PartView weight = parts.at(w.name), master = parts.at(MasterName(w.name));
        for (int64_t row = 0, i = 0; row < weight.rows(); ++row) {
          for (int64_t c = 0; c < weight.columns(); ++c, ++i) {
            const float want = expected(w.name, weight.RowBegin(row) + c);
            ASSERT_EQ(ToFloat(weight.view.as<bf16>()[static_cast<size_t>(i)]), want) << w.name << " dim " << dim;
            ASSERT_EQ(master.view.as<float>()[static_cast<size_t>(i)], want) << w.name << " dim " << dim;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace temper::load_weights_test
