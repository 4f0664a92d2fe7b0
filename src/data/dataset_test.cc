#include "data/dataset.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>

#include "base/no_more_threads.h"
#include "base/scratch_folder.h"
#include "data/fake_tokenizer.h"
#include "data/records.h"

namespace temper::dataset_test {
namespace {

std::string Write(const std::string& name, const std::string& text) {
  static const ScratchFolder folder;
  const std::string path = folder / name;
  auto file = PosixEnv().OpenForWrite(path);
  EXPECT_TRUE(file.ok());
  EXPECT_TRUE((*file)->Append(text).ok() && (*file)->Close().ok());
  return path;
}

Result<Dataset> Load(const std::vector<std::string>& paths, DatasetOptions options = {}) {
  static const FakeTokenizer tokenizer;
  std::vector<DataInput> inputs;
  for (const std::string& path : paths) inputs.push_back({path});
  return LoadDataset(PosixEnv(), inputs, tokenizer, nullptr, options);
}

std::string TextOf(const TokenStore& store, int64_t sample) {
  return FakeTokenizer().Decode(store.sample(sample).tokens(), false);
}

void ExpectError(const Result<Dataset>& result, const std::vector<std::string>& hints) {
  ASSERT_FALSE(result.ok());
  for (const std::string& hint : hints) {
    EXPECT_NE(result.status().message().find(hint), std::string::npos) << result.status().message();
  }
}

TEST(Dataset, ReadsFilesOfDifferentFormatsInTheirOrder) {
  const auto data =
      Load({Write("a.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"}\n"),
            Write("b.json", "[{\"question\":\"c\",\"answer\":\"d\"},\n{\"question\":\"e\",\"answer\":\"f\"}]"),
            Write("c.txt", "\xEF\xBB\xBFone\r\ntwo\n")});
  ASSERT_TRUE(data.ok()) << data.status().message();
  ASSERT_EQ(data->store.size(), 4);
  EXPECT_EQ(TextOf(data->store, 0), "<s>ab</s>");
  EXPECT_EQ(TextOf(data->store, 1), "<s>c d</s>");
  EXPECT_EQ(TextOf(data->store, 2), "<s>e f</s>");
  EXPECT_EQ(TextOf(data->store, 3), "<s>one\ntwo\n</s>");
  ASSERT_EQ(data->files.size(), 3u);
  EXPECT_EQ(data->files[0].format, RecordFormat::kPromptCompletion);
  EXPECT_EQ(data->files[1].format, RecordFormat::kQuestionAnswer);
  EXPECT_EQ(data->files[1].rows, 2);
  EXPECT_EQ(data->files[2].format, RecordFormat::kTextFile);
  EXPECT_EQ(data->statistics.rows, 4);
  EXPECT_EQ(data->statistics.samples, 4);
  EXPECT_EQ(data->statistics.tokens, data->store.total_tokens());
  EXPECT_EQ(data->statistics.supervised, data->store.total_supervised());
}

// Words do not have spaces.
class CuttingTokenizer final : public FakeTokenizer {
 public:
  explicit CuttingTokenizer(bool cuts) : FakeTokenizer({"un", "able", "unable", "\n\n"}, true), cuts_(cuts) {}
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options) const override {
    const std::lock_guard<std::mutex> lock(mutex_);
    longest_ = std::max(longest_, text.size());
    return FakeTokenizer::Encode(text, options);
  }
  size_t FindCut(std::string_view text, size_t from) const override {
    return cuts_ ? text.substr(0, from + 1000).find(' ', from) : text.npos;
  }
  size_t longest() const { return longest_; }

