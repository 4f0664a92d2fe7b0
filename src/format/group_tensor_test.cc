// Weights in 4 and 8 bits as GPTQ, AWQ, compressed-tensors and bitsandbytes publish them, against those packages and
// their formulas (tests/format/make_group_goldens.py).
#include "format/group_tensor.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>

#include "base/project_folder_for_test.h"
#include "format/model_weights.h"
#include "format/safetensors.h"

namespace temper::group_tensor_test {
namespace {

const std::string kGolden = std::string(kProjectFolder) + "/tests/format/groups.safetensors";

std::vector<float> Numbers(const ModelWeights::Entry& entry, int64_t first, int64_t count) {
  std::vector<float> x(static_cast<size_t>(count));
  const Status read = entry.ReadElementsAs(first, DType::kF32, std::as_writable_bytes(std::span(x)));
  EXPECT_TRUE(read.ok()) << read.message();
  return x;
}

uint64_t HashOf(std::span<const float> values) {
  uint64_t h = 0xCBF29CE484222325;
  for (const float v : values) h = (h ^ std::bit_cast<uint32_t>(v)) * 0x100000001B3;
  return h;
}

TEST(GroupTensor, DequantisesToTheBitsOfThePackagesThatWroteIt) {
  const auto files = ModelWeights::Open(PosixEnv(), kGolden);
  ASSERT_TRUE(files.ok()) << files.status().message();
  const std::map<std::string, const char*> formats = {
      {"packed", "int4_g32"},     {"packed_zeros", "int4_g128"}, {"packed_rows", "int4_g128"}, {"float_rows", "fp8"},
      {"float_all", "fp8"},       {"int_rows", "int8"},          {"int_all", "int8"},          {"gptq", "int4_g64"},
      {"gptq_order", "int4_g64"}, {"gptq_rows", "int4_g128"},    {"awq", "int4_g32"},          {"bnb", "int8"}};
  ASSERT_EQ(files->entries().size(), formats.size()) << "what lies beside the elements is hidden";
  for (const auto& [name, format_name] : formats) {
    SCOPED_TRACE(name);
    const ModelWeights::Entry entry = files->Find(name + ".weight");
    ASSERT_NE(entry.quantised, nullptr);
    const ElementFormat format = entry.quantised->format();
    EXPECT_EQ(ToString(format), format_name);
    const int64_t rows = entry.tensor->dims[0], columns = entry.tensor->dims[1], all = rows * columns;
    const std::vector<float> want = Numbers(entry, 0, all);
    // bitsandbytes multiplies by its own 1 / 127 in another order: a place of bf16 may differ.
    if (name != "bnb") EXPECT_EQ(std::to_string(HashOf(want)), entry.file->metadata().at(name));
    for (const int64_t first : {int64_t{1}, columns + 3, 7 * columns}) {
      const std::vector<float> some = Numbers(entry, first, all - first - 2);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), want.begin() + first)) << first;
    }
    // As rows of the format, whole and in part.
    for (const auto& [begin, count] : {std::pair<int64_t, int64_t>{0, columns}, {5, columns - 9}, {34, 21}}) {
      std::vector<std::byte> memory(static_cast<size_t>(6 * format.RowBytes(count)));
      const Status read = entry.quantised->OpenRows()->Read(1, 6, begin, count, memory.data());
      if (name == "gptq_order") {
        EXPECT_EQ(read.code(), StatusCode::kUnsupported);
        EXPECT_NE(read.message().find("desc_act"), std::string::npos) << read.message();
        continue;
      }
      ASSERT_TRUE(read.ok()) << read.message();
      for (int64_t i = 0; i < 6 * count; ++i) {
        const bf16 got = format.Number(memory.data() + i / count * format.RowBytes(count), count, i % count);
        const float x = want[static_cast<size_t>((1 + i / count) * columns + begin + i % count)];
        // Those of f16 are rounded once more there.
        ASSERT_NEAR(ToFloat(got), x, std::fabs(x) * 0x1p-8f) << begin << " " << i;
      }
    }
  }
}

TEST(GroupTensor, FilesThatContradictThemselvesAreRefused) {
  const auto golden = SafetensorsFile::Open(PosixEnv(), kGolden);
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  // Opens the tensors of `module`, one of them with other dims or left out, and reads all.
  const auto with = [&](const std::string& module, const std::string& changed, std::vector<int64_t> dims) {
    std::map<std::string, StoredTensor> tensors;
    for (const StoredTensor& t : golden->tensors()) {
      if (t.name.starts_with(module + ".")) tensors[t.name] = t;
    }
    if (dims.empty()) {
      tensors.erase(module + "." + changed);
    } else {
      tensors.at(module + "." + changed).dims = std::move(dims);
    }
    const StoredTensor& scales = tensors.at(module + (module.starts_with("packed") ? ".weight_scale" : ".scales"));
    const auto opened = GroupTensor::Open({&*golden, &scales}, [&](const std::string& name) {
      const auto found = tensors.find(name);
      return found == tensors.end() ? QuantisedTensor::Part() : QuantisedTensor::Part{&*golden, &found->second};
    });
    return opened.status();
  };
  EXPECT_TRUE(with("gptq", "g_idx", {}).ok()) << "which may miss";
  EXPECT_EQ(with("gptq", "scales", {100, 24}).code(), StatusCode::kUnsupported) << "groups of several sizes";
  for (const auto& [module, changed, dims] :
       {std::tuple<const char*, const char*, std::vector<int64_t>>{"gptq", "qzeros", {}},
        {"gptq", "qzeros", {3, 2}},
        {"gptq", "g_idx", {64}},
        {"gptq", "qweight", {24}},
        {"gptq", "scales", {6, 8}},
        {"awq", "qweight", {128, 4}},
        {"packed", "weight_shape", {}},
        {"packed", "weight_packed", {24, 11}},
        {"packed", "weight_scale", {12, 6}},
        {"packed_zeros", "weight_zero_point", {2, 2}}}) {
    const Status refused = with(module, changed, dims);
    EXPECT_EQ(refused.code(), StatusCode::kCorrupt) << module << " " << changed << " " << refused.message();
    EXPECT_NE(refused.message().find("get the model again"), std::string::npos) << refused.message();
  }
}

}  // namespace
}  // namespace temper::group_tensor_test
