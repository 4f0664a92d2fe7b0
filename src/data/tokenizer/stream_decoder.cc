#include "data/tokenizer/stream_decoder.h"

#include <algorithm>

#include "base/utf8.h"

namespace temper {
namespace {

// A character has at most four bytes, so more pending ids than that hold bytes that are not UTF-8. They are output as
// they are; otherwise ids would pile up and be decoded again and again.
constexpr size_t kMaxPending = 8;

// Ids are decoded again behind one before them, since a text's first token may lose its space. A token of spaces alone
// does not do for that: as the first it may be lost whole. Until another one comes, up to so many ids stay.
constexpr size_t kMaxKept = 32;

// `text` without the first `n` bytes, or a few more to the start of a character.
std::string Behind(const std::string& text, size_t n) {
  n = std::min(n, text.size());
  while (n < text.size() && (static_cast<unsigned char>(text[n]) & 0xC0) == 0x80) ++n;
  return text.substr(n);
}

}  // namespace

std::string StreamDecoder::Push(int32_t id) {
  if ((skip_special_ && tokenizer_.IsSpecial(id)) || tokenizer_.IdToToken(id).empty()) return {};
  ids_.push_back(id);
  const std::string text = tokenizer_.Decode(ids_, skip_special_);
  const bool complete = !text.ends_with(utf8::kReplacement) || ids_.size() - returned_ids_ > kMaxPending;
  if (!complete || text.size() <= returned_.size()) return {};
  std::string fresh = Behind(text, returned_.size());
  const auto kept = std::span(ids_).subspan(returned_ids_);
  std::string behind = tokenizer_.Decode(kept, skip_special_);
  if (behind.find_first_not_of(' ') == behind.npos && ids_.size() < kMaxKept) {
    returned_ = text;
  } else {
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<ptrdiff_t>(returned_ids_));
    returned_ = std::move(behind);
  }
  returned_ids_ = ids_.size();
  return fresh;
}

std::string StreamDecoder::Finish() {
  std::string rest = Behind(tokenizer_.Decode(ids_, skip_special_), returned_.size());
  ids_.clear();
  returned_ids_ = 0;
  returned_.clear();
  return rest;
}

}  // namespace temper
