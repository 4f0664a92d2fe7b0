#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/load_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/project_folder_for_test.h"
#include "base/utf8.h"
#include "data/tokenizer/memory_folder.h"
#include "data/tokenizer/stream_decoder.h"
#include "format/json.h"

namespace temper::tokenizer_test {
namespace {

const std::string kFolder = std::string(kProjectFolder) + "/tests/tokenizer/";

std::unique_ptr<Tokenizer> LoadOwn(const std::string& name) {
  auto made = LoadTokenizer(PosixEnv(), kFolder + name);
  EXPECT_TRUE(made.ok()) << made.status().message();
  return made.ok() ? std::move(*made) : nullptr;
}

Json OwnJson(const std::string& name) {
  return *ReadJsonFile(PosixEnv(), kFolder + name + "/tokenizer.json");
}

Result<std::unique_ptr<Tokenizer>> LoadFiles(std::map<std::string, std::string> files) {
  MemoryFolder folder;
  folder.files = std::move(files);
  return LoadTokenizer(folder, MemoryFolder::kPath);
}

std::string LoadError(std::map<std::string, std::string> files) {
  const auto made = LoadFiles(std::move(files));
  EXPECT_FALSE(made.ok());
  return made.status().message();
}

std::string RandomText(std::mt19937& random, size_t characters) {
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    static constexpr char32_t kLimits[] = {0x80, 0x80, 0x800, 0x10000, 0x110000};
    char32_t c = random() % kLimits[random() % 5];
    if (c >= 0xD800 && c < 0xE000) c = ' ';
    utf8::Append(text, c);
  }
  return text;
}

TEST(Tokenizer, ByteLevelRoundTripsAnyText) {
  const auto tokenizer = LoadOwn("tiny_byte_level");
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    const std::string text = RandomText(random, random() % 60);
    const auto ids = tokenizer->Encode(text, {.add_special = false, .parse_special = false});
    ASSERT_TRUE(ids.ok());
    // "<|sep|>" takes spaces with it, but random text does not spell it.
    EXPECT_EQ(tokenizer->Decode(*ids), text);
  }
}

TEST(Tokenizer, ByteFallbackRoundTripsAnyTextButALeadingSpaceMark) {
  for (const char* name : {"tiny_llama2", "tiny_sentencepiece"}) {
    const auto tokenizer = LoadOwn(name);
    std::mt19937 random(2);
    for (int i = 0; i < 200; ++i) {
      const std::string text = "x" + RandomText(random, random() % 40);
      if (text.find("\xE2\x96\x81") != text.npos || text.find('\0') != text.npos) continue;  // ▁ means a space
      const auto ids = tokenizer->Encode(text, {.add_special = false, .parse_special = false});
      ASSERT_TRUE(ids.ok());
      EXPECT_EQ(tokenizer->Decode(*ids), text) << name;
    }
  }
}

TEST(Tokenizer, ReadsBytesThatAreNotUtf8AsReplacementCharacters) {
  const auto tokenizer = LoadOwn("tiny_byte_level");
  const auto ids = tokenizer->Encode("a\xFF\xE2\x96z\xED\xA0\x80");
  const auto same = tokenizer->Encode("a\uFFFD\uFFFDz\uFFFD\uFFFD\uFFFD");
  ASSERT_TRUE(ids.ok() && same.ok());
  EXPECT_EQ(*ids, *same);
}

TEST(Tokenizer, SpecialTokensInTheTextAreParsedOnlyIfWanted) {
  const auto tokenizer = LoadOwn("tiny_byte_level");
  const auto parsed = tokenizer->Encode("<|end|>", {.add_special = false});
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(*parsed, std::vector<int32_t>{*tokenizer->TokenToId("<|end|>")});
  const auto plain = tokenizer->Encode("<|end|>", {.add_special = false, .parse_special = false});
  ASSERT_TRUE(plain.ok());
  for (const int32_t id : *plain) EXPECT_FALSE(tokenizer->IsSpecial(id));
  EXPECT_EQ(tokenizer->Decode(*plain), "<|end|>");
}

TEST(Tokenizer, AddsSpecialTokensOnlyIfWanted) {
  const auto tokenizer = LoadOwn("tiny_sentencepiece");
  const auto with = tokenizer->Encode("the cat"), without = tokenizer->Encode("the cat", {.add_special = false});
  ASSERT_TRUE(with.ok() && without.ok());
  ASSERT_EQ(with->size(), without->size() + 1);
  EXPECT_EQ(with->front(), *tokenizer->bos());
  EXPECT_EQ(tokenizer->Decode(*with), "the cat");
}

