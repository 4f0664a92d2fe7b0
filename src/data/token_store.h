// TokenStore: every sample of a data set, tokenised: a view of a token file (docs/formats/tokens.md), which several
// processes may share. Holds 8 bytes per 4,096 samples, and scores if it has some (KeepScores); the rest stays in the
// file.
//
// A sample is one row of the data set, or one window of a long text. Attention stays within it, and where it has parts
// within a part. Any thread may read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/status.h"
#include "data/template/token_weight.h"
#include "data/token_file.h"

namespace temper {

// One sample of a store; valid as long as the store.
class TokenSample {
 public:
  TokenSample(std::span<const uint32_t> words, const TokenEntry& entry)
      : words_(words), length_(static_cast<size_t>(entry.length())), own_(length_), in_parts_(entry.in_parts()) {}
  // The tokens of `prompt` before its first supervised one, then those of `answer` from its own on; of both together
  // `most` at most. REQUIRES: neither is in parts or has weights; each has a supervised token.
  static TokenSample Spliced(const TokenSample& prompt, const TokenSample& answer, int64_t most);

  int64_t length() const { return static_cast<int64_t>(length_); }
  int32_t token(int64_t i) const { return static_cast<int32_t>(Word(i) & kTokenMask); }
  // Whether predicting token i is part of the loss.
  bool supervised(int64_t i) const { return (Word(i) & kSupervisedBit) != 0; }
  // How much that counts. REQUIRES: supervised(i).
  TokenWeight weight(int64_t i) const {
    return words_.size() == length_ || own_ < length_ ? kUnitWeight : words_[length_ + static_cast<size_t>(i)];
  }
  std::vector<int32_t> tokens() const;
  // Where the part that begins at token `begin` ends. O(its length).
  int64_t PartEnd(int64_t begin) const {
    int64_t end = in_parts_ ? begin + 1 : length();
    while (end < length() && (Word(end) & kPartBit) == 0) ++end;
    return end;
  }

 private:
  uint32_t Word(int64_t i) const {
    const auto at = static_cast<size_t>(i);
    return at < own_ ? words_[at] : answer_[at - own_];
  }

  std::span<const uint32_t> words_, answer_ = {};
  size_t length_, own_;  // the first `own_` tokens are in words_, the others in answer_
  bool in_parts_;
};

class TokenStore {
 public:
  enum class Check {
    kAll,     // reads the whole file: checksums, and that every number is one that a run can use
    kBorders  // of samples only: another process of this host, or this one, has checked the rest
  };

  TokenStore() = default;  // without samples
  // Errors: kCorrupt, naming the file, if it is damaged or has a token of `vocab` or above.
  static Result<TokenStore> Open(std::unique_ptr<MappedFile> file, Check check, int64_t vocab);

  // Of the samples in each of `lists`, ids of `store`, each with the answer of the one before it in its list, the first
  // with that of the last (TokenSample::Spliced); no other samples are in it. Sections, weights and lines are not kept.
  // `store` must outlive it.
  static TokenStore Mismatched(const TokenStore& store, std::span<const std::span<const int32_t>> lists, int64_t most);

  int64_t size() const { return static_cast<int64_t>(footer_.samples); }
  TokenSample sample(int64_t id) const {
    if (of_ != nullptr) {
      return TokenSample::Spliced(of_->sample(id), of_->sample(partner_[static_cast<size_t>(id)]), most_);
    }
    const TokenEntry entry = Entry(id);
    return {{words() + entry.begin, static_cast<size_t>(entry.words())}, entry};
  }
  std::vector<int32_t> AllSamples() const;  // their ids, ascending
  int64_t length(int64_t id) const { return of_ != nullptr ? sample(id).length() : Entry(id).length(); }
  int64_t line(int64_t id) const { return of_ != nullptr ? of_->line(id) : Entry(id).line; }

  bool weighted() const { return footer_.weighted(); }  // some supervised token's weight is not 1
  SectionSet sections() const { return footer_.sections(); }
  SampleValues values(int64_t id) const {
    SampleValues values;
    if (sections().empty()) return values;
    Read(Section::kLabel, id, &values.label);
    Read(Section::kMargin, id, &values.margin);
    Read(Section::kRating, id, &values.desirable);
    return values;
  }
  int32_t largest_label() const { return largest_label_; }  // -1: there is none
  int64_t total_tokens() const { return static_cast<int64_t>(footer_.tokens); }
  int64_t total_supervised() const { return static_cast<int64_t>(footer_.supervised); }
  int64_t longest() const { return static_cast<int64_t>(footer_.longest); }
  // Of all tokens, flags, borders, weights and sections: a resumed run compares it to detect changed data.
  uint64_t Fingerprint() const { return footer_.content_sum; }
  // A number for each part of every sample, all of which have `parts`: the sum of the log-probabilities of its targets
  // under another model. Part p of sample s has scores[s * parts + p].
  void KeepScores(int parts, std::vector<float> scores) {
    parts_ = parts;
    scores_ = std::move(scores);
  }
  bool has_scores() const { return parts_ > 0; }
  // REQUIRES: has_scores().
  float score(int64_t id, int64_t part) const {
    TEMPER_CHECK(part < parts_) << "part " << part << " of sample " << id;
    return scores_[static_cast<size_t>(id * parts_ + part)];
  }
  // What the writer said of the samples.
  const std::string& about() const { return about_; }
  Bytes bytes() const { return file_ ? file_->size() : Bytes{}; }
  // As MappedFile's.
  void LetGo() const {
    if (file_) file_->LetGo();
    if (of_ != nullptr) of_->LetGo();
  }

 private:
  TokenEntry Entry(int64_t id) const {
    TokenEntry entry;
    std::memcpy(&entry,
                file_->bytes().data() + directory_[static_cast<size_t>(id / kChunkSamples)] +
                    static_cast<size_t>(id % kChunkSamples) * sizeof(entry),
                sizeof(entry));
    return entry;
  }
  int64_t samples_of_chunk(int64_t chunk) const { return std::min(kChunkSamples, size() - chunk * kChunkSamples); }
  // Leaves `value` as it is if the file lacks the section.
  template <class T>
  void Read(Section section, int64_t id, T* value) const {
    static_assert(sizeof(T) == sizeof(uint32_t));
    if (!sections().has(section)) return;
    const int64_t chunk = id / kChunkSamples;
    const auto samples = static_cast<uint64_t>(samples_of_chunk(chunk));
    const uint64_t begin = directory_[static_cast<size_t>(chunk)] + samples * sizeof(TokenEntry) +
                           sections().before(section) * samples * sizeof(T);
    std::memcpy(value, file_->bytes().data() + begin + static_cast<uint64_t>(id % kChunkSamples) * sizeof(T),
                sizeof(T));
  }
  const uint32_t* words() const { return reinterpret_cast<const uint32_t*>(file_->bytes().data()); }
  Status ReadTail();
  Status CheckSamples(Check check, int64_t vocab);

  std::unique_ptr<MappedFile> file_;
  TokenFooter footer_;
  std::vector<uint64_t> directory_;  // of each chunk: the offset of its entries
  std::string about_;
  int32_t largest_label_ = -1;
  int parts_ = 0;
  std::vector<float> scores_;
  // Of a store by Mismatched: whose prompts and answers it has, and for each sample the one with its answer; -1: it is
  // not in this store.
  const TokenStore* of_ = nullptr;
  std::vector<int32_t> partner_;
  int64_t most_ = 0;
};

}  // namespace temper
