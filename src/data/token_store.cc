#include "data/token_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <limits>

#include "format/checksum.h"

namespace temper {
namespace {

constexpr size_t kPieceWords = 128 << 10;  // stays in a core's cache between its checksum and its check

Status Damaged(const MappedFile& file, std::string_view what) {
  return Corrupt(fmt::format("{} is damaged: {}", file.path(), what));
}

// What the words of a file add up to.
struct WordTotals {
  uint64_t supervised = 0;
  uint32_t largest_token = 0, least_weight = kUnitWeight, largest_weight = kUnitWeight;

  void AddTokens(std::span<const uint32_t> words) {
    for (const uint32_t word : words) {
      supervised += word >> 31;
      largest_token = std::max(largest_token, word & kTokenMask);
    }
  }
  void AddWeights(std::span<const uint32_t> words) {
    for (const uint32_t word : words) {
      least_weight = std::min(least_weight, word);
      largest_weight = std::max(largest_weight, word);
    }
  }
};

// Reads the words of a chunk in pieces, and says of each which they are.
class ChunkWords {
 public:
  ChunkWords(const MappedFile& file, Checksum& sum, WordTotals& totals)
      : file_(file),
        sum_(sum),
        totals_(totals),
        piece_(std::clamp(static_cast<size_t>(file.size().v) / sizeof(uint32_t), size_t{1}, kPieceWords)) {}

  // `words` words from byte `offset` on, those of `entries`. False: the first token of a part is supervised, or parts
  // are not as the entries say.
  Result<bool> Read(uint64_t offset, uint64_t words, std::span<const TokenEntry> entries) {
    size_t at = 0;     // in entries
    int64_t done = 0;  // words of that sample
    bool well = true, has_parts = false;
    for (uint64_t read = 0; read < words;) {
      const auto piece = std::span(piece_).first(std::min<size_t>(piece_.size(), words - read));
      TEMPER_RETURN_IF_ERROR(
          file_.ReadAt(static_cast<int64_t>(offset + read * sizeof(uint32_t)), std::as_writable_bytes(piece)));
      sum_.Update(std::as_bytes(piece));
      read += piece.size();
      for (std::span<const uint32_t> rest = piece; !rest.empty();) {
        const TokenEntry& entry = entries[at];
        const bool tokens = done < entry.length();
        const auto left = static_cast<size_t>((tokens ? entry.length() : entry.words()) - done);
        const auto part = rest.first(std::min(left, rest.size()));
        if (done == 0) well &= (part[0] & (kSupervisedBit | kPartBit)) == 0;
        if (tokens) {
          totals_.AddTokens(part);
          for (const uint32_t word : part) {
            if ((word & kPartBit) == 0) continue;
            well &= entry.in_parts() && (word & kSupervisedBit) == 0;
            has_parts = true;
          }
        } else {
          totals_.AddWeights(part);
        }
        rest = rest.subspan(part.size());
        done += static_cast<int64_t>(part.size());
        if (done < entry.words()) continue;
        well &= entry.in_parts() == has_parts;
        has_parts = false;
        done = 0;
        ++at;
      }
    }
    return well;
  }

 private:
  const MappedFile& file_;
  Checksum& sum_;
  WordTotals& totals_;
  std::vector<uint32_t> piece_;
};

}  // namespace

std::vector<int32_t> TokenSample::tokens() const {
  std::vector<int32_t> out(length_);
  for (size_t i = 0; i < length_; ++i) out[i] = token(static_cast<int64_t>(i));
  return out;
}

TokenSample TokenSample::Spliced(const TokenSample& prompt, const TokenSample& answer, int64_t most) {
  const auto first_of = [](const TokenSample& sample) {
    int64_t first = 0;
    while (first < sample.length() && !sample.supervised(first)) ++first;
    return static_cast<size_t>(first);
  };
  TokenSample spliced = prompt;
  const size_t begin = first_of(answer);
  spliced.own_ = first_of(prompt);
  spliced.answer_ = answer.words_.subspan(begin, answer.length_ - begin);
  spliced.length_ = std::min(spliced.own_ + spliced.answer_.size(), static_cast<size_t>(most));
  return spliced;
}

std::vector<int32_t> TokenStore::AllSamples() const {
  std::vector<int32_t> all;
  for (int32_t id = 0; id < size(); ++id) {
    if (of_ == nullptr || partner_[static_cast<size_t>(id)] >= 0) all.push_back(id);
  }
  return all;
}

TokenStore TokenStore::Mismatched(const TokenStore& store, std::span<const std::span<const int32_t>> lists,
                                  int64_t most) {
  TokenStore mismatched;
  mismatched.footer_.samples = store.footer_.samples;
  mismatched.of_ = &store;
  mismatched.most_ = most;
  mismatched.partner_.assign(static_cast<size_t>(store.size()), -1);
  for (const std::span<const int32_t> list : lists) {
    for (size_t i = 0; i < list.size(); ++i) {
      mismatched.partner_[static_cast<size_t>(list[i])] = list[(i + list.size() - 1) % list.size()];
    }
  }
  return mismatched;
}

Result<TokenStore> TokenStore::Open(std::unique_ptr<MappedFile> file, Check check, int64_t vocab) {
  TokenStore store;
  store.file_ = std::move(file);
  TEMPER_RETURN_IF_ERROR(store.ReadTail());
  TEMPER_RETURN_IF_ERROR(store.CheckSamples(check, vocab));
  return store;
}

// Footer, directory and `about`.
Status TokenStore::ReadTail() {
  const auto size = static_cast<uint64_t>(file_->size().v);
  if (size < sizeof(footer_)) return Damaged(*file_, "it is too short");
  const auto footer = std::as_writable_bytes(std::span(&footer_, 1));
  TEMPER_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(size - sizeof(footer_)), footer));
  const bool sectioned = footer_.magic == kSectionedFileMagic;
  if (!sectioned && footer_.magic != kTokenFileMagic) return Damaged(*file_, "it does not end as token files do");
  uint64_t known = 0;
  for (const Section section : kAllSections) known |= SectionSet({section}).bits();
  if (sectioned == sections().empty() || (sections().bits() & ~known) != 0) {
    return Damaged(*file_, "it has sections that this version does not know");
  }
  const uint64_t before = size - sizeof(footer_);
  if (footer_.samples > before / sizeof(TokenEntry) || footer_.about_bytes > before) {
    return Damaged(*file_, "its end says more than it holds");
  }
  directory_.resize((footer_.samples + kChunkSamples - 1) / kChunkSamples);
  about_.resize(footer_.about_bytes);
  const auto directory = std::as_writable_bytes(std::span(directory_)),
             about = std::as_writable_bytes(std::span(about_));
  if (directory.size() + about.size() > before) return Damaged(*file_, "its end says more than it holds");
  TEMPER_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(before - about.size() - directory.size()), directory));
  TEMPER_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(before - about.size()), about));
  Checksum sum;
  sum.Update(directory);
  sum.Update(about);
  sum.Update(footer.first(offsetof(TokenFooter, tail_sum)));
  return sum.Value() == footer_.tail_sum ? OkStatus() : Damaged(*file_, "the checksum of its end does not match");
}