 private:
  const bool cuts_;
  mutable std::mutex mutex_;
  mutable size_t longest_ = 0;
};

TEST(Dataset, ATextFileInPiecesHasTheTokensOfTheWhole) {
  std::string text = "unable";  // cut, it makes several blocks of pieces
  for (int i = 0; text.size() < 330'000; ++i) {
    text += i % 7 == 0 ? "\n\n" : i % 3 == 0 ? " unab" : "able\xC3\xA9";
  }
  const std::string path = Write("long.txt", text);
  for (const bool cuts : {false, true}) {
    const CuttingTokenizer tokenizer(cuts);
    std::vector<int32_t> expected = *FakeTokenizer({"un", "able", "unable", "\n\n"}, true).Encode(text);
    expected.push_back(FakeTokenizer::kEos);
    for (const int threads : {1, 3}) {
      const auto set = LoadDataset(PosixEnv(), {{path}}, tokenizer, nullptr,
                                   {.tokenize = {.max_seq_len = 1000}, .threads = threads, .piece = KiB(32)});
      ASSERT_TRUE(set.ok()) << set.status().message();
      std::vector<int32_t> tokens = {expected[0]};
      for (int64_t s = 0; s < set->store.size(); ++s) {
        const std::vector<int32_t> window = set->store.sample(s).tokens();
        ASSERT_TRUE(s + 1 == set->store.size() || window.size() == 1000) << s;
        ASSERT_EQ(window[0], tokens.back()) << "a window begins with the last token of the one before";
        tokens.insert(tokens.end(), window.begin() + 1, window.end());
      }
      EXPECT_TRUE(tokens == expected);
      EXPECT_EQ(set->statistics.longest_row, static_cast<int64_t>(expected.size()));
      EXPECT_EQ(set->statistics.supervised, static_cast<int64_t>(expected.size()) - 1);
      EXPECT_EQ(set->statistics.rows, 1);
    }
    EXPECT_EQ(tokenizer.longest() < 3 << 15, cuts) << "memory does not depend on the text's length";
  }
}

// Samples before the error have been written.
TEST(Dataset, AnErrorWithinATextFileIsNeverSkipped) {
  std::string text;
  while (text.size() < 6 << 15) text += "some words ";
  const CuttingTokenizer tokenizer(true);
  ExpectError(LoadDataset(PosixEnv(), {{Write("beyond.txt", text + "unable")}}, tokenizer, nullptr,
                          {.tokenize = {.vocab_size = 260}, .skip_bad_rows = true, .piece = KiB(32)}),
              {"beyond.txt: has the token 262", "embeddings for only 260"});
  ExpectError(LoadDataset(PosixEnv(), {{Write("cut.txt", text + "\xC3")}}, tokenizer, nullptr,
                          {.skip_bad_rows = true, .piece = KiB(32)}),
              {"cut.txt line 1 (byte 196614): not UTF-8"});
}

TEST(Dataset, KnowsTheRowOfEverySample) {
  const std::string a =
      Write("places_a.jsonl",
            "{\"prompt\":\"a\",\"completion\":\"b\"}\n\n{broken\n{\"prompt\":\"c\",\"completion\":\"d\"}\n");
  const std::string b = Write("places_b.txt", "a text of several windows, all of them from its first line\n");
  const std::string c = Write("places_c.jsonl", "\n{\"prompt\":\"e\",\"completion\":\"f\"}\n");
  const auto data = Load({a, b, c}, {.tokenize = {.max_seq_len = 32}, .skip_bad_rows = true});
  ASSERT_TRUE(data.ok()) << data.status().message();
  const int64_t last = data->store.size() - 1;
  ASSERT_GT(last, 3);
  EXPECT_EQ(data->PlaceOf(0), a + " line 1");
  EXPECT_EQ(data->PlaceOf(1), a + " line 4");
  EXPECT_EQ(data->PlaceOf(2), b + " line 1");
  EXPECT_EQ(data->PlaceOf(last - 1), b + " line 1");
  EXPECT_EQ(data->PlaceOf(last), c + " line 2");
}

TEST(Dataset, IsTheSameWithAnyNumberOfThreads) {
  std::string rows;
  for (int i = 0; i < 5000; ++i) {  // several blocks
    rows += "{\"prompt\":\"" + std::to_string(i) + "\",\"completion\":\"" +
            std::string(static_cast<size_t>(i * 7919 % 60), 'x') + "\"}\n";
    if (i % 100 == 7) rows += "{broken " + std::to_string(i) + "\n";
  }
  const std::string path = Write("many.jsonl", rows);
  const auto one = Load({path}, {.tokenize = {.max_seq_len = 50}, .skip_bad_rows = true});
  ASSERT_TRUE(one.ok()) << one.status().message();
  EXPECT_EQ(one->statistics.bad_rows, 50);
  EXPECT_EQ(one->statistics.rows, 5050);
  EXPECT_GT(one->statistics.cut_rows, 0);
  ASSERT_EQ(one->statistics.problems.size(), 5u);
  EXPECT_NE(one->statistics.problems[0].find("line 9: not valid JSON"), std::string::npos);
  for (const int threads : {2, 7}) {
    const auto more = Load({path}, {.tokenize = {.max_seq_len = 50}, .skip_bad_rows = true, .threads = threads});
    ASSERT_TRUE(more.ok());
    EXPECT_EQ(more->store.Fingerprint(), one->store.Fingerprint());
    EXPECT_EQ(more->statistics.problems, one->statistics.problems);
    EXPECT_EQ(more->statistics.cut_tokens, one->statistics.cut_tokens);
    // The same one of several bad rows is reported for any number of threads.
    const auto failed = Load({path}, {.threads = threads});
    ExpectError(failed, {"many.jsonl line 9: not valid JSON"});
  }
  const NoMoreThreads none;
  const auto alone = Load({path}, {.tokenize = {.max_seq_len = 50}, .skip_bad_rows = true, .threads = 7});
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->store.Fingerprint(), one->store.Fingerprint());
}