TEST(Tokenizer, ManyThreadsGetTheIdsOfOne) {
  for (const char* name : {"tiny_byte_level", "tiny_sentencepiece"}) {
    const auto tokenizer = LoadOwn(name);
    std::mt19937 random(3);
    std::vector<std::string> texts;
    std::vector<std::vector<int32_t>> expected;
    for (int i = 0; i < 64; ++i) {
      texts.push_back("the river " + RandomText(random, 50) + " and the sea");
      expected.push_back(*tokenizer->Encode(texts.back()));
    }
    std::vector<std::thread> threads;
    std::atomic<int> wrong = 0;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 150; ++i) {
          const size_t which = static_cast<size_t>(i * 7 + t) % texts.size();
          if (*tokenizer->Encode(texts[which]) != expected[which]) ++wrong;
          if (tokenizer->Decode(expected[which]).empty()) ++wrong;
        }
      });
    }
    for (auto& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
  }
}

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// For 32 times the bytes in one word n log n takes some 50 times as long, and n squared 1,000 times.
TEST(Tokenizer, EncodesALongWordInLittleMoreThanLinearTime) {
  auto nfc = OwnJson("tiny_byte_level");
  nfc["normalizer"] = {{"type", "NFC"}};
  const auto normalizing = LoadFiles({{"tokenizer.json", nfc.dump()}});
  ASSERT_TRUE(normalizing.ok());
  auto wide = OwnJson("tiny_word_piece");
  wide["model"]["max_input_chars_per_word"] = 1'000'000'000;
  const auto word_piece = LoadFiles({{"tokenizer.json", wide.dump()}});
  ASSERT_TRUE(word_piece.ok());
  const auto bpe = LoadOwn("tiny_byte_level"), sentence_piece = LoadOwn("tiny_llama2");
  const auto unigram = LoadOwn("tiny_unigram_bytes"), normalizing_unigram = LoadOwn("tiny_unigram");
  const auto tiktoken = LoadOwn("tiny_tiktoken");
  const std::pair<std::string, const Tokenizer*> tokenizers[] = {
      {"tiny_byte_level", bpe.get()},   {"tiny_llama2", sentence_piece.get()},
      {"changes", normalizing->get()},  {"tiny_unigram_bytes", unigram.get()},
      {"changes", word_piece->get()},   {"changes", normalizing_unigram.get()},
      {"tiny_tiktoken", tiktoken.get()}};
  std::mt19937 random(4);
  constexpr int kShort = 2'000, kLong = 32 * kShort;
  std::string letters, marks = "aa";
  for (int i = 0; i < kLong; ++i) letters += static_cast<char>('a' + random() % 4);
  for (int i = 0; i < kLong / 2; ++i) marks += i % 2 ? "\xCC\x81" : "\xCC\xA3";  // combining, in the wrong order
  for (const std::string& text : {letters, std::string(kLong, 'a'), std::string(kLong, ' '), marks}) {
    for (const auto& [name, tokenizer] : tokenizers) {
      const auto seconds = [&, &name = name, &tokenizer = *tokenizer](size_t bytes) {
        const double start = ProcessorSeconds();
        const auto ids = tokenizer.Encode(text.substr(0, bytes), {.add_special = false});
        const double end = ProcessorSeconds();
        EXPECT_TRUE(ids.ok()) << ids.status().message();
        if (bytes == kLong && name != "changes") {
          EXPECT_EQ(tokenizer.Decode(*ids).size(), bytes) << name;
        }
        return end - start;
      };
      double few = seconds(kShort);
      for (int i = 0; i < 2; ++i) few = std::min(few, seconds(kShort));
      EXPECT_LT(seconds(kLong), 300 * few) << name << ", a word of '" << text.substr(0, 4) << "'";
    }
  }
}

