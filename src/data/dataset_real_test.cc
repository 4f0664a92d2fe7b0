// Real data sets under real tokenizers. The data is not part of the repository: see docs on TEMPER_TEST_DATA.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/project_folder_for_test.h"
#include "base/scratch_folder.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/records.h"
#include "data/sampler.h"
#include "data/tokenizer/load_tokenizer.h"

namespace temper::dataset_real_test {
namespace {

class RealData : public testing::Test {
 protected:
  // Skips the test if the data is missing.
  void SetUp() override {
    const char* root = std::getenv("TEMPER_TEST_DATA");
    if (!root || !std::filesystem::exists(root)) GTEST_SKIP() << "TEMPER_TEST_DATA names no folder of test data";
    root_ = root;
  }
  std::string Path(const std::string& name) const { return JoinPath(root_, name); }
  bool Has(const std::string& name) const { return std::filesystem::exists(Path(name)); }
  // Takes a folder or a single SentencePiece model.
  const Tokenizer& Load(const std::string& name) {
    std::string folder = Path(name);
    if (name.ends_with(".model")) {
      folder = scratch_.path();
      std::filesystem::remove(scratch_ / "tokenizer.model");
      std::filesystem::create_symlink(Path(name), scratch_ / "tokenizer.model");
    }
    auto tokenizer = LoadTokenizer(PosixEnv(), folder);
    TEMPER_CHECK(tokenizer.ok()) << tokenizer.status().message();
    tokenizer_ = *std::move(tokenizer);
    return *tokenizer_;
  }