TEST(Dataset, BadRowsAreErrorsNamingFileAndLine) {
  const std::string good = "{\"prompt\":\"a\",\"completion\":\"b\"}\n";
  ExpectError(Load({Write("broken.jsonl", good + "\n{\"prompt\": \"a\", \n" + good)}),
              {"broken.jsonl line 3: not valid JSON", "--skip_bad_rows"});
  ExpectError(Load({Write("first.jsonl", "{oops\n" + good)}), {"first.jsonl line 1: not valid JSON"});
  ExpectError(Load({Write("mixed.jsonl", good + good + "{\"question\":\"a\",\"answer\":\"b\"}\n")}),
              {"mixed.jsonl line 3: 'prompt' is missing", "read as prompt/completion because of its line 1"});
  ExpectError(Load({Write("mixed.json", "[{\"text\":\"a\"},\n7]")}), {"mixed.json row 2 (line 2)"});
  ExpectError(Load({Write("latin1.jsonl", good + "{\"prompt\":\"\xE9\",\"completion\":\"b\"}\n")}),
              {"latin1.jsonl line 2", "UTF-8"});
  ExpectError(Load({Write("latin1.txt", "one\ntwo \xE9t\xE9\n")}), {"latin1.txt line 2 (byte 8): not UTF-8", "iconv"});
  ExpectError(Load({Write("unknown.jsonl", "{\"foo\":1}\n{\"bar\":1}\n")}), {"unknown.jsonl line 1", "'foo'"});
  ExpectError(Load({Write("surrogate.jsonl", good + "{\"prompt\":\"\\ud800\",\"completion\":\"b\"}\n")}),
              {"surrogate.jsonl line 2"});
}

class CountingTokenizer final : public FakeTokenizer {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options) const override {
    ++calls;
    return FakeTokenizer::Encode(text, options);
  }
  mutable std::atomic<int> calls = 0;
};

// Each may cost a second, where a template is hostile.
TEST(Dataset, RowsThatPythonPrintedAreNamedAsThat) {
  ExpectError(Load({Write("py.jsonl", "{'prompt': 'a', 'completion': \"it's\"}\n")}),
              {"py.jsonl line 1: a row as Python prints it, in single quotes", "json.dumps(row)"});
}

TEST(Dataset, AFileOfAnotherEncodingIsNamedWithTheLineThatConvertsIt) {
  const std::string line = "iconv -f WINDOWS-1252 -t UTF-8 ";
  ExpectError(Load({Write("d.csv", "prompt,completion\nCaf\xE9?, Oui\n")}),
              {"d.csv row 1 (line 2): not UTF-8: 'Caf\\xe9?'. The file seems to be Windows-1252", line, "d.utf8.csv"});
  ExpectError(Load({Write("h.csv", "prompt,r\xE9ponse\na,b\n")}), {"h.csv line 1: not UTF-8: 'r\\xe9ponse'", line});
  ExpectError(Load({Write("d.jsonl", "{\"text\": \"a\"}\n{\"text\": \"\x93So\x94\"}\n")}),
              {"d.jsonl line 2: not UTF-8: '\\x93So\\x94'. The file seems", line, "d.utf8.jsonl"});
  ExpectError(Load({Write("sjis.jsonl", "{\"text\": \"\x8F\x91\"}\n")}),
              {"sjis.jsonl line 1: not UTF-8", "with its encoding in place of WINDOWS-1252"});
  ExpectError(Load({Write("cut.jsonl", "{\"text\": \"\xC3\xA9t\xC3\"}\n")}), {"cut.jsonl line 1", "it is damaged"});
  ExpectError(Load({Write("d.txt", "Caf\xE9\n")}), {"d.txt line 1 (byte 3): not UTF-8", line, "d.utf8.txt"});
}