TEST(Tokenizer, FindsBosEosPadAndStopIds) {
  std::map<std::string, std::string> files = {{"tokenizer.json", OwnJson("tiny_byte_level").dump()}};
  // The model's ids count if the tokenizer's files have none; ids without a token do not.
  files["config.json"] = R"({"bos_token_id": 0, "eos_token_id": [1, 2, 99999, -1], "pad_token_id": -1})";
  auto made = LoadFiles(files);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->bos(), 0);
  EXPECT_EQ((*made)->eos(), 1);
  EXPECT_EQ((*made)->pad(), std::nullopt);
  EXPECT_EQ((*made)->stop_ids(), (std::vector<int32_t>{1, 2}));
  // tokenizer_config.json takes precedence, and its null means none.
  files["tokenizer_config.json"] = R"({"bos_token": null, "eos_token": {"content": "<|pad|>"}})";
  files["special_tokens_map.json"] = R"({"eos_token": "<|begin|>", "pad_token": "<|end|>"})";
  made = LoadFiles(files);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->bos(), std::nullopt);
  EXPECT_EQ((*made)->eos(), 2);
  EXPECT_EQ((*made)->pad(), 1);
}

TEST(Tokenizer, TokenizerConfigSaysWhetherBosAndEosAreAdded) {
  std::map<std::string, std::string> files = {{"tokenizer.json", OwnJson("tiny_byte_level").dump()}};
  files["tokenizer_config.json"] =
      R"({"bos_token": "<|begin|>", "eos_token": "<|end|>", "add_bos_token": false, "add_eos_token": true})";
  const auto made = LoadFiles(files);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto ids = (*made)->Encode("the");
  ASSERT_TRUE(ids.ok());
  EXPECT_NE(ids->front(), 0);
  EXPECT_EQ(ids->back(), 1);
}

TEST(Tokenizer, TokenizerConfigAddsTokensThatTokenizerJsonLacks) {
  std::map<std::string, std::string> files = {{"tokenizer.json", OwnJson("tiny_byte_level").dump()}};
  const auto plain = LoadFiles(files);
  ASSERT_TRUE(plain.ok());
  const int64_t next = (*plain)->vocab_size();
  files["tokenizer_config.json"] =
      R"({"added_tokens_decoder": {")" + std::to_string(next) + R"(": {"content": "<|call|>", "special": true}}})";
  const auto made = LoadFiles(files);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ((*made)->vocab_size(), next + 1);
  const auto ids = (*made)->Encode("a<|call|>b", {.add_special = false});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ((*ids)[1], next);
  EXPECT_EQ((*made)->Decode(*ids), "ab");
  // An id that transformers would not give the token is an error.
  files["tokenizer_config.json"] = R"({"added_tokens_decoder": {"5000": {"content": "<|call|>", "special": true}}})";
  EXPECT_NE(LoadError(files).find("<|call|>"), std::string::npos);
}

TEST(Tokenizer, ErrorsNameUnsupportedAndSupportedKinds) {
  auto json = OwnJson("tiny_byte_level");
  json["model"]["type"] = "WordLevel";
  EXPECT_NE(
      LoadError({{"tokenizer.json", json.dump()}}).find("'WordLevel' is not supported (BPE, Unigram and WordPiece"),
      std::string::npos);
  json = OwnJson("tiny_byte_level");
  json["pre_tokenizer"] = {{"type", "UnicodeScripts"}};
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("'UnicodeScripts' is not supported"), std::string::npos);
  json["pre_tokenizer"] = nullptr;
  json["normalizer"] = {{"type", "Nmt"}};
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("'Nmt' is not supported"), std::string::npos);
  json["normalizer"] = {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}};
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("precompiled_charsmap of its normalizer is broken"),
            std::string::npos);
  json["normalizer"] = nullptr;
  json["model"]["dropout"] = 0.1;
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("dropout"), std::string::npos);
  EXPECT_NE(LoadError({{"tokenizer.model", "IQ== 0\nIg== 1\n"},
                       {"tokenizer_config.json", R"({"tokenizer_class": "ChatGLM4Tokenizer"})"}})
                .find("tiktoken's file of a ChatGLM4Tokenizer is not supported"),
            std::string::npos);
  EXPECT_NE(LoadError({{"vocab.json", "{}"}}).find(": no tokenizer: "), std::string::npos);
  EXPECT_NE(LoadError({{"vocab.json", "{}"},
                       {"merges.txt", ""},
                       {"tokenizer_config.json", R"({"tokenizer_class": "CLIPTokenizer"})"}})
                .find("CLIPTokenizer"),
            std::string::npos);
}

