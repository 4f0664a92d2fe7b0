#include "data/tokenizer/pipeline.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/units.h"
#include "base/utf8.h"
#include "data/tokenizer/text_pattern.h"
#include "data/tokenizer/unicode.h"

namespace temper {

Pipeline::Pipeline(PipelineParts parts) : parts_(std::move(parts)) {
  vocab_size_ = parts_.model->vocabulary().limit();
  for (const AddedToken& token : parts_.added.tokens())
    vocab_size_ = std::max<int64_t>(vocab_size_, token.id + int64_t{1});
  unknown_ = parts_.model->unknown();
}
Pipeline::~Pipeline() = default;

std::unique_ptr<Pipeline::Scratch> Pipeline::TakeScratch() const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!idle_.empty()) {
      auto scratch = std::move(idle_.back());
      idle_.pop_back();
      return scratch;
    }
  }
  auto scratch = std::make_unique<Scratch>();
  scratch->model = parts_.model->MakeScratch();
  return scratch;
}

void Pipeline::ReturnScratch(std::unique_ptr<Scratch> scratch) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(std::move(scratch));
}

Result<std::vector<int32_t>> Pipeline::Encode(std::string_view text, EncodeOptions options) const {
  if (static_cast<int64_t>(text.size()) > max_text().v) {
    return InvalidArgument(
        fmt::format("a text of {} bytes cannot be tokenized in one piece (at most {}): split it into "
                    "documents",
                    text.size(), ToString(max_text())));
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + 8);  // English has about four bytes to a token
  std::unique_ptr<Scratch> scratch = TakeScratch();
  const std::string_view valid = utf8::MakeValid(text, scratch->valid);
  const Status status = EncodeValid(valid, options, *scratch, ids);
  ReturnScratch(std::move(scratch));
  if (!status.ok()) return status;
  return options.add_special ? parts_.post_processor.Apply(std::move(ids)) : std::move(ids);
}

// Whether a text can be cut wherever these two characters meet (TextBorder).
bool Pipeline::CutsAt(TextBorder border) const {
  return parts_.added.Follow(border, /*normalized=*/false) &&
         (!parts_.normalizer || parts_.normalizer->Follow(border)) &&
         parts_.added.Follow(border, /*normalized=*/true) && FollowIntoWords(parts_.pre_tokenizers, border) &&
         parts_.model->Follow(border);
}

size_t Pipeline::FindCut(std::string_view text, size_t from) const {
  constexpr size_t kTried = 32;  // pairs of characters; each takes milliseconds
  std::set<std::pair<char32_t, char32_t>> tried;
  size_t at = from;
  while (at < text.size() && (text[at] & 0xC0) == 0x80) ++at;  // to the start of a character
  if (at >= text.size()) return text.npos;
  char32_t left = utf8::At(text, at);
  for (at += utf8::Length(text[at]); at < text.size() && at < from + kCutSearch;) {
    const size_t behind = at + utf8::Length(text[at]);
    const char32_t right = utf8::At(text, at);
    const bool marks = unicode::IsMark(left) || unicode::IsMark(right) ||
                       (behind < text.size() && unicode::IsMark(utf8::At(text, behind)));
    if (behind < text.size() && !marks && !unicode::MayJoinBefore(left) && !unicode::IsSpace(left) &&
        tried.emplace(left, right).second) {
      if (CutsAt(TextBorder::Of(left, right))) return at;
      if (tried.size() == kTried) break;
    }
    left = right;
    at = behind;
  }
  return text.npos;
}

void Pipeline::AddToken(int32_t id, std::vector<int32_t>& out, std::vector<std::string>* unknown) const {
  out.push_back(id);
  if (unknown && id == unknown_) unknown->emplace_back();
}

Status Pipeline::EncodeValid(std::string_view text, EncodeOptions options, Scratch& scratch,
                             std::vector<int32_t>& out) const {
  parts_.added.Split(text, /*normalized=*/false, options.parse_special, scratch.raw_parts);
  for (const TextPart& part : scratch.raw_parts) {
    if (part.id) {
      AddToken(*part.id, out, options.unknown);
      continue;
    }
    Stretch stretch;
    std::string_view normalized = part.text;
    const bool first = part.text.data() == text.data();
    bool at_start = first && !options.continues;
    if (parts_.normalizer) {
      stretch = {std::string(part.text), at_start, GrowthLimit(part.text.size()), first && options.continues};
      TEMPER_RETURN_IF_ERROR(parts_.normalizer->Apply(stretch, scratch.regex));
      normalized = stretch.text;
      at_start = stretch.at_start;
    }
    parts_.added.Split(normalized, /*normalized=*/true, options.parse_special, scratch.parts);
    for (const TextPart& words : scratch.parts) {
      if (words.id) {
        AddToken(*words.id, out, options.unknown);
      } else {
        TEMPER_RETURN_IF_ERROR(
            EncodeWords(words.text, at_start && words.text.data() == normalized.data(), scratch, out, options.unknown));
      }
    }
  }
  return OkStatus();
}

Status Pipeline::EncodeWords(std::string_view text, bool at_start, Scratch& scratch, std::vector<int32_t>& out,
                             std::vector<std::string>* unknown) const {
  scratch.cut.made = 0;
  scratch.cut.limit = GrowthLimit(text.size());
  return CutIntoWords(parts_.pre_tokenizers, {text, at_start}, scratch.cut, [&](const Piece& piece) {
    if (static_cast<int64_t>(piece.text.size()) > max_text().v) return TooLong(static_cast<size_t>(max_text().v));
    const auto before = static_cast<ptrdiff_t>(out.size());
    parts_.model->Encode(piece.text, *scratch.model, out);
    if (unknown && unknown_ && std::find(out.begin() + before, out.end(), *unknown_) != out.end()) {
      parts_.model->AppendUnknown(piece.text, *unknown);
    }
    return OkStatus();
  });
}

std::string Pipeline::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  size_t bytes = 0;
  for (const int32_t id : ids) {
    std::string token = IdToToken(id);
    if (token.empty() || (skip_special && IsSpecial(id))) continue;
    bytes += token.size();
    tokens.push_back(std::move(token));
  }
  std::string text;
  if (parts_.decoder) {
    parts_.decoder->Apply(tokens, GrowthLimit(bytes));
    for (const std::string& part : tokens) text += part;
  } else {
    for (size_t i = 0; i < tokens.size(); ++i) text.append(i > 0 ? " " : "").append(tokens[i]);
  }
  return text;
}

std::optional<int32_t> Pipeline::TokenToId(std::string_view token) const {
  if (const AddedToken* added = parts_.added.Find(token)) return added->id;
  return parts_.model->vocabulary().Find(token);
}

std::string Pipeline::IdToToken(int32_t id) const {
  if (const AddedToken* added = parts_.added.Find(id)) return added->content;
  return std::string(parts_.model->vocabulary().Spelling(id));
}

bool Pipeline::IsSpecial(int32_t id) const {
  const AddedToken* added = parts_.added.Find(id);
  return added && added->special;
}

}  // namespace temper
