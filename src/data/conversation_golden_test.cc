// Conversations of every family against transformers' apply_chat_template: prompts, ids, supervised tokens, where
// generation stops (tests/conversation/make_goldens.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>

#include "base/project_folder_for_test.h"
#include "data/row_tokenizer.h"
#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/memory_folder.h"
#include "format/json.h"

namespace temper::conversation_golden_test {
namespace {

using Ids = std::vector<int32_t>;

OrderedJson GoldensIn(const std::string& folder) {
  return OrderedJson::parse(*ReadTextFile(PosixEnv(), JoinPath(folder, "goldens.json")));
}

// The family's folder; nullopt if it needs outside data that is missing.
std::optional<MemoryFolder> FolderOf(const OrderedJson& family) {
  const char* outside = std::getenv("TEMPER_TEST_DATA");
  const char* templates = std::getenv("TEMPER_TEST_TEMPLATES");
  MemoryFolder folder;
  for (const auto& [name, source] : family["files"].items()) {
    const auto only = source.begin();
    const std::string& kind = only.key();
    const OrderedJson& value = only.value();
    if (kind == "config") continue;  // the chat template in tokenizer_config.json
    if (kind == "json") folder.files[name] = value.dump();
    if (kind == "text") folder.files[name] = value.get<std::string>();
    if (kind == "json" || kind == "text") continue;
    if (kind == "data" && !outside) return std::nullopt;
    const char* root = kind == "own" ? kProjectFolder : kind == "template" ? templates : outside;
    const std::string path = JoinPath(root, value.get<std::string>());
    const auto text = ReadTextFile(PosixEnv(), path);
    if (!text.ok() && kind == "data") return std::nullopt;
    EXPECT_TRUE(text.ok()) << text.status().message();
    if (text.ok()) folder.files[name] = *text;
  }
  return folder;
}

// A turn as transformers gives it: the ids up to its end, and which of them are supervised.
struct Turn {
  Ids prompt, ids;
  std::set<size_t> supervised;
};

// Checks one case of a family.
class Case {
 public:
  Case(const Tokenizer& tokenizer, const ChatTemplate& chat, const OrderedJson& goldens, const OrderedJson& golden)
      : tokenizer_(tokenizer), chat_(chat), golden_(golden), variables_(golden["kwargs"]) {
    const OrderedJson& row = goldens["conversations"][golden["title"].get<std::string>()];
    const auto record = MakeRecord(row, RecordFormat::kMessages, "golden");
    TEMPER_CHECK(record.ok()) << record.status().message();
    record_ = *record;
    strptime(goldens["date"].get<std::string>().c_str(), "%Y-%m-%d", &options_.today);
    options_.variables = &variables_;
  }

  void Check() {
    const auto rows = RowTokenizer::Create(tokenizer_, &chat_, {.chat = options_});
    ASSERT_TRUE(rows.ok()) << rows.status().message();
    std::vector<Sample> samples;
    DataStatistics statistics;
    const Status status = (*rows)->Tokenize(record_, samples, statistics);
    if (golden_.contains("refused")) {
      EXPECT_FALSE(status.ok());
      return;
    }
    ASSERT_TRUE(status.ok()) << status.message();
    ReadTurns();
    CheckPrompts();
    for (const Sample& sample : samples) CheckSample(sample);
    EXPECT_EQ(open_.size(), 0u) << "a turn is in no sample";
    if (golden_.contains("mask")) {
      ASSERT_EQ(samples.size(), 1u);
      auto mask = golden_["mask"].get<std::vector<uint8_t>>();
      while (!mask.empty() && mask.back() == 0) mask.pop_back();
      EXPECT_EQ(samples[0].supervised, mask);
    }
  }

 private:
  void ReadTurns() {
    for (const OrderedJson& turn : golden_["turns"]) {
      const auto supervised = turn["learnt"].get<std::vector<size_t>>();
      if (!supervised.empty()) open_.insert(turns_.size());  // else an empty answer, which is not trained
      turns_.push_back({turn["prompt"].get<Ids>(), turn["ids"].get<Ids>(), {supervised.begin(), supervised.end()}});
    }
  }

