// TorchFile against PyTorch (tests/format/make_torch_goldens.py): of what torch.save writes it reads what torch.load
// does, which safetensors' own library has written beside it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/project_folder_for_test.h"
#include "format/conversion.h"
#include "format/safetensors.h"
#include "format/torch/torch_file.h"

namespace temper::torch_golden_test {
namespace {

constexpr const char* kNames[] = {"archive", "protocol_4", "sequence", "no_sums", "untyped", "training_run"};

std::vector<std::byte> Bytes(const TensorFile& file, const StoredTensor& t) {
  std::vector<std::byte> bytes(static_cast<size_t>(t.bytes().v));
  EXPECT_TRUE(file.ReadTensor(t.name, bytes).ok()) << t.name;
  return bytes;
}

void ExpectSameTensors(const std::string& stem) {
  SCOPED_TRACE(stem);
  const auto file = TorchFile::Open(PosixEnv(), stem + ".bin");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto expected = SafetensorsFile::Open(PosixEnv(), stem + ".safetensors");
  ASSERT_TRUE(expected.ok()) << expected.status().message();
  EXPECT_EQ(file->tensors().size(), expected->tensors().size());
  for (const StoredTensor& wanted : expected->tensors()) {
    SCOPED_TRACE(wanted.name);
    const StoredTensor* found = file->Find(wanted.name);
    ASSERT_NE(found, nullptr);
    ASSERT_EQ(found->ToString(), wanted.ToString());
    const auto bytes = Bytes(*expected, wanted);
    EXPECT_EQ(Bytes(*file, *found), bytes);
    // Any range is the same part of it.
    for (size_t begin = 0; begin < bytes.size(); begin += bytes.size() / 7 + 1) {
      for (const size_t n : {size_t{1}, bytes.size() / 3, bytes.size() - begin}) {
        if (n == 0 || n > bytes.size() - begin) continue;
        std::vector<std::byte> part(n);
        ASSERT_TRUE(file->ReadRange(wanted.name, static_cast<int64_t>(begin), part).ok());
        EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.begin() + static_cast<ptrdiff_t>(begin)))
            << n << " bytes from " << begin;
      }
    }
    const auto type = wanted.type();
    if (!type.ok() || !IsFloating(type->dtype)) continue;
    std::vector<std::byte> floats(static_cast<size_t>(wanted.elements() * 4)), same = floats, staging(64);
    ASSERT_TRUE(file->ReadAs(wanted.name, DType::kF32, floats, staging).ok());
    ASSERT_TRUE(expected->ReadAs(wanted.name, DType::kF32, same).ok());
    EXPECT_EQ(floats, same);
  }
}

// Also those of `make_torch_goldens.py --random N FOLDER`, if TEMPER_TORCH_GOLDENS names the folder.
TEST(TorchGolden, ReadsWhatTorchLoads) {
  std::vector<std::string> stems;
  for (const char* name : kNames) stems.push_back(std::string(kProjectFolder) + "/tests/format/torch/" + name);
  if (const char* folder = std::getenv("TEMPER_TORCH_GOLDENS")) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      std::filesystem::path path = file.path();
      if (path.extension() == ".bin") stems.push_back(path.replace_extension().string());
    }
  }
  for (const std::string& stem : stems) ExpectSameTensors(stem);
}

// Tied weights stand in the file once; a transposed view has no place that could be mapped.
TEST(TorchGolden, TensorsLieWhereTheFileHasThem) {
  const auto file = TorchFile::Open(PosixEnv(), std::string(kProjectFolder) + "/tests/format/torch/archive.bin");
  ASSERT_TRUE(file.ok()) << file.status().message();
  ASSERT_TRUE(file->PlaceOf("embed.weight"));
  EXPECT_EQ(file->PlaceOf("embed.weight"), file->PlaceOf("head.weight"));
  EXPECT_EQ(*file->PlaceOf("rows"), *file->PlaceOf("embed.weight") + 2 * 8 * 4);
  EXPECT_EQ(*file->PlaceOf("embed.weight") % 64, 0);
  EXPECT_TRUE(file->PlaceOf("one_row"));
  for (const char* name : {"transposed", "columns", "column", "permuted", "every_other", "expanded"}) {
    EXPECT_FALSE(file->PlaceOf(name)) << name;
  }
}

}  // namespace
}  // namespace temper::torch_golden_test
