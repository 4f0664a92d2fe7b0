#include "data/token_cache.h"

#include <gtest/gtest.h>

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>

#include "base/faulty_env.h"
#include "base/host_name.h"
#include "base/scratch_folder.h"
#include "data/fake_tokenizer.h"

namespace temper::token_cache_test {
namespace {

class TokenCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    tokenizer_.Forget("cd");
    auto file = PosixEnv().OpenForWrite(data_);
    ASSERT_TRUE((*file)
                    ->Append(R"({"prompt":"a","completion":"b"})"
                             "\n{}\n\n"
                             R"({"prompt":"c","completion":"d","weight":0.5})"
                             "\n")
                    .ok());
    ASSERT_TRUE((*file)->Close().ok());
  }

  Status Write(std::unique_ptr<WritableFile> file) {
    ++written_;
    TokenWriter writer(std::move(file));
    return WriteDataset(PosixEnv(), {DataInput{data_}}, tokenizer_, nullptr, {.skip_bad_rows = true}, "key", writer);
  }
  Status Make(Env& env = PosixEnv()) {
    return TokenCache(env, folder_.path(), "key").Make([&](auto file) { return Write(std::move(file)); });
  }
  Result<Dataset> Open(const std::string& key = "key") {
    return TokenCache(PosixEnv(), folder_.path(), key).Open(TokenStore::Check::kAll, kVocab, {data_});
  }
  std::vector<std::string> Names() { return *PosixEnv().List(folder_.path()); }
  void Touch(const std::string& name) { ASSERT_TRUE((*PosixEnv().OpenForWrite(folder_ / name))->Close().ok()); }

  static constexpr int64_t kVocab = FakeTokenizer::kFirstWord;
  const ScratchFolder folder_, elsewhere_;
  const std::string data_ = elsewhere_ / "data.jsonl";
  FakeTokenizer tokenizer_;
  int written_ = 0;
};