TEST(Tokenizer, ErrorsNameWhatIsWrongInModelsThatAreNotBpe) {
  auto json = OwnJson("tiny_unigram_bytes");
  json["model"]["unk_id"] = nullptr;
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("has no 'unk_id'"), std::string::npos);
  json["model"]["unk_id"] = 70'000;
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("'unk_id' is 70000"), std::string::npos);
  json = OwnJson("tiny_unigram_bytes");
  json["model"]["vocab"][5] = "a";
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("token 5 of the Unigram model"), std::string::npos);
  json["model"]["vocab"][5] = {std::string(2'000, 'a'), -1.5};
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("token 5 has 2000 bytes"), std::string::npos);
  json = OwnJson("tiny_word_piece");
  json["model"]["unk_token"] = "[NONE]";
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("'[NONE]' is not in the vocabulary"), std::string::npos);
  EXPECT_NE(LoadError({{"tiktoken.model", "IQ== 0\nIg= 1\n"}}).find("tiktoken.model, line 2"), std::string::npos);
  EXPECT_NE(LoadError({{"tiktoken.model", "IQ== 0\nIg== 7\n"}}).find("of which one has the rank 7"), std::string::npos);
  EXPECT_NE(LoadError({{"tiktoken.model", "IQ== 0\nIQ== 1\n"}}).find("rank 1 has the token of another"),
            std::string::npos);
}

TEST(Tokenizer, TiktokenNamesItsSpecialTokensAsTheModelsCodeDoes) {
  const std::string ranks = *ReadTextFile(PosixEnv(), kFolder + "tiny_tiktoken/tiktoken.model");
  const auto n = static_cast<int32_t>(std::count(ranks.begin(), ranks.end(), '\n'));
  const auto llama = LoadFiles({{"tokenizer.model", ranks}});
  ASSERT_TRUE(llama.ok()) << llama.status().message();
  EXPECT_EQ((*llama)->vocab_size(), n + 256);
  EXPECT_EQ((*llama)->bos(), n);
  EXPECT_EQ((*llama)->stop_ids(), (std::vector<int32_t>{n + 1, n + 8, n + 9}));
  EXPECT_EQ((*llama)->IdToToken(n + 11), "<|reserved_special_token_2|>");
  EXPECT_EQ((*llama)->IdToToken(n + 255), "<|reserved_special_token_246|>");
  EXPECT_EQ((*llama)->Encode("<|eot_id|>")->back(), n + 9);
  const auto qwen = LoadFiles({{"qwen.tiktoken", ranks}});
  ASSERT_TRUE(qwen.ok()) << qwen.status().message();
  EXPECT_EQ((*qwen)->IdToToken(n + 2), "<|im_end|>");
  EXPECT_EQ((*qwen)->IdToToken(n + 207), "<|extra_204|>");
  EXPECT_EQ((*qwen)->bos(), std::nullopt);
  const auto kimi =
      LoadFiles({{"tiktoken.model", ranks},
                 {"tokenizer_config.json",
                  R"({"tokenizer_class": "TikTokenTokenizer", "eos_token": "[EOS]", "added_tokens_decoder": {")" +
                      std::to_string(n + 1) + R"(": {"content": "[EOS]", "special": true}}})"}});
  ASSERT_TRUE(kimi.ok()) << kimi.status().message();
  EXPECT_EQ((*kimi)->eos(), n + 1);
  EXPECT_EQ((*kimi)->IdToToken(n + 3), "<|reserved_token_" + std::to_string(n + 3) + "|>");
}

TEST(Tokenizer, ErrorsNameTheMergeAndTheToken) {
  auto json = OwnJson("tiny_byte_level");
  json["model"]["merges"][3] = {"zzzz", "y"};
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("merge 3 ('zzzz' 'y') uses 'zzzz'"), std::string::npos);
  json["model"]["merges"][3] = "one two three";
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("merge 3 is not two tokens"), std::string::npos);
  json = OwnJson("tiny_byte_level");
  json["model"]["vocab"]["odd"] = 4'000'000'000;
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("'odd'"), std::string::npos);
  EXPECT_NE(
      LoadError({{"vocab.json", R"({"a": 0, "b": 1})"}, {"merges.txt", "#version: 0.2\na b\n"}}).find("uses 'ab'"),
      std::string::npos);
}

