// RowTokenizer: texts, whole or in pieces, as windows of max_seq_len.
#include <algorithm>

#include "data/long_rows.h"
#include "data/row_tokenizer.h"

namespace temper {

Result<RowTokenizer::Piece> RowTokenizer::EncodePiece(std::string_view piece, bool continues) const {
  Piece out;
  TEMPER_ASSIGN_OR_RETURN(out.ids,
                          tokenizer_.Encode(piece, {.add_special = false,
                                                    .continues = continues,
                                                    .unknown = tokenizer_.unknown() ? &out.unknown : nullptr}));
  TEMPER_CHECK(out.unknown.size() == CountUnknown(out.ids)) << out.unknown.size() << " texts of unknown tokens";
  return out;
}

Status RowTokenizer::Add(const Piece& piece, OpenText& text, std::vector<Sample>& samples,
                         DataStatistics& statistics) const {
  statistics.unknown.AddTexts(piece.unknown);
  const bool first = text.length == 0;
  if (first) text.tokens = front_;
  text.tokens.insert(text.tokens.end(), piece.ids.begin(), piece.ids.end());
  text.unknown.insert(text.unknown.end(), piece.unknown.begin(), piece.unknown.end());
  text.length += static_cast<int64_t>(piece.ids.size());
  if (first) TEMPER_RETURN_IF_ERROR(CheckFront(text.tokens, RecordKind::kText, text.where));
  TEMPER_RETURN_IF_ERROR(CheckIds(text.tokens, text.where));
  const auto window = static_cast<size_t>(options_.max_seq_len);
  const std::span<const int32_t> tokens = text.tokens;
  size_t begin = 0, unknown_before = 0;
  for (; tokens.size() - begin >= window; begin += window - 1) {
    AddWindow(begin, window, unknown_before, text, samples, statistics);
    unknown_before += CountUnknown(tokens.subspan(begin, window - 1));
  }
  text.tokens.erase(text.tokens.begin(), text.tokens.begin() + static_cast<int64_t>(begin));
  text.unknown.erase(text.unknown.begin(), text.unknown.begin() + static_cast<int64_t>(unknown_before));
  return OkStatus();
}

void RowTokenizer::End(OpenText& text, std::vector<Sample>& samples, DataStatistics& statistics) const {
  if (text.length == 0) {
    ++statistics.dropped_rows;
    return;
  }
  const bool has_end = EndsTurn(text.tokens.back());
  if (!has_end) text.tokens.push_back(eos_);
  statistics.longest_row =
      std::max(statistics.longest_row, static_cast<int64_t>(front_.size()) + text.length + (has_end ? 0 : 1));
  if (text.tokens.size() > 1) AddWindow(0, text.tokens.size(), 0, text, samples, statistics);
}

// `size` of the open text's tokens, from `begin` on, as a sample. `unknown_before`: number of unknown ones before.
void RowTokenizer::AddWindow(size_t begin, size_t size, size_t unknown_before, const OpenText& text,
                             std::vector<Sample>& samples, DataStatistics& statistics) const {
  const auto tokens = std::span<const int32_t>(text.tokens).subspan(begin, size);
  Sample sample{.tokens = {tokens.begin(), tokens.end()}, .supervised = std::vector<uint8_t>(size, 1)};
  sample.supervised[0] = 0;
  if (text.weight != kUnitWeight) sample.weights.assign(size, text.weight);
  if (!text.unknown.empty()) {
    const auto first = text.unknown.begin() + static_cast<int64_t>(unknown_before);
    sample.unknown.assign(first, first + static_cast<int64_t>(CountUnknown(tokens)));
  }
  Count(sample, statistics);
  samples.push_back(std::move(sample));
}

// A text that is not split: its first max_seq_len tokens, or none of it.
Status RowTokenizer::AddCut(int64_t length, Piece piece, OpenText text, std::vector<Sample>& samples,
                            DataStatistics& statistics) const {
  statistics.longest_row = std::max(statistics.longest_row, length);
  Sample probe{.tokens = front_};
  probe.tokens.insert(probe.tokens.end(), piece.ids.begin(), piece.ids.end());
  TEMPER_ASSIGN_OR_RETURN(const bool kept, Shorten(text.where, length, probe, statistics));
  if (!kept) return OkStatus();
  piece.ids.resize(static_cast<size_t>(options_.max_seq_len) - std::min(front_.size(), probe.tokens.size()));
  piece.unknown.resize(CountUnknown(piece.ids));
  return Add(piece, text, samples, statistics);  // one window, without the end that is cut off
}

Status RowTokenizer::TokenizeText(const Record& record, std::vector<Sample>& samples,
                                  DataStatistics& statistics) const {
  OpenText text{.where = record.where, .weight = record.weight};
  TEMPER_ASSIGN_OR_RETURN(Piece piece, EncodePiece(record.text, /*continues=*/false));
  const bool splits = options_.long_rows == LongRows::kSplit || options_.long_rows == LongRows::kProportional;
  if (!splits && !piece.ids.empty()) {
    const auto size = static_cast<int64_t>(front_.size() + piece.ids.size());
    const int64_t length = size + (EndsTurn(piece.ids.back()) ? 0 : 1);
    if (length > options_.max_seq_len) {
      return AddCut(length, std::move(piece), std::move(text), samples, statistics);
    }
  }
  TEMPER_RETURN_IF_ERROR(Add(piece, text, samples, statistics));
  End(text, samples, statistics);
  return OkStatus();
}

}  // namespace temper