TEST(Dataset, RowsBehindABadOneAreNotTokenised) {
  const std::string good = "{\"prompt\":\"a\",\"completion\":\"b\"}\n";
  std::string rows = good + "{oops\n";
  for (int i = 0; i < 1000; ++i) rows += good;
  const CountingTokenizer tokenizer;
  ExpectError(LoadDataset(PosixEnv(), {{Write("early.jsonl", rows)}}, tokenizer, nullptr, {.threads = 1}),
              {"early.jsonl line 2"});
  EXPECT_LT(tokenizer.calls, 10);
}

TEST(Dataset, ATemplateThatLoopsEndsTheReadingAlsoWhereBadRowsAreSkipped) {
  const std::string row = "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\"}]}\n";
  const std::string path = Write("hostile.jsonl", row + row + row);
  const auto with = [&](const std::string& source) {
    const auto chat_template = ChatTemplate::FromSource(source, "hostile.jinja");
    EXPECT_TRUE(chat_template.ok()) << chat_template.status().message();
    const CountingTokenizer tokenizer;
    return LoadDataset(PosixEnv(), {{path}}, tokenizer, &*chat_template, {.skip_bad_rows = true, .threads = 1});
  };
  ExpectError(with("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"),
              {"hostile.jsonl line 1", "seems to loop forever"});
  ExpectError(with("{{ raise_exception('no') }}"), {"3 of them bad", "First problem: "});
}

// Python's json writes NaN, mostly in fields that are not read.
TEST(Dataset, NanIsNull) {
  const std::string nan = R"({"prompt":"a","completion":"NaN \"","score":NaN,"x":[-Infinity,Infinity]})";
  const auto data = Load({Write("nan.jsonl", nan + "\n" + nan + "\n")});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(TextOf(data->store, 1), "<s>aNaN \"</s>");
  ExpectError(Load({Write("nan2.jsonl", nan + "\n" + R"({"prompt":"a","completion":NaN})")}),
              {"nan2.jsonl line 2: 'completion' is null"});
  ExpectError(Load({Write("nan3.jsonl", nan + "\n" + R"({"prompt":"a","completion":"b","x":NaNa})")}),
              {"nan3.jsonl line 2: not valid JSON"});
}

