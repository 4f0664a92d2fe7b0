// Temper against the format's own library (tests/format/make_goldens.py): it reads what the library writes, writes the
// library's bytes, and takes and refuses the same files.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "base/project_folder_for_test.h"
#include "format/json.h"
#include "format/memory_env_for_test.h"
#include "format/safetensors.h"
#include "format/safetensors_writer.h"

namespace temper::safetensors_golden_test {
namespace {

const std::string kFolder = std::string(kProjectFolder) + "/tests/format/";

// As in the script.
const SafetensorsMetadata kMetadata = {
    {"format", "pt"}, {"made by", "make_goldens.py"}, {"quote \"\xC3\xA9\"", "line\nbreak"}};
const std::vector<TensorDeclaration> kTensors = {
    {"ids", {DType::kI64, {4}}},
    {"d", {DType::kF64, {2, 2}}},
    {"empty", {DType::kF32, {0, 4}}},
    {"model.norm.weight", {DType::kF32, {7}}},
    {"scalar", {DType::kF32, {}}},
    {"i32", {DType::kI32, {3}}},
    {"model.embed.weight", {DType::kBF16, {6, 5}}},
    {"h.\xC3\xA9", {DType::kF16, {3, 1, 5}}},
};
double Value(int64_t k) {
  return static_cast<double>(k * 37 % 101 - 50) / 8;
}

// The bytes of elements 0 .. n-1.
std::vector<std::byte> Data(const TensorType& type) {
  std::vector<std::byte> bytes(static_cast<size_t>(type.bytes().v));
  for (int64_t k = 0; k < type.shape.elements(); ++k) {
    std::byte* at = bytes.data() + k * SizeOf(type.dtype);
    const auto put = [&](auto x) { std::memcpy(at, &x, sizeof(x)); };
    const double x = Value(k);
    switch (type.dtype) {
      case DType::kF32:
        put(static_cast<float>(x));
        break;
      case DType::kBF16:
        put(ToBF16(static_cast<float>(x)));
        break;
      case DType::kF16:
        put(ToF16(static_cast<float>(x)));
        break;
      case DType::kF64:
        put(x);
        break;
      case DType::kI32:
        put(static_cast<int32_t>(x * 8));
        break;
      case DType::kI64:
        put(static_cast<int64_t>(x * 8));
        break;
      case DType::kU8:
        put(static_cast<uint8_t>(k));
        break;
    }
  }
  return bytes;
}

TEST(SafetensorsGolden, ReadsWhatTheLibraryWrote) {
  auto file = SafetensorsFile::Open(PosixEnv(), kFolder + "golden.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ(file->metadata(), kMetadata);
  EXPECT_EQ(file->tensors().size(), kTensors.size());
  for (const TensorDeclaration& d : kTensors) {
    ASSERT_TRUE(file->Find(d.name)) << d.name;
    ASSERT_EQ(*file->Find(d.name)->type(), d.type);
    const auto expected = Data(d.type);
    std::vector<std::byte> read(expected.size());
    ASSERT_TRUE(file->ReadTensor(d.name, read).ok());
    EXPECT_EQ(read, expected) << d.name;
    if (d.type.dtype == DType::kI32 || d.type.dtype == DType::kI64) continue;
    for (DType target : {DType::kF32, DType::kBF16}) {
      const auto converted = Data({target, d.type.shape});  // every value is exact in every type
      read.assign(converted.size(), std::byte{0});
      ASSERT_TRUE(file->ReadAs(d.name, target, read).ok());
      EXPECT_EQ(read, converted) << d.name;
    }
  }
}

TEST(SafetensorsGolden, WritesTheLibrarysBytes) {
  MemoryEnv env;
  auto writer = SafetensorsWriter::Create(env, "f", kTensors, kMetadata);
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (size_t i = 0; i < kTensors.size(); ++i) {
    ASSERT_EQ(writer->order()[i].name, kTensors[i].name);
    ASSERT_TRUE(writer->Append(kTensors[i].name, Data(kTensors[i].type)).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  const std::string& ours = env.files["f"];
  const auto golden = ReadTextFile(PosixEnv(), kFolder + "golden.safetensors");
  ASSERT_TRUE(golden.ok());
  // The library writes metadata in the order of a randomly seeded hash table; all behind it must be the same.
  ASSERT_EQ(ours.size(), golden->size());
  const size_t tensors = ours.find("\"ids\"");
  ASSERT_NE(tensors, std::string::npos);
  EXPECT_EQ(ours.substr(tensors), golden->substr(tensors));
  EXPECT_EQ(ours.substr(0, 8), golden->substr(0, 8));
  if (const char* keep = std::getenv("TEMPER_KEEP_GOLDEN")) {
    ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), keep, ours).ok());
  }
}

TEST(SafetensorsGolden, OpensAndRefusesTheFilesThatTheLibraryOpensAndRefuses) {
  // The format's text demands a '{' first and unique keys; the library is milder in these three.
  const std::set<std::string> stricter = {"leading space", "leading newline", "metadata key twice"};
  const auto verdicts = ReadJsonFile(PosixEnv(), kFolder + "verdicts.json");
  ASSERT_TRUE(verdicts.ok()) << verdicts.status().message();
  ASSERT_GT(verdicts->size(), 70u);
  for (const Json& row : *verdicts) {
    const std::string name = row["name"], hex = row["hex"];
    MemoryEnv env;
    std::string& bytes = env.files["f"];
    for (size_t i = 0; i < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    const Status status = SafetensorsFile::Open(env, "f").status();
    const bool expected = row["opens"].get<bool>() && !stricter.contains(name);
    EXPECT_EQ(status.ok(), expected) << name << ": " << status.message();
  }
}

}  // namespace
}  // namespace temper::safetensors_golden_test
