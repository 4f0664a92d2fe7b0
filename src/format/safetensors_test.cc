// Round trips through writer and reader, reads of parts, conversions, faults, and real files.
#include "format/safetensors.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "base/faulty_env.h"
#include "base/scratch_folder.h"
#include "format/conversion.h"
#include "format/memory_env_for_test.h"
#include "format/safetensors_writer.h"

namespace temper::safetensors_test {
namespace {

std::vector<std::byte> RandomBytes(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(n);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

const std::vector<TensorDeclaration> kTensors = {
    {"bf", {DType::kBF16, {3, 5}}}, {"f", {DType::kF32, {7}}},       {"h", {DType::kF16, {2, 1, 3}}},
    {"scalar", {DType::kF32, {}}},  {"none", {DType::kF32, {0, 4}}}, {"long", {DType::kI64, {2}}},
    {"d", {DType::kF64, {3}}},      {"i", {DType::kI32, {5}}},
};

Status WriteAll(Env& env, const std::string& path, size_t piece) {
  auto writer = SafetensorsWriter::Create(env, path, kTensors);
  if (!writer.ok()) return writer.status();
  uint32_t seed = 0;
  for (const StoredTensor& t : writer->order()) {
    const auto bytes = RandomBytes(static_cast<size_t>(t.bytes().v), seed++);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      TEMPER_RETURN_IF_ERROR(writer->Append(t.name, std::span(bytes).subspan(at, std::min(piece, bytes.size() - at))));
    }
  }
  return writer->Finish();
}

TEST(Safetensors, WhatIsWrittenIsReadBackWhateverThePieces) {
  ScratchFolder folder;
  const std::string path = folder / "w.safetensors";
  std::string first;
  for (size_t piece : {1000, 1, 3}) {
    ASSERT_TRUE(WriteAll(PosixEnv(), path, piece).ok());
    const auto bytes = ReadTextFile(PosixEnv(), path);
    ASSERT_TRUE(bytes.ok());
    if (first.empty()) first = *bytes;
    EXPECT_EQ(*bytes, first) << "the file depends on how it was fed";
    auto file = SafetensorsFile::Open(PosixEnv(), path);
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->metadata().at("format"), "pt");
    EXPECT_EQ(file->tensors().size(), kTensors.size());
    uint32_t seed = 0;
    for (const StoredTensor& t : file->tensors()) {
      std::vector<std::byte> read(static_cast<size_t>(t.bytes().v));
      ASSERT_TRUE(file->ReadTensor(t.name, read).ok());
      EXPECT_EQ(read, RandomBytes(read.size(), seed++)) << t.name;
      EXPECT_EQ((file->data_begin() + t.begin) % (t.dtype->bits / 8), 0) << t.name << " is not aligned";
    }
    for (const TensorDeclaration& d : kTensors) {
      ASSERT_TRUE(file->Find(d.name));
      EXPECT_EQ(*file->Find(d.name)->type(), d.type);
    }
    EXPECT_EQ(SafetensorsWriter::FileSize(kTensors)->v, static_cast<int64_t>(bytes->size()));
  }
  EXPECT_EQ(PosixEnv().List(FolderOf(path))->size(), 1u) << "a temporary was left";
}

// What reads or writes them around the page cache needs no copy then.
TEST(Safetensors, WrittenDirectlyTensorsOfWholeBlocksBeginAtOne) {
  const TensorType odd{DType::kF32, {3}}, whole{DType::kBF16, {2, 3, 1024}}, both{DType::kF32, {3, 1024}};
  const std::vector<TensorDeclaration> declared = {{"a", odd}, {"b", whole}, {"c", odd}, {"d", both}};
  MemoryEnv env;
  auto writer = SafetensorsWriter::Create(env, "f", declared, SafetensorsWriter::DefaultMetadata(), WriteMode::kDirect);
  ASSERT_TRUE(writer.ok());
  EXPECT_EQ(std::ssize(writer->head()) % kDirectBlock, 0);
  std::string order;
  for (const StoredTensor& t : writer->order()) {
    order += t.name;
    if (t.bytes().v % kDirectBlock == 0) {
      EXPECT_EQ(t.begin % kDirectBlock, 0) << t.name;
    }
    ASSERT_TRUE(writer->Append(t.name, RandomBytes(static_cast<size_t>(t.bytes().v), 1)).ok());
  }
  EXPECT_EQ(order, "dbac");
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ((*env.OpenForRead("f"))->size(), writer->file_size());
  EXPECT_EQ(*SafetensorsWriter::FileSize(declared, SafetensorsWriter::DefaultMetadata(), WriteMode::kDirect),
            writer->file_size());
}

TEST(Safetensors, ReadsRangesOfBytesAndElements) {
  MemoryEnv env;
  ASSERT_TRUE(WriteAll(env, "f", 100).ok());
  auto file = SafetensorsFile::Open(env, "f");
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> whole(30), part(10);
  ASSERT_TRUE(file->ReadTensor("bf", whole).ok());
  ASSERT_TRUE(file->ReadRange("bf", 20, part).ok());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 20));
  // Row 2 of [3, 5] as stored and as f32.
  ASSERT_TRUE(file->ReadElementsAs("bf", 10, DType::kBF16, part).ok());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 20));
  std::vector<std::byte> row(20), expected(20);
  ASSERT_TRUE(file->ReadElementsAs("bf", 10, DType::kF32, row).ok());
  ConvertReference(DType::kBF16, whole.data() + 20, DType::kF32, expected.data(), 5);
  EXPECT_EQ(row, expected);
  ASSERT_TRUE(file->ReadRange("bf", 30, {}).ok());
}