TEST(Dataset, FilesWithoutSupervisedTokensAreErrors) {
  ExpectError(Load({}), {"--data"});
  ExpectError(Load({Write("empty.jsonl", "")}), {"empty.jsonl is empty"});
  ExpectError(Load({Write("empty.txt", "\xEF\xBB\xBF\r\n")}), {"empty.txt is empty"});
  ExpectError(Load({Write("empty.json", "[ ]")}), {"empty.json has no rows"});
  ExpectError(Load({"/nonexistent/data.jsonl"}), {"/nonexistent/data.jsonl"});
  ExpectError(Load({Write("long.jsonl", "{\"prompt\":\"aaaaaaaaaa\",\"completion\":\"b\"}\n")},
                   {.tokenize = {.max_seq_len = 4}}),
              {"long.jsonl is supervised", "1 with nothing supervised within max_seq_len 4",
               "The longest row has 13 tokens: raise --max_seq_len"});
  ExpectError(
      Load({Write("bad.jsonl", "{\"prompt\":\"a\",\"completion\":\"b\"\n{\"prompt\":\"<s>\",\"completion\":\"b\"}\n")},
           {.skip_bad_rows = true}),
      {"2 of them bad", "First problem: ", "bad.jsonl line 1"});
  const auto chat = Load({Write("chat.jsonl", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n")});
  ExpectError(chat, {"chat.jsonl line 1: messages need a chat template", "--chat_template", "alpaca, chatml"});
  EXPECT_EQ(chat.status().message().find("--skip_bad_rows"), std::string::npos) << "it would skip every row";
  ExpectError(Load({Write("silent.jsonl", "{\"prompt\":\"a\",\"completion\":\"\"}\n")}),
              {"1 answer is empty", "silent.jsonl line 1"});
}

TEST(Dataset, SkippedRowsAreCounted) {
  const std::string good = "{\"prompt\":\"a\",\"completion\":\"b\"}\n";
  const auto data =
      Load({Write("skip.jsonl", "{oops\n" + good + "[]\n" + good + "{\"prompt\":\"a\"}\n")}, {.skip_bad_rows = true});
  ASSERT_TRUE(data.ok()) << data.status().message();
  EXPECT_EQ(data->statistics.rows, 5);
  EXPECT_EQ(data->statistics.bad_rows, 3);
  EXPECT_EQ(data->store.size(), 2);
  // After a break in a list's structure no row can be found: this is never skipped.
  ExpectError(Load({Write("skip.json", "[" + good + "oops" + good + "]")}, {.skip_bad_rows = true}),
              {"skip.json line 2"});
}

TEST(LoadDataset, ReadsNoFurtherThanMaxRows) {
  std::string rows;
  for (int i = 0; i < 3000; ++i) rows += fmt::format("{{\"text\": \"row {}\"}}\n", i);
  const std::string first = Write("first.jsonl", rows + "a broken row"), second = Write("second.jsonl", rows);
  static const FakeTokenizer tokenizer;
  const auto load = [&](int64_t max_rows) {
    return LoadDataset(PosixEnv(), {{first, max_rows}, {second, 2}}, tokenizer, nullptr, {.threads = 2});
  };
  for (const int64_t max_rows : {1, 1024, 1500, 3000}) {
    const auto set = load(max_rows);
    ASSERT_TRUE(set.ok()) << set.status().message();
    EXPECT_EQ(set->files[0].rows, max_rows);
    EXPECT_EQ(set->files[1].rows, 2);
    EXPECT_EQ(set->files[1].first_sample, max_rows);
    EXPECT_EQ(set->PlaceOf(max_rows + 1), second + " line 2");
  }
  ExpectError(load(3001), {first + " line 3001"});
}

// The column of an optional field may be in rows that are not read; it is named all the same.
TEST(LoadDataset, AColumnBeyondMaxRowsIsAnErrorOnlyIfAFormatNeedsIt) {
  const ScratchFolder folder;
  const std::string path = folder / "opt.jsonl";
  std::string text;
  for (int i = 0; i < 300; ++i) {
    text += fmt::format("{{\"q\": \"w{}\", \"a\": \"x\"{}}}\n", i, i < 250 ? "" : ", \"sys\": \"be kind\"");
  }
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, text).ok());
  const FakeTokenizer tokenizer;
  const auto load = [&](int64_t max_rows, const char* system) {
    const RowColumns columns = {{"prompt", "q"}, {"completion", "a"}, {"system", system}};
    return LoadDataset(PosixEnv(), {{.path = path, .max_rows = max_rows, .reading = {.columns = columns}}}, tokenizer,
                       nullptr, {});
  };
  testing::internal::CaptureStderr();
  const auto some = load(100, "sys");
  const std::string warning = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(some.ok()) << some.status().message();
  EXPECT_NE(warning.find("no row among the first 100 has the column 'sys'"), warning.npos) << warning;
  EXPECT_TRUE(load(300, "sys").ok());
  const auto all = load(1000, "sys2");
  ASSERT_FALSE(all.ok());
  EXPECT_NE(all.status().message().find("no row has the column 'sys2'"), std::string::npos) << all.status().message();
}

TEST(SplitForEvaluation, PartsAreDisjointCompleteAndRepeatable) {
  const auto split = SplitForEvaluation(1000, 0.1, 3);
  ASSERT_TRUE(split.ok());
  EXPECT_EQ(split->evaluation.size(), 100u);
  std::set<int32_t> all(split->train.begin(), split->train.end());
  all.insert(split->evaluation.begin(), split->evaluation.end());
  EXPECT_EQ(all.size(), 1000u);
  EXPECT_EQ(*all.rbegin(), 999);
  EXPECT_EQ(SplitForEvaluation(1000, 0.1, 3)->evaluation, split->evaluation);
  EXPECT_NE(SplitForEvaluation(1000, 0.1, 4)->evaluation, split->evaluation);
  EXPECT_TRUE(std::is_sorted(split->train.begin(), split->train.end()));
  EXPECT_EQ(SplitForEvaluation(1000, 7, 3)->evaluation.size(), 7u);
  EXPECT_EQ(SplitForEvaluation(5, 0.01, 3)->evaluation.size(), 1u);
  EXPECT_EQ(SplitForEvaluation(5, 0, 3)->train.size(), 5u);
  for (const double amount : {5.0, 6.0, -1.0, 1e300}) EXPECT_FALSE(SplitForEvaluation(5, amount, 3).ok()) << amount;
  EXPECT_FALSE(SplitForEvaluation(1, 0.5, 3).ok());
}

}  // namespace
}  // namespace temper::dataset_test
