// GGUF files against the gguf package (tests/format/make_gguf_goldens.py), and bad ones.
#include "format/gguf/gguf_file.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "base/project_folder_for_test.h"
#include "format/gguf/block_format.h"
#include "format/json.h"
#include "format/memory_env_for_test.h"
#include "format/open_tensor_file.h"

namespace temper::gguf_file_test {
namespace {

const std::string kFolder = std::string(kProjectFolder) + "/tests/format/";

std::string Golden() {
  return *ReadTextFile(PosixEnv(), kFolder + "golden.gguf");
}

Result<GgufFile> OpenText(const std::string& text) {
  MemoryEnv env;
  env.files["f.gguf"] = text;
  return GgufFile::Open(env, "f.gguf");  // whose file keeps the text
}

std::string HashOf(std::span<const std::byte> bytes) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const std::byte b : bytes) hash = (hash ^ static_cast<unsigned char>(b)) * 0x100000001B3;
  return fmt::format("{:016x}", hash);
}

TEST(GgufFile, NumbersOfEveryTypeAreThoseOfTheGgufPackage) {
  const Json goldens = *ReadJsonFile(PosixEnv(), kFolder + "gguf_goldens.json");
  const auto file = OpenTensorFile(PosixEnv(), kFolder + "golden.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  EXPECT_EQ((*file)->kind(), "GGUF");
  ASSERT_EQ((*file)->tensors().size(), goldens["hashes"].size());
  for (const StoredTensor& t : (*file)->tensors()) {
    std::vector<std::byte> x(static_cast<size_t>(t.elements() * 4));
    ASSERT_TRUE((*file)->ReadAs(t.name, DType::kF32, x).ok());
    EXPECT_EQ(HashOf(x), goldens["hashes"][t.name].get<std::string>()) << t.name;
  }
  EXPECT_EQ((*file)->Find("q4_k")->dims, (std::vector<int64_t>{3, 512}));
}

TEST(GgufFile, AnyRangeHasTheBytesOfTheWhole) {
  const auto file = GgufFile::Open(PosixEnv(), kFolder + "golden.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  for (const StoredTensor& t : file->tensors()) {
    std::vector<std::byte> whole(static_cast<size_t>(t.bytes().v));
    ASSERT_TRUE(file->ReadTensor(t.name, whole).ok());
    for (int64_t begin = 0; begin < t.bytes().v; begin += t.bytes().v / 7 + 1) {
      for (const int64_t size : {int64_t{1}, int64_t{6}, (t.bytes().v - begin) / 2}) {
        std::vector<std::byte> part(static_cast<size_t>(std::min(size, t.bytes().v - begin)));
        ASSERT_TRUE(file->ReadRange(t.name, begin, part).ok());
        EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << t.name << " from " << begin;
      }
    }
  }
}

TEST(GgufFile, BlocksAreDecodedAsTheyWereEncoded) {
  for (const BlockType type :
       {BlockType::kQ8_0, BlockType::kQ5_0, BlockType::kQ5_1, BlockType::kQ4K, BlockType::kQ5K, BlockType::kQ6K}) {
    const BlockFormat& format = FormatOf(type);
    const BlockDecoder* const decoder = FindBlockDecoder(format.id);
    ASSERT_NE(decoder, nullptr) << format.name;
    EXPECT_EQ(decoder->name, format.name);
    EXPECT_EQ(decoder->elements, format.elements);
    EXPECT_EQ(decoder->bytes, format.bytes);
    EXPECT_EQ(NameOfGgmlType(format.id), format.name);
    std::vector<float> x(512), y(512);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 50;
    std::vector<std::byte> blocks(static_cast<size_t>(format.BytesOf(512).v));
    format.encode(x.data(), blocks.data(), 512);
    decoder->decode(blocks.data(), y.data(), 512);
    const float step = 2.f / static_cast<float>(format.bytes * 8 / format.elements >= 8 ? 255 : 15);
    for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(x[i], y[i], 1.5f * step) << format.name << " " << i;
  }
}

TEST(GgufFile, KeysOfAllTypesAreRead) {
  const auto file = GgufFile::Open(PosixEnv(), kFolder + "golden.gguf");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto expect = [&](const char* key, const GgufValue& value) {
    const GgufValue* const found = file->keys().Find(key);
    ASSERT_NE(found, nullptr) << key;
    EXPECT_TRUE(*found == value) << key;
  };
  expect("n.u8", uint32_t{200});
  expect("n.i8", int32_t{-100});
  expect("n.u16", uint32_t{60000});
  expect("n.i16", int32_t{-30000});
  expect("n.u32", uint32_t{4000000000});
  expect("n.i32", int32_t{-2000000000});
  expect("n.u64", uint32_t{7});
  EXPECT_EQ(file->keys().Find("n.u64_large"), nullptr);
  expect("n.i64", int32_t{-7});
  expect("n.f32", 0.25f);
  expect("n.f64", 0.5f);
  expect("n.bool", true);
  expect("n.text", std::string("ein Wört"));
  expect("n.texts", std::vector<std::string>{"a", "", "▁b"});
  expect("n.numbers", std::vector<int32_t>{1, -2, 3});
  expect("n.floats", std::vector<float>{0.5f, -1.5f});
  expect("n.flags", std::vector<bool>{true, false, true});
}

TEST(GgufFile, TruncatedFilesAreRefused) {
  const std::string whole = Golden();
  ASSERT_TRUE(OpenText(whole).ok());
  for (size_t n = 0; n < whole.size() - 32; n += n < 2000 ? 7 : 501) {
    const auto file = OpenText(whole.substr(0, n));
    ASSERT_FALSE(file.ok()) << n;
    EXPECT_NE(file.status().message().find("f.gguf"), std::string::npos) << file.status().message();
  }
}

TEST(GgufFile, DamagedHeadersAreRefusedOrReadWithinTheFile) {
  const std::string whole = Golden();
  std::mt19937 random(47);
  int opened = 0;
  for (int n = 0; n < 2000; ++n) {
    MemoryEnv env;
    std::string& text = env.files["f.gguf"] = whole;
    for (int i = 0; i < 3; ++i) text[random() % 1600] = static_cast<char>(random());
    const auto file = GgufFile::Open(env, "f.gguf");
    if (!file.ok()) continue;
    ++opened;
    for (const StoredTensor& t : file->tensors()) {
      std::vector<std::byte> bytes(static_cast<size_t>(t.bytes().v));
      EXPECT_TRUE(file->ReadTensor(t.name, bytes).ok()) << t.name;
    }
  }
  EXPECT_GT(opened, 100);
  EXPECT_LT(opened, 1900);
}

template <class T>
void Add(std::string& text, T x) {
  text.append(reinterpret_cast<const char*>(&x), sizeof(x));
}
void AddText(std::string& text, std::string_view s) {
  Add(text, static_cast<uint64_t>(s.size()));
  text += s;
}
std::string Head(uint64_t tensors, uint64_t pairs, uint32_t version = 3) {
  std::string text = "GGUF";
  Add(text, version);
  Add(text, tensors);
  Add(text, pairs);
  return text;
}
void AddTensor(std::string& text, std::string_view name, std::vector<uint64_t> dims, uint32_t type, uint64_t begin) {
  AddText(text, name);
  Add(text, static_cast<uint32_t>(dims.size()));
  for (const uint64_t dim : dims) Add(text, dim);
  Add(text, type);
  Add(text, begin);
}

int64_t PeakKiB() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

// Refused with these words, within 100 MB and a second.
void ExpectRefused(const std::string& text, const std::string& words) {
  const int64_t before = PeakKiB();
  const auto start = std::chrono::steady_clock::now();
  const auto file = OpenText(text);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  ASSERT_FALSE(file.ok()) << words;
  EXPECT_NE(file.status().message().find(words), std::string::npos) << file.status().message();
  EXPECT_LT(PeakKiB() - before, 100'000) << words;
  EXPECT_LT(seconds.count(), 1) << words;
}

TEST(GgufFile, FilesThatLieAreRefusedByWhatIsWrong) {
  constexpr uint64_t kHuge = uint64_t{1} << 60;
  const std::string room(4096, '\0');
  ExpectRefused("GGUX" + Head(0, 0).substr(4) + room, "does not begin as a GGUF file");
  ExpectRefused(Head(0, 0, 1) + room, "version 1");
  ExpectRefused(Head(0, 0, 3u << 24) + room, "big-endian");
  ExpectRefused(Head(kHuge, 0) + room, "cannot hold");
  ExpectRefused(Head(0, kHuge) + room, "cannot hold");
  ExpectRefused(Head(0, 200) + room, "stands twice");
  ExpectRefused(Head(0, 20'000) + std::string(1 << 20, '\0'), "20000 keys");

  std::string text = Head(0, 1);
  Add(text, kHuge);
  ExpectRefused(text + room, "a key of 1152921504606846976 bytes");
  text = Head(0, 1);
  AddText(text, "k");
  ExpectRefused(text + std::string(4, '\x7F') + room, "which GGUF does not have");
  for (const uint32_t type : {0u, 6u, 8u, 9u}) {  // bytes, floats, texts, lists
    std::string list = text;
    Add(list, uint32_t{9});
    Add(list, type);
    Add(list, kHuge);
    ExpectRefused(list + room, type == 9 ? "a list of lists" : "more than the file");
  }
  std::string texts = text;
  Add(texts, uint32_t{9});
  Add(texts, uint32_t{8});
  Add(texts, uint64_t{2'000'000});
  ExpectRefused(texts + std::string(16'000'000, '\0'), "texts in its lists");
  std::string bytes = text;
  Add(bytes, uint32_t{9});
  Add(bytes, uint32_t{1});
  Add(bytes, uint64_t{30'000'000});
  ExpectRefused(bytes + std::string(30'000'000, '\0'), "numbers in its lists");

  const auto with = [&](auto&& add, uint64_t tensors = 1) {
    std::string file = Head(tensors, 0);
    add(file);
    return file + room;
  };
  ExpectRefused(with([](auto& f) { AddTensor(f, "t", {64, kHuge, 64}, 0, 0); }), "larger than any file");
  ExpectRefused(with([](auto& f) { AddTensor(f, "t", {1, 1, 1, 1, 1}, 0, 0); }), "5 dimensions");
  ExpectRefused(with([](auto& f) { AddTensor(f, "t", {4096}, 0, 0); }), "truncated");
  ExpectRefused(with([](auto& f) { AddTensor(f, "t", {8}, 0, 8); }), "no multiple of 32");
  ExpectRefused(with([](auto& f) { AddTensor(f, "t", {8}, 0, kHuge); }), "begins at byte");
  ExpectRefused(with([](auto& f) { AddTensor(f, "t", {33}, 8, 0); }), "rows of 33");
  ExpectRefused(with([](auto& f) { AddTensor(f, "t", {256}, 20, 0); }), "of type iq4_nl");
  ExpectRefused(with([](auto& f) { AddTensor(f, "t", {256}, 999, 0); }), "of type 999");
  ExpectRefused(with([](auto& f) { AddTensor(f, "a", {64}, 0, 0), AddTensor(f, "b", {8}, 0, 32); }, 2), "overlap");
  ExpectRefused(with([](auto& f) { AddTensor(f, "a", {8}, 0, 0), AddTensor(f, "a", {8}, 0, 32); }, 2), "stands twice");
}

}  // namespace
}  // namespace temper::gguf_file_test