Status TokenStore::CheckSamples(Check check, int64_t vocab) {
  const uint64_t end =
      static_cast<uint64_t>(file_->size().v) - sizeof(footer_) - about_.size() - directory_.size() * sizeof(uint64_t);
  Checksum words_sum, entries_sum, content_sum;
  WordTotals totals;
  ChunkWords reader(*file_, words_sum, totals);
  TokenFooter found;
  std::vector<TokenEntry> entries;
  std::vector<uint32_t> values;  // of all sections
  uint64_t begin = 0;            // of the chunk, in bytes
  for (const uint64_t border : directory_) {
    entries.resize(std::min<uint64_t>(kChunkSamples, footer_.samples - found.samples));
    values.resize(entries.size() * sections().size());
    const auto bytes = std::as_writable_bytes(std::span(entries)), more = std::as_writable_bytes(std::span(values));
    if (border < begin || border > end || bytes.size() + more.size() > end - border || border % sizeof(uint32_t) != 0) {
      return Damaged(*file_, "its chunks do not fit together");
    }
    TEMPER_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(border), bytes));
    TEMPER_RETURN_IF_ERROR(file_->ReadAt(static_cast<int64_t>(border + bytes.size()), more));
    entries_sum.Update(bytes);
    entries_sum.Update(more);
    uint64_t next = begin / sizeof(uint32_t);
    for (const TokenEntry& entry : entries) {
      if (entry.begin != next || entry.length() == 0) return Damaged(*file_, "its samples do not fit together");
      next += static_cast<uint64_t>(entry.words());
      found.tokens += static_cast<uint64_t>(entry.length());
      found.longest = std::max(found.longest, static_cast<uint64_t>(entry.length()));
      if (entry.weighted()) found.flags |= TokenFooter::kSomeWeighted;
      content_sum.Update(std::as_bytes(std::span(&entry.length_and_flags, 1)));
    }
    if (next * sizeof(uint32_t) != border) return Damaged(*file_, "its samples do not fit together");
    found.samples += entries.size();
    content_sum.Update(more);
    if (sections().has(Section::kLabel)) {
      for (const uint32_t label : std::span(values).first(entries.size())) {
        if (label > std::numeric_limits<int32_t>::max()) return Damaged(*file_, "it has a label that is no class");
        largest_label_ = std::max(largest_label_, static_cast<int32_t>(label));
      }
    }
    if (sections().has(Section::kRating)) {
      for (const uint32_t rating :
           std::span(values).subspan(sections().before(Section::kRating) * entries.size(), entries.size())) {
        if (rating > 1) return Damaged(*file_, "it has a rating that is neither good nor bad");
      }
    }
    if (check == Check::kAll) {
      TEMPER_ASSIGN_OR_RETURN(const bool well, reader.Read(begin, (border - begin) / sizeof(uint32_t), entries));
      if (!well) return Damaged(*file_, "the first token of a sample is to be predicted, or begins a part of another");
    }
    begin = border + bytes.size() + more.size();
  }
  if (begin != end) return Damaged(*file_, "its chunks do not fit together");
  content_sum.Update(std::as_bytes(std::span(&footer_.words_sum, 1)));
  if (entries_sum.Value() != footer_.entries_sum || content_sum.Value() != footer_.content_sum ||
      found.tokens != footer_.tokens || found.longest != footer_.longest ||
      found.flags != (footer_.flags & TokenFooter::kFlagsOfSamples)) {
    return Damaged(*file_, "the checksum of its samples does not match");
  }
  if (check == Check::kBorders) return OkStatus();
  if (words_sum.Value() != footer_.words_sum || totals.supervised != footer_.supervised) {
    return Damaged(*file_, "the checksum of its tokens does not match");
  }
  if (totals.least_weight == 0 || totals.largest_weight > kLargestWeight) {
    return Damaged(*file_, "it has a weight that no token can have");
  }
  if (footer_.tokens > 0 && totals.largest_token >= vocab) {
    return Damaged(*file_, fmt::format("it has the token {}, of {}", totals.largest_token, vocab));
  }
  return OkStatus();
}

}  // namespace temper
