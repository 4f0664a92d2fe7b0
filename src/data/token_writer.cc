#include "data/token_writer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/check.h"

namespace temper {
namespace {

constexpr size_t kBufferWords = 512 << 10;

}  // namespace

TokenWriter::TokenWriter(std::unique_ptr<WritableFile> file, SectionSet sections)
    : file_(std::move(file)), sections_(sections) {}

Status TokenWriter::Add(std::span<const int32_t> tokens, std::span<const uint8_t> supervised,
                        std::span<const TokenWeight> weights, int64_t line, std::span<const size_t> parts,
                        const SampleValues& values) {
  TEMPER_CHECK(tokens.size() == supervised.size() && !tokens.empty() && tokens.size() < TokenEntry::kInParts)
      << tokens.size() << " tokens, " << supervised.size() << " flags";
  TEMPER_CHECK(weights.empty() || weights.size() == tokens.size())
      << tokens.size() << " tokens, " << weights.size() << " weights";
  const auto counts = [&](size_t i) { return i > 0 && supervised[i]; };
  const uint64_t begin = written_ / sizeof(uint32_t) + words_.size();
  bool weighted = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    TEMPER_CHECK(tokens[i] >= 0 && static_cast<uint32_t>(tokens[i]) <= kTokenMask) << "token " << tokens[i];
    words_.push_back(static_cast<uint32_t>(tokens[i]) | (counts(i) ? kSupervisedBit : 0));
    footer_.supervised += counts(i);
    weighted |= !weights.empty() && counts(i) && weights[i] != kUnitWeight;
  }
  const size_t first_word = words_.size() - tokens.size();
  for (const size_t part : parts) {
    TEMPER_CHECK(part > 0 && part < tokens.size() && !counts(part)) << "a part from token " << part;
    words_[first_word + part] |= kPartBit;
  }
  for (size_t i = 0; weighted && i < weights.size(); ++i) {
    TEMPER_CHECK(!counts(i) || (weights[i] > 0 && weights[i] <= kLargestWeight))
        << "weight " << weights[i] << " of token " << i;
    words_.push_back(counts(i) ? weights[i] : kUnitWeight);
  }
  const TokenEntry entry{.begin = begin,
                         .length_and_flags = static_cast<uint32_t>(tokens.size()) |
                                             (weighted ? TokenEntry::kWeighted : 0) |
                                             (parts.empty() ? 0 : TokenEntry::kInParts),
                         .line = static_cast<uint32_t>(std::min<int64_t>(line, std::numeric_limits<uint32_t>::max()))};
  entries_.push_back(entry);
  content_sum_.Update(std::as_bytes(std::span(&entry.length_and_flags, 1)));
  TEMPER_CHECK(values.label >= 0) << "label " << values.label;
  const std::array<uint32_t, kAllSections.size()> bits = {static_cast<uint32_t>(values.label),
                                                          std::bit_cast<uint32_t>(values.margin),
                                                          static_cast<uint32_t>(values.desirable)};
  for (const Section section : kAllSections) {
    const auto s = static_cast<size_t>(section);
    if (sections_.has(section)) values_[s].push_back(bits[s]);
  }
  ++footer_.samples;
  footer_.tokens += tokens.size();
  footer_.longest = std::max<uint64_t>(footer_.longest, tokens.size());
  if (weighted) footer_.flags |= TokenFooter::kSomeWeighted;
  if (words_.size() >= kBufferWords) TEMPER_RETURN_IF_ERROR(WriteWords());
  return entries_.size() == kChunkSamples ? EndChunk() : OkStatus();
}

Status TokenWriter::Write(std::span<const std::byte> data) {
  written_ += data.size();
  return data.empty() ? OkStatus() : file_->Append(data);
}

Status TokenWriter::WriteWords() {
  const auto bytes = std::as_bytes(std::span(words_));
  words_sum_.Update(bytes);
  const Status status = Write(bytes);
  words_.clear();
  return status;
}

Status TokenWriter::EndChunk() {
  TEMPER_RETURN_IF_ERROR(WriteWords());
  directory_.push_back(written_);
  const auto bytes = std::as_bytes(std::span(entries_));
  entries_sum_.Update(bytes);
  TEMPER_RETURN_IF_ERROR(Write(bytes));
  entries_.clear();
  for (std::vector<uint32_t>& values : values_) {
    const auto section = std::as_bytes(std::span(values));
    entries_sum_.Update(section);
    content_sum_.Update(section);
    TEMPER_RETURN_IF_ERROR(Write(section));
    values.clear();
  }
  return OkStatus();
}

Status TokenWriter::Finish(std::string_view about) {
  if (!entries_.empty()) TEMPER_RETURN_IF_ERROR(EndChunk());
  footer_.about_bytes = about.size();
  footer_.flags |= sections_.bits() << TokenFooter::kFirstSectionBit;
  if (!sections_.empty()) footer_.magic = kSectionedFileMagic;
  footer_.words_sum = words_sum_.Value();
  footer_.entries_sum = entries_sum_.Value();
  content_sum_.Update(std::as_bytes(std::span(&footer_.words_sum, 1)));
  footer_.content_sum = content_sum_.Value();
  const auto directory = std::as_bytes(std::span(directory_)), text = std::as_bytes(std::span(about));
  const auto footer = std::as_bytes(std::span(&footer_, 1));
  Checksum tail;
  for (const auto& part : {directory, text, footer.first(offsetof(TokenFooter, tail_sum))}) tail.Update(part);
  footer_.tail_sum = tail.Value();
  for (const auto& part : {directory, text, footer}) TEMPER_RETURN_IF_ERROR(Write(part));
  TEMPER_RETURN_IF_ERROR(file_->Sync());
  return file_->Close();
}

}  // namespace temper