  void CheckPrompts() {
    size_t turn = 0;
    for (size_t i = 0; i < record_.messages.size(); ++i) {
      if (record_.messages[i]["role"] != "assistant") continue;
      const OrderedJson before(record_.messages.begin(), record_.messages.begin() + static_cast<int64_t>(i));
      const auto text = chat_.Render(before, record_.tools, /*add_generation_prompt=*/true, options_);
      ASSERT_TRUE(text.ok()) << text.status().message();
      EXPECT_EQ(*tokenizer_.Encode(*text, {.add_special = false}), turns_[turn++].prompt) << *text;
    }
  }

  // A sample is the conversation up to one turn; that turn is supervised, and some of those before it.
  void CheckSample(const Sample& sample) {
    const auto last = std::find_if(open_.rbegin(), open_.rend(), [&](size_t t) {
      const Ids& ids = turns_[t].ids;
      const size_t end = *turns_[t].supervised.rbegin() + 1;
      return sample.tokens == Ids(ids.begin(), ids.begin() + static_cast<int64_t>(end));
    });
    ASSERT_TRUE(last != open_.rend()) << "no turn ends as " << tokenizer_.Decode(sample.tokens, false);
    std::set<size_t> left;
    for (size_t i = 0; i < sample.tokens.size(); ++i) {
      if (sample.supervised[i]) left.insert(i);
    }
    const size_t at = *last;
    for (const size_t t : std::vector<size_t>(open_.begin(), open_.end())) {
      if (t > at) break;
      bool any = false;
      for (const size_t i : turns_[t].supervised) {
        const bool here = left.erase(i) > 0;
        any |= here;
        // The end of a finished conversation (white space and EOS) is missing if the conversation continues.
        const bool may_go = t < at && (turns_[t].ids[i] == tokenizer_.eos() || IsSpace(turns_[t].ids[i]));
        EXPECT_TRUE(here || !any || may_go) << "turn " << t << ", token " << i;
      }
      if (any) open_.erase(t);
    }
    // With {% generation %} blocks the whole mask is compared: a turn may end otherwise where the conversation
    // continues.
    EXPECT_TRUE(left.empty() || golden_.contains("mask"))
        << left.size() << " supervised tokens belong to no turn: " << tokenizer_.Decode(sample.tokens, false);
    EXPECT_FALSE(open_.contains(at));
  }

  bool IsSpace(int32_t id) const {
    return tokenizer_.Decode(std::span(&id, 1), false).find_first_not_of(" \n") == std::string::npos;
  }

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  const OrderedJson& golden_;
  const OrderedJson variables_;
  ChatOptions options_;
  Record record_;
  std::vector<Turn> turns_;
  std::set<size_t> open_;  // turns that were in no sample yet
};

// Returns how many published families had their data.
int CheckFamilies(const OrderedJson& goldens) {
  int published = 0;
  for (const OrderedJson& family : goldens["families"]) {
    const auto name = family["family"].get<std::string>();
    SCOPED_TRACE(name);
    std::optional<MemoryFolder> folder = FolderOf(family);
    if (!folder) continue;
    published += !name.starts_with("own");
    const auto tokenizer = LoadTokenizer(*folder, MemoryFolder::kPath);
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    const auto chat = ChatTemplate::Load(*folder, MemoryFolder::kPath);
    EXPECT_TRUE(chat.ok() && *chat) << chat.status().message();
    if (!tokenizer.ok() || !chat.ok() || !*chat) continue;
    EXPECT_EQ((*tokenizer)->stop_ids(), family["stop_ids"].get<Ids>());
    for (const OrderedJson& one : family["cases"]) {
      SCOPED_TRACE(one["title"].get<std::string>() + " " + one["kwargs"].dump());
      Case(**tokenizer, **chat, goldens, one).Check();
    }
  }
  return published;
}

// The project's own families always, published ones if their data is there.
TEST(ConversationGoldens, AreThoseOfTransformers) {
  const int published = CheckFamilies(GoldensIn(JoinPath(kProjectFolder, "tests/conversation")));
  if (std::getenv("TEMPER_TEST_DATA")) {
    EXPECT_GT(published, 0);
  }
  if (const char* templates = std::getenv("TEMPER_TEST_TEMPLATES")) {
    EXPECT_GT(CheckFamilies(GoldensIn(templates)), 0) << "their vocabularies lie in TEMPER_TEST_DATA";
  }
}

}  // namespace
}  // namespace temper::conversation_golden_test
