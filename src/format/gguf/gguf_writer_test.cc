// The writer against the bytes of the gguf package (tests/parity/gguf/make_block_goldens.py), and its refusals.
#include "format/gguf/gguf_writer.h"

#include <gtest/gtest.h>

#include "format/memory_env_for_test.h"
#include "tensor/dtype.h"

namespace temper::gguf_writer_test {
namespace {

GgufMetadata SomeMetadata() {
  GgufMetadata m;
  m.Set("general.architecture", std::string("llama"));
  m.Set("llama.block_count", uint32_t{2});
  m.Set("llama.rope.freq_base", 10000.f);
  m.Set("tokenizer.ggml.add_bos_token", true);
  m.Set("a.number", int32_t{-3});
  m.Set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "▁b", "c d"});
  m.Set("tokenizer.ggml.scores", std::vector<float>{0.5f, -1.f});
  m.Set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 2, 3});
  m.Set("llama.attention.sliding_window_pattern", std::vector<bool>{true, false});
  return m;
}

const std::vector<GgufDeclaration> kTensors = {{"token_embd.weight", {2, 3}, BlockType::kF32},
                                               {"output_norm.weight", {3}, BlockType::kF32},
                                               {"blk.0.ffn_up.weight", {2, 4}, BlockType::kF16}};

TEST(GgufWriter, WritesTheBytesOfTheGgufPackageWhateverThePieces) {
  for (const size_t piece : {1000, 1, 5}) {
    MemoryEnv env;
    auto writer = GgufWriter::Create(env, "w.gguf", SomeMetadata(), kTensors);
    ASSERT_TRUE(writer.ok()) << writer.status().message();
    for (const GgufDeclaration& t : kTensors) {
      std::vector<float> x;
      for (int64_t i = 0; i < t.elements(); ++i) x.push_back(static_cast<float>(i));
      std::vector<std::byte> bytes(static_cast<size_t>(t.bytes().v));
      FormatOf(t.type).encode(x.data(), bytes.data(), std::ssize(x));
      for (size_t at = 0; at < bytes.size(); at += piece) {
        ASSERT_TRUE(writer->Append(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at))).ok());
      }
    }
    EXPECT_FALSE(env.files.contains("w.gguf"));
    ASSERT_TRUE(writer->Finish().ok());
    const std::string& file = env.files.at("w.gguf");
    EXPECT_EQ(writer->file_size().v, std::ssize(file));
    uint64_t h = 0xCBF29CE484222325;
    for (const char c : file) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001B3;
    EXPECT_EQ(file.size(), 736U);
    EXPECT_EQ(h, 0xdde6f2bc2cfb219f);
  }
}

TEST(GgufWriter, AnUnfinishedFileIsRemoved) {
  MemoryEnv env;
  { ASSERT_TRUE(GgufWriter::Create(env, "w.gguf", SomeMetadata(), kTensors).ok()); }
  EXPECT_TRUE(env.files.empty());
}

TEST(GgufWriter, RefusesNamesThatLlamaCppCannotRead) {
  MemoryEnv env;
  const auto status_of = [&](std::vector<GgufDeclaration> tensors) {
    return GgufWriter::Create(env, "w.gguf", {}, std::move(tensors)).status();
  };
  EXPECT_EQ(status_of({{std::string(64, 'a'), {1}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status_of({{"a", {1}}, {"a", {1}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(status_of({{std::string(63, 'a'), {1}}}).ok());
}

TEST(GgufMetadata, ALaterValueTakesThePlaceOfTheFirst) {
  GgufMetadata m;
  m.Set("a", uint32_t{1});
  m.Set("b", true);
  GgufMetadata more;
  more.Set("a", uint32_t{2});
  m.Add(more);
  ASSERT_EQ(m.pairs().size(), 2U);
  EXPECT_EQ(m.pairs()[0].first, "a");
  EXPECT_EQ(std::get<uint32_t>(*m.Find("a")), 2U);
  EXPECT_EQ(m.Find("c"), nullptr);
}

}  // namespace
}  // namespace temper::gguf_writer_test