TEST(Safetensors, AReadThatDoesNotFitTheTensorIsAnErrorThatNamesIt) {
  MemoryEnv env;
  ASSERT_TRUE(WriteAll(env, "f", 100).ok());
  auto file = SafetensorsFile::Open(env, "f");
  ASSERT_TRUE(file.ok());
  std::vector<std::byte> out(32);
  const auto expect = [](const Status& status, StatusCode code, const std::string& fragment) {
    EXPECT_EQ(status.code(), code) << status.message();
    EXPECT_NE(status.message().find(fragment), std::string::npos) << status.message();
  };
  expect(file->ReadTensor("absent", out), StatusCode::kNotFound, "no tensor 'absent' among its 8");
  expect(file->ReadTensor("bf", out), StatusCode::kCorrupt, "'bf' is BF16[3, 5] of 30 bytes, but 32");
  expect(file->ReadRange("bf", 0, out), StatusCode::kCorrupt, "32 bytes from byte 0");
  expect(file->ReadRange("bf", -1, std::span(out).first(1)), StatusCode::kCorrupt, "from byte -1");
  expect(file->ReadRange("bf", INT64_MAX, std::span(out).first(1)), StatusCode::kCorrupt, "'bf'");
  expect(file->ReadAs("bf", DType::kF32, out), StatusCode::kCorrupt, "15 elements, but 8");
  expect(file->ReadElementsAs("bf", 8, DType::kF32, out), StatusCode::kCorrupt, "8 elements from element 8");
  expect(file->ReadAs("long", DType::kF32, std::span(out).first(8)), StatusCode::kUnsupported, "stored as I64");
  EXPECT_TRUE(file->ReadAs("long", DType::kI64, std::span(out).first(16)).ok());
}

TEST(Safetensors, ConvertsWhileReadingWhateverTheStaging) {
  constexpr int64_t kElements = 200'003;  // three pieces of the default staging and a remainder
  for (DType stored : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    MemoryEnv env;
    auto writer = SafetensorsWriter::Create(env, "f", {{"w", {stored, {kElements}}}});
    ASSERT_TRUE(writer.ok());
    const auto bytes = RandomBytes(static_cast<size_t>(kElements * SizeOf(stored)), 7);
    ASSERT_TRUE(writer->Append("w", bytes).ok());
    ASSERT_TRUE(writer->Finish().ok());
    auto file = SafetensorsFile::Open(env, "f");
    ASSERT_TRUE(file.ok());
    for (DType target : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
      std::vector<std::byte> expected(static_cast<size_t>(kElements * SizeOf(target))), out(expected.size());
      Convert(stored, bytes.data(), target, expected.data(), kElements);
      alignas(8) std::byte staging[200];
      for (auto s : {std::span<std::byte>(), std::span<std::byte>(staging)}) {
        std::fill(out.begin(), out.end(), std::byte{0});
        ASSERT_TRUE(file->ReadAs("w", target, out, s).ok());
        EXPECT_EQ(out, expected) << ToString(stored) << " to " << ToString(target);
      }
    }
  }
}

TEST(Safetensors, AFullDiskAtAnyWriteIsReportedAndLeavesTheOldFile) {
  ScratchFolder folder;
  const std::string path = folder / "w.safetensors";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, "what was there before").ok());
  bool finished = false;
  int faults = 0;
  for (int fail_at = 0; !finished; ++fail_at) {
    int calls = 0;
    FaultyEnv env(PosixEnv(), [&](const std::string& operation, const std::string&) {
      if (operation == "remove") return OkStatus();
      return calls++ == fail_at ? IoError(operation + ": no space left on device") : OkStatus();
    });
    const Status status = WriteAll(env, path, 8);
    finished = status.ok();
    if (finished) break;
    ++faults;
    EXPECT_NE(status.message().find("no space left"), std::string::npos) << status.message();
    const auto names = *PosixEnv().List(FolderOf(path));
    EXPECT_EQ(names, std::vector<std::string>{"w.safetensors"}) << "after fault " << fail_at;
    const bool renamed =
        status.message().starts_with("sync") && calls > 10 && SafetensorsFile::Open(PosixEnv(), path).ok();
    if (!renamed) {
      EXPECT_EQ(*ReadTextFile(PosixEnv(), path), "what was there before") << "after fault " << fail_at;
    }
  }
  EXPECT_GT(faults, 20);
  EXPECT_TRUE(SafetensorsFile::Open(PosixEnv(), path).ok());
}