  std::string root_;
  const ScratchFolder scratch_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

std::string Fnv1a(const TokenStore& store) {
  uint64_t hash = 0xCBF29CE484222325;
  const auto add = [&](uint32_t value, int bytes) {
    for (int b = 0; b < bytes; ++b) hash = (hash ^ (value >> (8 * b) & 0xFF)) * 0x100000001B3;
  };
  for (int64_t s = 0; s < store.size(); ++s) {
    const TokenSample sample = store.sample(s);
    for (int64_t i = 0; i < sample.length(); ++i) {
      add(static_cast<uint32_t>(sample.token(i)), 4);
      add(sample.supervised(i), 1);
    }
  }
  std::string hex;
  for (int shift = 60; shift >= 0; shift -= 4) hex += "0123456789abcdef"[hash >> shift & 15];
  return hex;
}

// Every token and every flag as tests/data/make_dataset_goldens.py computes them with Hugging Face's tokenizers.
TEST_F(RealData, TokensAndFlagsAreThoseOfTheGoldens) {
  auto goldens = ReadJsonFile(PosixEnv(), JoinPath(kProjectFolder, "tests/data/dataset_goldens.json"));
  ASSERT_TRUE(goldens.ok()) << goldens.status().message();
  std::string loaded;
  int compared = 0;
  for (const Json& golden : *goldens) {
    const auto folder = golden["tokenizer"].get<std::string>(), data = golden["data"].get<std::string>();
    if (!Has(folder) || !Has(data)) continue;
    if (folder != loaded) Load(folder);
    loaded = folder;
    SCOPED_TRACE(folder + ", " + data);
    const auto set = LoadDataset(PosixEnv(), {{Path(data)}}, *tokenizer_, nullptr,
                                 {.tokenize = {.max_seq_len = golden["max_seq_len"].get<int64_t>()}, .threads = 2});
    ASSERT_TRUE(set.ok()) << set.status().message();
    EXPECT_EQ(set->store.size(), golden["samples"]);
    EXPECT_EQ(set->store.total_tokens(), golden["tokens"]);
    EXPECT_EQ(set->store.total_supervised(), golden["supervised"]);
    EXPECT_EQ(set->statistics.cut_rows, golden["cut_rows"]);
    EXPECT_EQ(set->statistics.dropped_rows, golden["dropped_rows"]);
    EXPECT_EQ(set->statistics.split_borders, golden["split_borders"]);
    EXPECT_EQ(Fnv1a(set->store), golden["fnv1a"]);
    EXPECT_EQ(set->statistics.unknown.count, golden["unknown"]);
    Json characters = Json::array();
    for (const auto& [character, n] : set->statistics.unknown.MostFrequent()) characters.push_back(character);
    EXPECT_EQ(characters, golden["unknown_characters"]);
    ++compared;
  }
  if (compared == 0) GTEST_SKIP() << "none of the goldens' data is in " << root_;
}

// Generation starts from the very tokens that training saw, for every question of GSM8K; no character is lost or added.
TEST_F(RealData, PromptsOfGsm8kAreTokenisedAsInGeneration) {
  const std::string data = "datasets/gsm8k/test.jsonl";
  int compared = 0;
  for (const char* folder :
       {"models/tinystories-656k", "tokenizers/llama2/tokenizer.model", "tokenizers/phi-3-mini", "tokenizers/qwen2"}) {
    if (!Has(folder) || !Has(data)) continue;
    ++compared;
    SCOPED_TRACE(folder);
    const Tokenizer& tokenizer = Load(folder);
    const auto rows = RowTokenizer::Create(tokenizer, nullptr, {});
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    const auto reader = RecordReader::Open(PosixEnv(), Path(data));
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ((*reader)->format(), RecordFormat::kQuestionAnswer);
    RawRow raw;
    int n = 0;
    for (auto more = (*reader)->Next(raw); more.ok() && *more; more = (*reader)->Next(raw), ++n) {
      const auto record = (*reader)->Parse(raw);
      ASSERT_TRUE(record.ok()) << record.status().message();
      std::vector<Sample> samples;
      DataStatistics statistics;
      ASSERT_TRUE((*rows)->Tokenize(*record, samples, statistics).ok());
      ASSERT_EQ(samples.size(), 1u);
      const auto& [tokens, supervised, weights, parts, values, unknown] = samples[0];
      EXPECT_TRUE(parts.empty());
      EXPECT_TRUE(weights.empty());
      const auto prompt = tokenizer.Encode(PromptText(*record));
      ASSERT_TRUE(prompt.ok());
      ASSERT_TRUE(std::equal(prompt->begin(), prompt->end(), tokens.begin())) << record->where;
      for (size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(supervised[i] != 0, i >= prompt->size()) << record->where;
      EXPECT_EQ(tokens.back(), tokenizer.eos());
      // The vocabulary of the story model lacks "*" and "=".
      if (folder != std::string("models/tinystories-656k")) {
        ASSERT_EQ(tokenizer.Decode(tokens), PromptText(*record) + CompletionText(*record)) << record->where;
      }
    }
    EXPECT_EQ(n, 1319);
  }
  if (compared == 0) GTEST_SKIP() << "no tokenizers or no GSM8K in " << root_;
}

TEST_F(RealData, FormatsAndRowsOfPublishedDataSetsAreRecognised) {
  struct Expected {
    const char* path;
    RecordFormat format;
    int64_t rows;
  };
  int seen = 0;
  for (const auto& [path, format, rows] :
       {Expected{"datasets/gsm8k/train.jsonl", RecordFormat::kQuestionAnswer, 7473},
        {"datasets/axolotl/alpaca.json", RecordFormat::kInstruction, 2},
        {"datasets/axolotl/conversation.json", RecordFormat::kConversations, 1},
        {"datasets/axolotl/conversation.missingturns.json", RecordFormat::kConversations, 1},
        {"datasets/llama-factory/glaive_toolcall_en_demo.json", RecordFormat::kConversations, 300},
        {"datasets/llama-factory/identity.json", RecordFormat::kInstruction, 91},
        {"datasets/llama-factory/v1_sft_demo.jsonl", RecordFormat::kMessages, 500},
        {"datasets/torchtune/alpaca_tiny.json", RecordFormat::kInstruction, 100},
        {"datasets/torchtune/chat_tiny.json", RecordFormat::kConversations, 1},
        {"datasets/torchtune/instruct_tiny.json", RecordFormat::kInstruction, 2},
        {"datasets/xtuner/openai_sft.jsonl", RecordFormat::kMessages, 128}}) {
    if (!Has(path)) continue;
    SCOPED_TRACE(path);
    const auto reader = RecordReader::Open(PosixEnv(), Path(path));
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    EXPECT_EQ((*reader)->format(), format);
    RawRow raw;
    int64_t n = 0;
    for (auto more = (*reader)->Next(raw); more.ok() && *more; more = (*reader)->Next(raw), ++n) {
      const auto record = (*reader)->Parse(raw);
      ASSERT_TRUE(record.ok()) << record.status().message();
    }
    EXPECT_EQ(n, rows);
    ++seen;
  }
  if (Has("datasets/torchtune/hh_rlhf_tiny.json")) {
    const auto preferences = RecordReader::Open(PosixEnv(), Path("datasets/torchtune/hh_rlhf_tiny.json"));
    ASSERT_FALSE(preferences.ok());
    EXPECT_NE(preferences.status().message().find("preference data"), std::string::npos);
    ++seen;
  }
  if (seen == 0) GTEST_SKIP() << "no data sets in " << root_;
}

// Published conversations with Qwen2's own template and tokenizer: exactly the assistant's words and the token that
// ends its turn are supervised, for every such turn.
TEST_F(RealData, ConversationsSuperviseExactlyTheAssistantsWords) {
  const std::string folder = "tokenizers/qwen2";
  if (!Has(folder)) GTEST_SKIP() << folder << " is not in " << root_;
  const Tokenizer& tokenizer = Load(folder);
  const auto chat = ChatTemplate::Load(PosixEnv(), Path(folder));
  ASSERT_TRUE(chat.ok() && *chat);
  const auto rows = RowTokenizer::Create(tokenizer, &**chat, {});
  ASSERT_TRUE(rows.ok()) << rows.status().message();
  int turns = 0;
  for (const char* data : {"datasets/xtuner/openai_sft.jsonl", "datasets/llama-factory/v1_sft_demo.jsonl",
                           "datasets/torchtune/chat_tiny.json"}) {
    if (!Has(data)) continue;
    const auto reader = RecordReader::Open(PosixEnv(), Path(data));
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    RawRow raw;
    for (auto more = (*reader)->Next(raw); more.ok() && *more; more = (*reader)->Next(raw)) {
      const auto record = (*reader)->Parse(raw);
      ASSERT_TRUE(record.ok()) << record.status().message();
      std::string expected, got;
      for (const auto& message : record->messages) {
        if (message["role"] != "assistant") continue;
        expected += message["content"].get<std::string>() + "<|im_end|>";
        ++turns;
      }
      std::vector<Sample> samples;
      DataStatistics statistics;
      const Status status = (*rows)->Tokenize(*record, samples, statistics);
      ASSERT_TRUE(status.ok()) << status.message();
      for (const Sample& sample : samples) {
        std::vector<int32_t> supervised;
        for (size_t i = 0; i < sample.tokens.size(); ++i) {
          if (sample.supervised[i]) supervised.push_back(sample.tokens[i]);
        }
        got += tokenizer.Decode(supervised, /*skip_special=*/false);
      }
      ASSERT_EQ(got, expected) << record->where;
    }
  }
  if (turns == 0) GTEST_SKIP() << "no conversations in " << root_;
  EXPECT_GT(turns, 500);
}

// In pieces, each of a thread of its own, a text has the tokens that it has as a whole.
TEST_F(RealData, LongTextsHaveTheTokensOfTheWholeUnderEveryTokenizer) {
  std::string text;
  for (const char* name : {"wikitext-2/test.txt", "tinyshakespeare.txt", "wikitext-2/valid.txt"}) {
    const std::string path = JoinPath("datasets/text", name);
    if (Has(path)) text += *ReadTextFile(PosixEnv(), Path(path));
  }
  if (text.empty()) GTEST_SKIP() << "no texts in " << root_;
  const std::string path = scratch_ / "long.txt";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, text).ok());
  int compared = 0;
  for (const char* folder : {"models/tinystories-656k", "tokenizers/llama2/tokenizer.model", "tokenizers/llama2",
                             "tokenizers/phi-3-mini", "tokenizers/qwen2", "tokenizers/torchtune-tiny/m.model"}) {
    if (!Has(folder)) continue;
    SCOPED_TRACE(folder);
    ++compared;
    const Tokenizer& tokenizer = Load(folder);
    EXPECT_NE(tokenizer.FindCut(text, text.size() / 2), text.npos);
    std::vector<int32_t> expected = *tokenizer.Encode(text);
    if (expected.back() != *tokenizer.eos()) expected.push_back(*tokenizer.eos());
    const auto set = LoadDataset(PosixEnv(), {{path}}, tokenizer, nullptr, {.threads = 2});
    ASSERT_TRUE(set.ok()) << set.status().message();
    std::vector<int32_t> tokens = {expected[0]};
    for (int64_t s = 0; s < set->store.size(); ++s) {
      const std::vector<int32_t> window = set->store.sample(s).tokens();
      tokens.insert(tokens.end(), window.begin() + 1, window.end());
    }
    ASSERT_TRUE(tokens == expected);
  }
  if (compared == 0) GTEST_SKIP() << "no tokenizers in " << root_;
}

// From file to arrays: an epoch over Shakespeare predicts every token of the text exactly once, in 256-token rows.
TEST_F(RealData, AnEpochOverShakespearePredictsEveryTokenOnce) {
  const std::string data = "datasets/text/tinyshakespeare.txt", model = "models/tinystories-656k";
  if (!Has(data) || !Has(model)) GTEST_SKIP() << data << " or " << model << " is not in " << root_;
  const Tokenizer& tokenizer = Load(model);
  const auto set = LoadDataset(PosixEnv(), {{Path(data)}}, tokenizer, nullptr, {.tokenize = {.max_seq_len = 256}});
  ASSERT_TRUE(set.ok()) << set.status().message();
  const auto text = ReadTextFile(PosixEnv(), Path(data));
  auto expected = *tokenizer.Encode(*text);
  expected.push_back(*tokenizer.eos());
  std::vector<int64_t> counts(static_cast<size_t>(tokenizer.vocab_size()), 0);
  for (size_t i = 1; i < expected.size(); ++i) ++counts[static_cast<size_t>(expected[i])];

  std::vector<int32_t> ids(static_cast<size_t>(set->store.size()));
  std::iota(ids.begin(), ids.end(), 0);
  Sampler sampler(set->store, ids, {.max_seq_len = 256}, 42);
  EXPECT_GT(sampler.packing().efficiency(), 0.999);
  constexpr int64_t kRows = 8;
  std::vector<int32_t> target(kRows * 256);
  const std::vector<ColumnArray> columns = {{FillerOf(kTargetColumn.name), std::as_writable_bytes(std::span(target))}};
  const auto steps = StepsOf(sampler.rows_of_epoch(), kRows, 1);
  ASSERT_TRUE(steps.ok());
  BatchCounts sum;
  for (int64_t step = 0; step < steps->total; ++step) {
    const auto batch = sampler.NextBatch(kRows);
    sum += FillBatch(set->store, sampler.packing(), batch.first_row, batch.rows, kRows * 256, columns);
    for (const int32_t t : target) {
      if (t >= 0) --counts[static_cast<size_t>(t)];
    }
  }
  EXPECT_EQ(sum.supervised, static_cast<int64_t>(expected.size()) - 1);
  for (const int64_t left : counts) ASSERT_EQ(left, 0);
}

}  // namespace
}  // namespace temper::dataset_real_test