TEST(Tokenizer, APostProcessorMayOnlyAddTokens) {
  auto json = OwnJson("tiny_byte_level");
  json["post_processor"]["special_tokens"]["<|begin|>"]["ids"] = {100'000};
  EXPECT_NE(LoadError({{"tokenizer.json", json.dump()}}).find("100000, which is not a token"), std::string::npos);
}

TEST(Tokenizer, RefusesAFileOfAHundredMegabytesWithoutReadingIt) {
  EXPECT_NE(LoadError({{"tokenizer.json", std::string(100 << 20, '[')}}).find("tokenizer.json"), std::string::npos);
}

// Each of these files would take unbounded time or memory.
TEST(Tokenizer, StopsFilesThatGrowTheTextWithoutBound) {
  auto json = OwnJson("tiny_byte_level");
  Json doubling = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", std::vector<Json>(60, doubling)}};
  auto made = LoadFiles({{"tokenizer.json", json.dump()}});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_FALSE((*made)->Encode("aaaa").ok());

  json = OwnJson("tiny_byte_level");
  json["decoder"] = {{"type", "Sequence"}, {"decoders", std::vector<Json>(60, doubling)}};
  made = LoadFiles({{"tokenizer.json", json.dump()}});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_LT((*made)->Decode(*(*made)->Encode("a b a")).size(), 1u << 20);

  json = OwnJson("tiny_byte_level");
  Json spelling = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::vector<Json>(60, spelling)}};
  made = LoadFiles({{"tokenizer.json", json.dump()}});
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_FALSE((*made)->Encode("ééé").ok());
}

TEST(Tokenizer, TruncatedFilesAreErrorsNotCrashes) {
  for (const char* name :
       {"tiny_byte_level/tokenizer.json", "tiny_llama2/tokenizer.json", "tiny_sentencepiece/tokenizer.model",
        "tiny_unigram/tokenizer.json", "tiny_word_piece/tokenizer.json", "tiny_spiece/spiece.model"}) {
    const std::string whole = *ReadTextFile(PosixEnv(), kFolder + name);
    for (size_t n = 0; n < whole.size(); n += whole.size() / 40 + 1) {
      MemoryFolder folder;
      folder.files[BaseName(name)] = whole.substr(0, n);
      const auto made = LoadTokenizer(folder, MemoryFolder::kPath);
      // A model cut between two pieces is a smaller model.
      EXPECT_TRUE(!made.ok() || std::string(name).ends_with(".model")) << name << " cut to " << n;
    }
  }
}

TEST(Tokenizer, RoundTripsAMegabyteOfEnglish) {
  const char* data = std::getenv("TEMPER_TEST_DATA");
  const std::string path = data ? JoinPath(data, "datasets/text/tinyshakespeare.txt") : "";
  if (!data || !PosixEnv().IsFile(path)) GTEST_SKIP() << "TEMPER_TEST_DATA is not set or lacks datasets/text";
  const std::string text = *ReadTextFile(PosixEnv(), path);
  const auto tokenizer = LoadOwn("tiny_byte_level");
  const auto ids = tokenizer->Encode(text, {.add_special = false});
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(tokenizer->Decode(*ids), text);
}

TEST(StreamDecoder, ReturnsOnlyCompleteCharacters) {
  for (const char* name : {"tiny_byte_level", "tiny_llama2", "tiny_sentencepiece", "tiny_gpt2"}) {
    const auto tokenizer = LoadOwn(name);
    const std::string text = "the cat 😀 猫 und Ü, кот <|x|>  🚀🚀";
    const auto ids = tokenizer->Encode(text);
    ASSERT_TRUE(ids.ok());
    StreamDecoder stream(*tokenizer);
    std::string all;
    for (const int32_t id : *ids) {
      const std::string part = stream.Push(id);
      EXPECT_EQ(utf8::ValidPrefix(part), part.size());
      EXPECT_EQ(part.find(utf8::kReplacement), part.npos);
      all += part;
    }
    EXPECT_EQ(all + stream.Finish(), text) << name;
  }
}

TEST(StreamDecoder, DoesNotHoldBackInvalidBytesForever) {
  const auto tokenizer = LoadOwn("tiny_byte_level");
  const auto lead = tokenizer->TokenToId("ð");  // byte F0
  ASSERT_TRUE(lead);
  StreamDecoder stream(*tokenizer);
  std::string all;
  for (int i = 0; i < 1000; ++i) all += stream.Push(*lead);
  EXPECT_GT(all.size(), 3 * 900u);
  all += stream.Finish();
  EXPECT_EQ(all, tokenizer->Decode(std::vector<int32_t>(1000, *lead)));
}

}  // namespace
}  // namespace temper::tokenizer_test
