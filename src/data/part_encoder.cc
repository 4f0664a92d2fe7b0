#include "data/part_encoder.h"

#include <algorithm>
#include <span>
#include <utility>

namespace temper {
namespace {

// Each border inside a piece encodes the piece again. Templates without special tokens would make one long piece, so it
// ends at this size: a conversation of n turns then costs n times this, not n times itself.
constexpr size_t kPieceBytes = 16 << 10;

bool StartsWith(const std::vector<int32_t>& ids, const std::vector<int32_t>& head) {
  return ids.size() >= head.size() && std::equal(head.begin(), head.end(), ids.begin());
}

}  // namespace

// The tokens that `text` has after `context`, a special token or a line end, and its unknown characters. In all
// vocabularies that we know neither merges with the following text, and after it no "start of text" space is put before
// `text`.
Result<std::vector<int32_t>> PartEncoder::EncodeAfter(const std::string& context, std::string_view text,
                                                      std::vector<std::string>* unknown) const {
  unknown->clear();
  const EncodeOptions options{.add_special = false, .unknown = tokenizer_.unknown() ? unknown : nullptr};
  if (context.empty()) return tokenizer_.Encode(text, options);
  TEMPER_ASSIGN_OR_RETURN(const auto head, tokenizer_.Encode(context, options));
  const size_t of_head = unknown->size();
  unknown->clear();
  TEMPER_ASSIGN_OR_RETURN(auto ids, tokenizer_.Encode(context + std::string(text), options));
  if (!StartsWith(ids, head)) {
    unknown->clear();
    return tokenizer_.Encode(text, options);
  }
  unknown->erase(unknown->begin(), unknown->begin() + static_cast<int64_t>(std::min(of_head, unknown->size())));
  ids.erase(ids.begin(), ids.begin() + static_cast<int64_t>(head.size()));
  return ids;
}

// A piece is the text since the last special token that ends a part; its encoding must extend that of its beginning.
Status PartEncoder::Encode(const std::vector<Part>& parts, Sample& sample, DataStatistics& statistics) const {
  std::string context, piece;
  std::vector<int32_t> piece_ids;
  std::vector<std::string> unknown;
  size_t piece_unknown = 0;  // number of its unknown tokens
  int borders = 0;           // inside the piece
  const bool weighted =
      std::any_of(parts.begin(), parts.end(), [](const Part& part) { return part.weight != kUnitWeight; });
  for (const Part& part : parts) {
    if (part.text.empty()) continue;
    if (piece.empty() || (borders >= 2 && piece.size() > kPieceBytes)) {
      if (!piece.empty()) context = "\n";
      piece.clear();
      piece_ids.clear();
      piece_unknown = 0;
      borders = 0;
    }
    ++borders;
    piece += part.text;
    TEMPER_ASSIGN_OR_RETURN(auto ids, EncodeAfter(context, piece, &unknown));
    if (!StartsWith(ids, piece_ids)) {
      ++statistics.split_borders;
      context = "\n";
      piece = part.text;
      piece_ids.clear();
      piece_unknown = 0;
      borders = 1;
      TEMPER_ASSIGN_OR_RETURN(ids, EncodeAfter(context, piece, &unknown));
    }
    const auto of_part = std::span<const std::string>(unknown).subspan(std::min(piece_unknown, unknown.size()));
    statistics.unknown.AddTexts(of_part);
    sample.unknown.insert(sample.unknown.end(), of_part.begin(), of_part.end());
    piece_unknown = unknown.size();
    sample.tokens.insert(sample.tokens.end(), ids.begin() + static_cast<int64_t>(piece_ids.size()), ids.end());
    sample.supervised.resize(sample.tokens.size(), part.supervised);
    if (weighted) sample.weights.resize(sample.tokens.size(), part.weight);
    if (!ids.empty() && tokenizer_.IsSpecial(ids.back())) {
      const std::string spelling = tokenizer_.IdToToken(ids.back());
      if (!spelling.empty() && piece.ends_with(spelling)) {
        context = spelling;
        piece.clear();
        ids.clear();
        piece_unknown = 0;
      }
    }
    piece_ids = std::move(ids);
  }
  return OkStatus();
}

}  // namespace temper
