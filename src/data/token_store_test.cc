#include "data/token_store.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <set>

#include "base/scratch_folder.h"
#include "data/token_memory.h"
#include "format/checksum.h"

namespace temper::token_store_test {
namespace {

using Tokens = std::vector<int32_t>;
using Flags = std::vector<uint8_t>;
using Weights = std::vector<TokenWeight>;

constexpr int64_t kVocab = 100'000;

struct Samples {
  std::vector<Tokens> tokens;
  std::vector<Flags> flags;
  std::vector<Weights> weights;
};

// Every tenth sample has weights.
Samples RandomSamples(uint32_t seed, int count, size_t longest) {
  std::mt19937 random(seed);
  Samples out;
  for (int s = 0; s < count; ++s) {
    const size_t n = 1 + random() % longest;
    auto& t = out.tokens.emplace_back(n);
    auto& f = out.flags.emplace_back(n);
    auto& w = out.weights.emplace_back(s % 10 == 7 ? n : 0);
    for (size_t i = 0; i < n; ++i) {
      t[i] = static_cast<int32_t>(random() % kVocab);
      f[i] = random() % 2;
      if (!w.empty()) w[i] = 1 + random() % kLargestWeight;
    }
  }
  return out;
}

void Write(const Samples& samples, TokenWriter& writer) {
  for (size_t s = 0; s < samples.tokens.size(); ++s) {
    ASSERT_TRUE(writer.Add(samples.tokens[s], samples.flags[s], samples.weights[s], static_cast<int64_t>(3 * s)).ok());
  }
  ASSERT_TRUE(writer.Finish("about").ok());
}

std::vector<std::byte> FileOf(const Samples& samples) {
  MemoryTokens made;
  Write(samples, made.writer());
  const auto file = made.Take();
  return {file->bytes().begin(), file->bytes().end()};
}

Result<TokenStore> Open(std::vector<std::byte> bytes, TokenStore::Check check = TokenStore::Check::kAll) {
  return TokenStore::Open(MappedFile::OfBuffer(std::move(bytes)), check, kVocab);
}

// Lets `change` edit the file of one sample without weights, then makes every checksum agree.
template <class Change>
void Forge(std::vector<std::byte>& bytes, const Change& change) {
  TokenFooter footer;
  TokenEntry entry;
  const size_t footer_at = bytes.size() - sizeof(footer);
  std::memcpy(&footer, bytes.data() + footer_at, sizeof(footer));
  std::vector<uint32_t> words(footer.tokens);
  const size_t entry_at = words.size() * sizeof(uint32_t);
  std::memcpy(words.data(), bytes.data(), entry_at);
  std::memcpy(&entry, bytes.data() + entry_at, sizeof(entry));
  change(std::span(words), entry, footer);
  Checksum of_words, entries, content, tail;
  of_words.Update(std::as_bytes(std::span(words)));
  footer.words_sum = of_words.Value();
  entries.Update(std::as_bytes(std::span(&entry, 1)));
  footer.entries_sum = entries.Value();
  content.Update(std::as_bytes(std::span(&entry.length_and_flags, 1)));
  content.Update(std::as_bytes(std::span(&footer.words_sum, 1)));
  footer.content_sum = content.Value();
  tail.Update(std::span(bytes).subspan(entry_at + sizeof(entry), footer_at - entry_at - sizeof(entry)));
  tail.Update(std::as_bytes(std::span(&footer, 1)).first(offsetof(TokenFooter, tail_sum)));
  footer.tail_sum = tail.Value();
  std::memcpy(bytes.data(), words.data(), entry_at);
  std::memcpy(bytes.data() + entry_at, &entry, sizeof(entry));
  std::memcpy(bytes.data() + footer_at, &footer, sizeof(footer));
}

// Chunks of samples, pieces of a buffer and a sample that is longer than both.
TEST(TokenStore, GivesBackWhatWasWritten) {
  Samples samples = RandomSamples(1, 2 * kChunkSamples + 17, 300);
  const Samples one = RandomSamples(2, 1, 3'000'000);
  samples.tokens[kChunkSamples - 1] = one.tokens[0];
  samples.flags[kChunkSamples - 1] = one.flags[0];
  samples.weights[kChunkSamples - 1].clear();
  const ScratchFolder folder;
  const std::string path = folder / "tokens";
  TokenWriter writer(*PosixEnv().OpenForWrite(path));
  Write(samples, writer);
  auto store = TokenStore::Open(*MappedFile::Open(path), TokenStore::Check::kAll, kVocab);
  ASSERT_TRUE(store.ok()) << store.status().message();
  ASSERT_EQ(store->size(), static_cast<int64_t>(samples.tokens.size()));
  EXPECT_EQ(store->about(), "about");
  int64_t total = 0, supervised = 0, longest = 0;
  for (int64_t s = 0; s < store->size(); ++s) {
    const auto at = static_cast<size_t>(s);
    const TokenSample sample = store->sample(s);
    if (s % 100 == 0) store->LetGo();  // it reads the same afterwards
    ASSERT_EQ(sample.tokens(), samples.tokens[at]);
    ASSERT_EQ(store->length(s), sample.length());
    ASSERT_EQ(store->line(s), 3 * s);
    for (int64_t i = 0; i < sample.length(); ++i) {
      const auto place = static_cast<size_t>(i);
      // Nothing predicts the first token of a sample.
      ASSERT_EQ(sample.supervised(i), i > 0 && samples.flags[at][place]);
      if (!sample.supervised(i)) continue;
      ++supervised;
      ASSERT_EQ(sample.weight(i), samples.weights[at].empty() ? kUnitWeight : samples.weights[at][place]);
    }
    total += sample.length();
    longest = std::max(longest, sample.length());
  }
  EXPECT_EQ(store->total_tokens(), total);
  EXPECT_EQ(store->total_supervised(), supervised);
  EXPECT_EQ(store->longest(), longest);
}

TEST(TokenStore, KeepsWeightsOnlyIfOneIsNotOne) {
  const auto with = [](const Weights& weights) {
    return MemoryTokens().Add(Tokens{1, 2, 3}, Flags{0, 1, 1}).Add(Tokens{4, 5, 6}, Flags{0, 0, 1}, weights).Store();
  };
  const TokenStore plain = with({}), ones = with({7, 0, kUnitWeight}), some = with({7, 0, kUnitWeight / 2});
  EXPECT_FALSE(plain.weighted());
  EXPECT_FALSE(ones.weighted()) << "masked tokens' weights do not count";
  EXPECT_EQ(ones.Fingerprint(), plain.Fingerprint());
  EXPECT_EQ(ones.bytes(), plain.bytes());
  EXPECT_EQ(ones.sample(1).weight(2), kUnitWeight);
  EXPECT_TRUE(some.weighted());
  EXPECT_NE(some.Fingerprint(), plain.Fingerprint());
  EXPECT_EQ(some.sample(1).weight(2), kUnitWeight / 2);
  EXPECT_EQ(some.sample(0).weight(1), kUnitWeight);
}

TEST(TokenStore, FingerprintChangesWithTokensFlagsAndBordersAlone) {
  const auto print = [](const std::vector<Tokens>& samples, uint8_t flag, int64_t line = 0) {
    MemoryTokens made;
    for (const auto& s : samples) EXPECT_TRUE(made.writer().Add(s, Flags(s.size(), flag), {}, line).ok());
    return made.Store().Fingerprint();
  };
  const uint64_t base = print({{1, 2, 3}, {4}}, 1);
  EXPECT_EQ(print({{1, 2, 3}, {4}}, 1), base);
  EXPECT_EQ(print({{1, 2, 3}, {4}}, 1, 5), base);
  EXPECT_NE(print({{1, 2, 4}, {4}}, 1), base);
  EXPECT_NE(print({{1, 2, 3}, {4}}, 0), base);
  EXPECT_NE(print({{1, 2}, {3, 4}}, 1), base);
}

TEST(TokenStore, AnyFlippedBitIsDamage) {
  const std::vector<std::byte> whole = FileOf(RandomSamples(3, 40, 9));
  ASSERT_TRUE(Open(whole).ok());
  for (size_t bit = 0; bit < 8 * whole.size(); bit += bit % 8 == 7 ? 1 : 3) {
    std::vector<std::byte> bytes = whole;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    const auto opened = Open(std::move(bytes));
    ASSERT_FALSE(opened.ok()) << "bit " << bit;
    ASSERT_EQ(opened.status().code(), StatusCode::kCorrupt);
    ASSERT_NE(opened.status().message().find("is damaged"), std::string::npos) << opened.status().message();
  }
}

TEST(TokenStore, AFileCutAnywhereIsDamaged) {
  const std::vector<std::byte> whole = FileOf(RandomSamples(4, 20, 9));
  for (size_t size = 0; size < whole.size(); ++size) {
    ASSERT_FALSE(Open({whole.begin(), whole.begin() + static_cast<int64_t>(size)}).ok()) << size;
  }
}

// Checksums are no secret: numbers that a run cannot use are refused beside them.
TEST(TokenStore, NumbersOutOfRangeAreRefusedWithGoodChecksums) {
  const auto refused = [](const Tokens& tokens, const Flags& flags, int64_t vocab) {
    MemoryTokens made;
    made.Add(tokens, flags);
    EXPECT_TRUE(made.writer().Finish("").ok());
    const auto store = TokenStore::Open(made.Take(), TokenStore::Check::kAll, vocab);
    return store.ok() ? "" : store.status().message();
  };
  EXPECT_EQ(refused({1, 9}, {0, 1}, 10), "");
  EXPECT_NE(refused({1, 9}, {0, 1}, 9).find("it has the token 9, of 9"), std::string::npos);

  // A sample that reaches beyond the words, with every checksum made again.
  std::vector<std::byte> bytes = FileOf({.tokens = {{1, 2}}, .flags = {{0, 1}}, .weights = {{}}});
  Forge(bytes, [](std::span<uint32_t>, TokenEntry& entry, TokenFooter& footer) {
    entry.length_and_flags = 1000;
    footer.tokens = footer.longest = 1000;
  });
  for (const auto check : {TokenStore::Check::kAll, TokenStore::Check::kBorders}) {
    const auto store = Open(bytes, check);
    ASSERT_FALSE(store.ok());
    EXPECT_NE(store.status().message().find("samples do not fit together"), std::string::npos);
  }
}

TEST(TokenStore, KnowsWhereThePartsOfASampleBegin) {
  MemoryTokens made;
  made.Add(std::vector<int32_t>{1, 2, 3, 4, 5}, std::vector<uint8_t>{0, 1, 0, 1, 0}, {}, std::vector<size_t>{2, 4});
  made.Add(std::vector<int32_t>{6, 7}, std::vector<uint8_t>{0, 1});
  const TokenStore store = made.Store();
  const TokenSample in_parts = store.sample(0), whole = store.sample(1);
  EXPECT_EQ(in_parts.tokens(), (std::vector<int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(in_parts.PartEnd(0), 2);
  EXPECT_EQ(in_parts.PartEnd(2), 4);
  EXPECT_EQ(in_parts.PartEnd(4), 5);
  EXPECT_EQ(whole.PartEnd(0), 2);
}

// A word that begins a part of a sample that has none would give it another length than its entry says.
TEST(TokenStore, RefusesPartsThatItsEntriesDoNotHave) {
  std::vector<std::byte> bytes = FileOf({.tokens = {{1, 2}}, .flags = {{0, 1}}, .weights = {{}}});
  Forge(bytes, [](std::span<uint32_t> words, TokenEntry&, TokenFooter& footer) {
    words[1] = 2 | kPartBit;
    footer.supervised = 0;
  });
  const auto store = Open(bytes, TokenStore::Check::kAll);
  ASSERT_FALSE(store.ok());
  EXPECT_NE(store.status().message().find("begins a part of another"), std::string::npos) << store.status().message();
}

// Of a file of several chunks; files without sections are of the first version.
TEST(TokenStore, SectionsHaveAValueForEachSample) {
  constexpr int kSamples = 2 * kChunkSamples + 5;
  const auto made_of = [&](SectionSet sections) {
    MemoryTokens made(sections);
    for (int32_t s = 0; s < kSamples; ++s) {
      made.Add(Tokens{s % 7, 1}, Flags{0, 1}, {}, {}, {.label = s % 1000, .margin = 0.5F * static_cast<float>(s)});
    }
    EXPECT_TRUE(made.writer().Finish("").ok());
    const auto file = made.Take();
    return std::vector<std::byte>(file->bytes().begin(), file->bytes().end());
  };
  const std::vector<std::byte> plain = made_of({});
  const std::string plain_end(reinterpret_cast<const char*>(plain.data()) + plain.size() - 8, 8);
  EXPECT_EQ(plain_end, "TMPRTOK1");
  std::set<uint64_t> fingerprints;
  for (const SectionSet sections : {SectionSet{}, SectionSet{Section::kLabel}, SectionSet{Section::kMargin},
                                    SectionSet{Section::kLabel, Section::kMargin}}) {
    const std::vector<std::byte> bytes = made_of(sections);
    EXPECT_EQ(bytes.size(), plain.size() + 4 * sections.size() * kSamples);
    for (const auto check : {TokenStore::Check::kAll, TokenStore::Check::kBorders}) {
      const auto store = Open(bytes, check);
      ASSERT_TRUE(store.ok()) << store.status().message();
      EXPECT_EQ(store->sections(), sections);
      EXPECT_EQ(store->largest_label(), sections.has(Section::kLabel) ? 999 : -1);
      fingerprints.insert(store->Fingerprint());
      for (const int32_t s : {0, 1, 4095, 4096, 8191, 8192, kSamples - 1}) {
        EXPECT_EQ(store->values(s).label, sections.has(Section::kLabel) ? s % 1000 : 0) << s;
        EXPECT_EQ(store->values(s).margin, sections.has(Section::kMargin) ? 0.5F * static_cast<float>(s) : 0) << s;
        EXPECT_EQ(store->sample(s).tokens(), (Tokens{s % 7, 1})) << s;
      }
    }
    std::vector<std::byte> damaged = bytes;
    const size_t of_last_chunk = damaged.size() - sizeof(TokenFooter) - 3 * sizeof(uint64_t) - 4;
    damaged[of_last_chunk] ^= std::byte{1};
    EXPECT_FALSE(Open(damaged, TokenStore::Check::kBorders).ok());
  }
  EXPECT_EQ(fingerprints.size(), 4u) << "a run that is resumed sees another label";
}

}  // namespace
}  // namespace temper::token_store_test