TEST(Safetensors, AnErrorWhileWritingIsSticky) {
  MemoryEnv memory;
  bool fail = false;
  FaultyEnv env(memory, [&](const std::string& operation, const std::string&) {
    return fail && operation == "append" ? IoError("no space left") : OkStatus();
  });
  auto writer = SafetensorsWriter::Create(env, "f", {{"w", {DType::kF32, {2}}}});
  ASSERT_TRUE(writer.ok());
  const auto bytes = RandomBytes(4, 0);
  fail = true;
  EXPECT_FALSE(writer->Append("w", bytes).ok());
  fail = false;
  EXPECT_FALSE(writer->Append("w", bytes).ok());
  EXPECT_FALSE(writer->Finish().ok());
  EXPECT_FALSE(memory.files.contains("f"));
}

TEST(Safetensors, AFailedReadAtAnyPointIsAnError) {
  MemoryEnv memory;
  ASSERT_TRUE(WriteAll(memory, "f", 100).ok());
  for (int fail_at = 0; fail_at < 4; ++fail_at) {
    int calls = 0;
    FaultyEnv env(memory, [&](const std::string& operation, const std::string&) {
      return calls++ == fail_at ? IoError(operation + ": input/output error") : OkStatus();
    });
    auto file = SafetensorsFile::Open(env, "f");  // open, read of the length, read of the header
    std::vector<std::byte> out(60);
    const Status status = file.ok() ? file->ReadAs("bf", DType::kF32, out) : file.status();
    EXPECT_NE(status.message().find("input/output error"), std::string::npos) << fail_at << status.message();
    EXPECT_EQ(file.ok(), fail_at == 3);
  }
}

TEST(Safetensors, AFileThatShrinksAfterOpeningIsAnErrorNotASignal) {
  ScratchFolder folder;
  const std::string path = folder / "w.safetensors";
  ASSERT_TRUE(WriteAll(PosixEnv(), path, 100).ok());
  auto file = SafetensorsFile::Open(PosixEnv(), path);
  ASSERT_TRUE(file.ok());
  ASSERT_TRUE(PosixEnv().Truncate(path, file->data_begin() + 4).ok());
  std::vector<std::byte> out(30);
  const Status status = file->ReadTensor("bf", out);
  EXPECT_NE(status.message().find("truncated"), std::string::npos) << status.message();
}

TEST(SafetensorsDeathTest, FeedingTheWriterWrongIsABug) {
  MemoryEnv env;
  auto writer = SafetensorsWriter::Create(env, "f", {{"a", {DType::kF32, {2}}}, {"b", {DType::kF32, {1}}}});
  ASSERT_TRUE(writer.ok());
  const auto bytes = RandomBytes(16, 0);
  EXPECT_DEATH((void)writer->Append("b", std::span(bytes).first(4)), "turn");
  EXPECT_DEATH((void)writer->Append("a", bytes), "F32\\[2\\] but gets 16");
  EXPECT_DEATH((void)writer->Finish(), "a lacks bytes");
}

TEST(Safetensors, OpensRealModels) {
  const char* root = std::getenv("TEMPER_TEST_DATA");
  if (!root) GTEST_SKIP() << "TEMPER_TEST_DATA is unset";
  const std::string models = std::string(root) + "/models/";
  if (!PosixEnv().IsFolder(models)) GTEST_SKIP() << models << " is not there";
  auto f32 = SafetensorsFile::Open(PosixEnv(), models + "tinystories-656k/model.safetensors");
  auto bf16 = SafetensorsFile::Open(PosixEnv(), models + "tinystories-656k-bf16/model.safetensors");
  auto stories = SafetensorsFile::Open(PosixEnv(), models + "stories260k/model.safetensors");
  ASSERT_TRUE(f32.ok()) << f32.status().message();
  ASSERT_TRUE(bf16.ok()) << bf16.status().message();
  ASSERT_TRUE(stories.ok()) << stories.status().message();
  EXPECT_GT(stories->tensors().size(), 20u);
  EXPECT_TRUE(f32->Find("lm_head.weight"));
  ASSERT_EQ(f32->tensors().size(), bf16->tensors().size());
  for (const StoredTensor& t : f32->tensors()) {
    // The bf16 copy is lossless, so both must read as the same numbers in both types.
    for (DType target : {DType::kF32, DType::kBF16}) {
      std::vector<std::byte> a(static_cast<size_t>(t.elements() * SizeOf(target))), b(a.size());
      ASSERT_TRUE(f32->ReadAs(t.name, target, a).ok());
      ASSERT_TRUE(bf16->ReadAs(t.name, target, b).ok());
      EXPECT_EQ(a, b) << t.name;
    }
  }
}

}  // namespace
}  // namespace temper::safetensors_test