TEST_F(TokenCacheTest, GivesBackTheDataSet) {
  EXPECT_EQ(Open().status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(Make().ok());
  const auto kept = Open();
  const auto fresh = LoadDataset(PosixEnv(), {DataInput{data_}}, tokenizer_, nullptr, {.skip_bad_rows = true});
  ASSERT_TRUE(kept.ok() && fresh.ok()) << kept.status().message();
  EXPECT_EQ(kept->store.Fingerprint(), fresh->store.Fingerprint());
  EXPECT_TRUE(kept->store.weighted());
  EXPECT_EQ(kept->PlaceOf(1), data_ + " line 4");
  ASSERT_EQ(kept->files.size(), 1u);
  EXPECT_EQ(kept->files[0].rows, 3);
  EXPECT_EQ(kept->files[0].format, RecordFormat::kPromptCompletion);
  EXPECT_EQ(kept->files[0].format_place, "line 1");
  const DataStatistics &a = kept->statistics, &b = fresh->statistics;
  EXPECT_EQ(a.problems, b.problems);
  EXPECT_EQ(a.bad_rows, 1);
  EXPECT_EQ(std::tie(a.rows, a.samples, a.tokens, a.supervised, a.longest_row, a.weighted, a.stopping_samples),
            std::tie(b.rows, b.samples, b.tokens, b.supervised, b.longest_row, b.weighted, b.stopping_samples));
  EXPECT_EQ(std::pair(a.least_weight, a.largest_weight), std::pair(b.least_weight, b.largest_weight));
  for (const UnknownTokens& unknown : {a.unknown, b.unknown}) {
    EXPECT_EQ(unknown.token, "?");
    EXPECT_EQ(unknown.count, 2);
    EXPECT_EQ(unknown.characters, (std::map<std::string, int64_t>{{"c", 1}, {"d", 1}}));
  }
}

// All of them, and the problem of a bad row, as a fresh reading of the moved file finds them.
TEST_F(TokenCacheTest, FindingsNameThePathsThatTheDataHasNow) {
  const std::string path = elsewhere_ / "chats.jsonl", moved = elsewhere_ / "moved.jsonl", other = elsewhere_ / "chats";
  for (const std::string& file : {path, other}) {  // the path of one begins with the other's
    ASSERT_TRUE(WriteTextFileAtomically(
                    PosixEnv(), file, R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]}
{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":""},{"role":"assistant","content":"b"}],"id":"x"}
{"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[{"type":"function","function":{"name":"look","arguments":{}}}]},{"role":"assistant","content":"b"}]}
{broken
)")
                    .ok());
  }
  const auto chat = ChatTemplate::FromSource(
      "{% for m in messages %}<|im_start|>{{ m.role }}:{{ m.content }}{{ '<|im_end|>' if m.tool_calls else '.\n' }}{% "
      "endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant:{% endif %}",
      "test template", {});
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  const DatasetOptions options{.skip_bad_rows = true};
  const TokenCache cache(PosixEnv(), folder_.path(), "key");
  const Status made = cache.Make([&](std::unique_ptr<WritableFile> file) {
    TokenWriter writer(std::move(file));
    return WriteDataset(PosixEnv(), {{other, 1}, {path}}, tokenizer_, &*chat, options, "key", writer);
  });
  ASSERT_TRUE(made.ok()) << made.message();
  ASSERT_TRUE(PosixEnv().Rename(path, moved).ok());
  const auto kept = cache.Open(TokenStore::Check::kAll, kVocab, {other, moved});
  const auto fresh = LoadDataset(PosixEnv(), {{other, 1}, {moved}}, tokenizer_, &*chat, options);
  ASSERT_TRUE(kept.ok() && fresh.ok()) << kept.status().message() << fresh.status().message();
  const DataStatistics &a = kept->statistics, &b = fresh->statistics;
  EXPECT_EQ(a.problems, b.problems);
  ASSERT_EQ(a.problems.size(), 1u) << a.problems[0];
  EXPECT_TRUE(a.problems[0].starts_with(moved + " line 4")) << a.problems[0];
  for (const auto finding :
       {&DataStatistics::empty_answers, &DataStatistics::unprinted_turns, &DataStatistics::open_turns}) {
    EXPECT_GT((a.*finding).count, 0);
    EXPECT_EQ((a.*finding).count, (b.*finding).count);
    EXPECT_EQ((a.*finding).first, (b.*finding).first);
  }
  const auto in_words = [](const FieldFindings& fields) {
    std::string words;
    for (const auto& [name, f] : fields.by_name) words += name + " " + std::to_string(f.count) + " " + f.first + "\n";
    return words;
  };
  EXPECT_EQ(in_words(a.unprinted_fields), "tool_calls 1 " + moved + " line 3, message 2\n");
  EXPECT_EQ(in_words(a.unprinted_fields), in_words(b.unprinted_fields));
  EXPECT_EQ(in_words(a.unread_fields), "id 1 " + moved + " line 2\n");
  EXPECT_EQ(in_words(a.unread_fields), in_words(b.unread_fields));
  EXPECT_EQ(a.empty_answers.first, moved + " line 2, message 2");
  EXPECT_TRUE(a.open_turns.first.starts_with(other + " line 1")) << a.open_turns.first;
}

TEST_F(TokenCacheTest, AnotherKeyIsAnotherFile) {
  ASSERT_TRUE(Make().ok());
  EXPECT_EQ(Open("other").status().code(), StatusCode::kNotFound);
  // Nor is a file believed that has another's name.
  const TokenCache other(PosixEnv(), folder_.path(), "other");
  ASSERT_TRUE(PosixEnv().Rename(folder_ / Names()[0], other.path()).ok());
  EXPECT_EQ(Open("other").status().code(), StatusCode::kNotFound);
}

// The disk may fail, or the process end, at any operation: then there is no file, or a whole one.
TEST_F(TokenCacheTest, AFailureAtAnyOperationLeavesNoFileOrAWholeOne) {
  int64_t failing = 0;
  for (bool failed = true; failed; ++failing) {
    failed = false;
    int64_t at = 0;
    FaultyEnv faulty(PosixEnv(), [&](const std::string& operation, const std::string& path) {
      if (operation == "list" || operation == "remove" || at++ != failing) return OkStatus();
      failed = true;
      return IoError("cannot " + operation + " " + path + ": No space left on device");
    });
    const Status made = Make(faulty);
    EXPECT_EQ(made.ok(), !failed);
    const bool whole = Open().ok();
    EXPECT_EQ(Names().size(), whole ? 1u : 0u) << "left: " << Names()[0];
    if (!failed) break;
    EXPECT_NE(made.message().find("--data_cache"), std::string::npos) << made.message();
    if (whole) {
      ASSERT_TRUE(PosixEnv().RemoveFile(folder_ / Names()[0]).ok());
    }
  }
  EXPECT_GT(failing, 6) << "open, append, sync, close, rename and sync of the folder";
  EXPECT_TRUE(Open().ok());
}

TEST_F(TokenCacheTest, ABadRowIsReportedAsItIs) {
  const Status made = TokenCache(PosixEnv(), folder_.path(), "key").Make([&](std::unique_ptr<WritableFile> file) {
    TokenWriter writer(std::move(file));
    return WriteDataset(PosixEnv(), {DataInput{data_}}, tokenizer_, nullptr, {}, "key", writer);
  });
  EXPECT_NE(made.message().find("data.jsonl line 2"), std::string::npos) << made.message();
  EXPECT_EQ(made.message().find("--data_cache"), std::string::npos) << made.message();
  EXPECT_TRUE(Names().empty());
}

TEST_F(TokenCacheTest, WhatAKilledRunHasLeftIsRemovedAndWhatARunningOneWritesIsNot) {
  Touch("tokens-0123456789abcdef.bin.1.tmp");
  const std::string running = folder_ / "tokens-fedcba9876543210.bin.1.tmp";
  const auto lock = PosixEnv().Lock(running);
  ASSERT_TRUE(lock.ok() && *lock);
  ASSERT_TRUE(Make().ok());
  EXPECT_EQ(Names().size(), 2u);
  EXPECT_TRUE(PosixEnv().IsFile(running));
}

// Only a process of this host is known to be gone.
TEST_F(TokenCacheTest, WhereFilesCannotBeLockedTheWritersProcessIsAsked) {
  const std::string of = "tokens-0123456789abcdef.bin.", here = of + HostName() + "-";
  const std::string mine = fmt::format("{}{}-1.tmp", here, getpid()), elsewhere = of + "elsewhere-999999999-1.tmp";
  for (const std::string& name : {here + "999999999-1.tmp", mine, elsewhere}) Touch(name);
  FaultyEnv env(PosixEnv(), [](const std::string& operation, const std::string&) {
    return operation == "lock" ? Unsupported("no locks") : OkStatus();
  });
  ASSERT_TRUE(Make(env).ok());
  std::vector<std::string> left = {mine, elsewhere, BaseName(TokenCache(env, folder_.path(), "key").path())};
  std::sort(left.begin(), left.end());
  EXPECT_EQ(Names(), left);
}

// Containers may share the name of their host and process ids. Where files can be locked, one would wait for the other.
TEST_F(TokenCacheTest, TemporaryFilesHaveNamesThatNoOtherProcessGives) {
  const auto name = [&] {
    std::vector<std::string> names;
    const Status failed = TokenCache(PosixEnv(), folder_.path(), "key").Make([&](const auto&) {
      names = Names();
      return InvalidArgument("enough");
    });
    EXPECT_FALSE(failed.ok());
    EXPECT_EQ(names.size(), 1u);
    return names[0];
  };
  const std::string first = name(), second = name(), known = fmt::format(".bin.{}-{}-", HostName(), getpid());
  for (const std::string& each : {first, second}) {
    const size_t at = each.find(known);
    ASSERT_NE(at, std::string::npos) << each;
    EXPECT_EQ(each.size() - at - known.size(), 16 + std::string(".tmp").size()) << each;
  }
  EXPECT_NE(first, second);
}

TEST_F(TokenCacheTest, RunsThatWriteAtOnceBothEndWithAWholeFile) {
  ASSERT_TRUE(TokenCache(PosixEnv(), folder_.path(), "key")
                  .Make([&](std::unique_ptr<WritableFile> file) {
                    EXPECT_TRUE(Make().ok());
                    const auto others = Open();  // stays open, and whole, when it is replaced
                    EXPECT_TRUE(others.ok());
                    const Status own = Write(std::move(file));
                    EXPECT_EQ(others->store.sample(0).token(1), 'a');
                    return own;
                  })
                  .ok());
  EXPECT_EQ(written_, 2);
  EXPECT_TRUE(Open().ok());
  EXPECT_EQ(Names().size(), 1u);
}

TEST_F(TokenCacheTest, OldFilesAreRemovedAndNothingElse) {
  for (const char* name : {"tokens-0123456789abcdef.bin", "tokens-1.bin.1.tmp", "tokens.txt", "run.yaml"}) Touch(name);
  ASSERT_TRUE(Make().ok());
  const std::string kept = TokenCache(PosixEnv(), folder_.path(), "key").path();
  TokenCache::RemoveOthers(PosixEnv(), folder_.path(), {kept});
  EXPECT_EQ(Names(), (std::vector<std::string>{"run.yaml", BaseName(kept), "tokens.txt"}));
}

}  // namespace
}  // namespace temper::token_cache_test
