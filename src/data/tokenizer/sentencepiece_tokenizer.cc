#include "data/tokenizer/sentencepiece_tokenizer.h"

#include <fmt/core.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "base/units.h"
#include "base/utf8.h"
#include "data/tokenizer/model_proto.h"

namespace temper {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // ▁

// Long texts are encoded in slices of about this size: 70 MB take 30 s instead of 49 s in one piece, and a third less
// memory.
constexpr size_t kSlice = 64 << 10;
// Put before a slice within a text, so that sentencepiece does not take its beginning for the text's.
constexpr std::string_view kAnchor = "a";

// Whether the vocabulary has a piece in which a space follows something else.
bool SomePieceCrossesASpace(const Vocabulary& vocabulary) {
  for (const auto& [piece, id] : vocabulary.ids()) {
    std::string_view rest = piece;
    while (rest.starts_with(kSpaceMark) || rest.starts_with(' '))
      rest.remove_prefix(rest[0] == ' ' ? 1 : kSpaceMark.size());
    if (rest.find(kSpaceMark) != rest.npos || rest.find(' ') != rest.npos) return true;
  }
  return false;
}

bool IsAsciiWord(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// The next single space between two ASCII letters or digits; npos: none. If cuts_at_space_, a text cut there has the
// same ids: neither normalization nor any piece crosses it.
size_t FindSpace(std::string_view text, size_t from) {
  for (size_t at = text.find(' ', std::max<size_t>(from, 1)); at != text.npos; at = text.find(' ', at + 1)) {
    if (at + 1 < text.size() && IsAsciiWord(text[at - 1]) && IsAsciiWord(text[at + 1])) return at;
  }
  return text.npos;
}

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

void FillRole(SpecialRole& role, const char* content, const Vocabulary& vocabulary) {
  if (role.stated || !vocabulary.Find(content)) return;
  role.stated = true;
  role.token.emplace();
  role.token->content = content;
  role.token->special = true;
  role.token->normalized = false;
}

// T5's class adds tokens that stand for left-out text behind the model's, the first at the end.
void AddSentinels(int64_t first_id, SpecialTokens& special) {
  constexpr int kSentinels = 100;
  for (int i = 0; i < kSentinels; ++i) {
    AddedToken token;
    token.content = fmt::format("<extra_id_{}>", kSentinels - 1 - i);
    token.id = static_cast<int32_t>(first_id + i);
    token.special = true;
    token.normalized = false;
    special.added.push_back(std::move(token));
  }
}

Result<Vocabulary> ReadVocabulary(const sentencepiece::SentencePieceProcessor& processor, const std::string& where) {
  std::vector<std::pair<std::string_view, int64_t>> tokens;
  for (int id = 0; id < processor.GetPieceSize(); ++id) tokens.emplace_back(processor.IdToPiece(id), id);
  for (const auto& [piece, id] : tokens) {
    if (utf8::ValidPrefix(piece) != piece.size()) {
      return Corrupt(fmt::format("{}: piece {} is not UTF-8", where, id));
    }
  }
  return Vocabulary::Create(tokens, where);
}

}  // namespace

SentencePieceTokenizer::SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor,
                                               Vocabulary vocabulary)
    : processor_(std::move(processor)), vocabulary_(std::move(vocabulary)) {}
SentencePieceTokenizer::~SentencePieceTokenizer() = default;

Result<std::unique_ptr<Tokenizer>> SentencePieceTokenizer::Create(std::string_view model, SpecialTokens& special,
                                                                  const std::string& where) {
  const std::string& name = special.tokenizer_class;
  const bool t5 = name == "T5Tokenizer" || (name.empty() && where.ends_with("spiece.model"));
  if (!name.empty() && !t5 && name != "LlamaTokenizer" && name != "GemmaTokenizer") {
    return Unsupported(
        fmt::format("{}: the SentencePiece model of a {} is not supported (only of LlamaTokenizer, GemmaTokenizer and "
                    "T5Tokenizer); save the tokenizer as tokenizer.json",
                    where, name));
  }
  TEMPER_RETURN_IF_ERROR(CheckModelProto(model, where));
  const bool legacy = special.legacy.value_or(true) || name == "GemmaTokenizer";
  auto processor = std::make_unique<sentencepiece::SentencePieceProcessor>();
  try {
    const auto status = processor->LoadFromSerializedProto(legacy ? std::string(model) : WithoutDummyPrefix(model));
    if (!status.ok()) return Corrupt(fmt::format("{}: not a SentencePiece model: {}", where, status.ToString()));
  } catch (const std::exception& e) {
    return Corrupt(fmt::format("{}: not a SentencePiece model: {}", where, e.what()));
  }
  TEMPER_ASSIGN_OR_RETURN(Vocabulary vocabulary, ReadVocabulary(*processor, where));

  if (!t5) FillRole(special.bos, name == "GemmaTokenizer" ? "<bos>" : "<s>", vocabulary);
  FillRole(special.eos, name == "GemmaTokenizer" ? "<eos>" : "</s>", vocabulary);
  FillRole(special.unk, "<unk>", vocabulary);
  if (t5 || name == "GemmaTokenizer") FillRole(special.pad, "<pad>", vocabulary);
  if (t5 && special.added.empty()) AddSentinels(vocabulary.limit(), special);

  std::unique_ptr<SentencePieceTokenizer> made(new SentencePieceTokenizer(std::move(processor), std::move(vocabulary)));
  AddedTokenIds ids(made->vocabulary_);
  for (const AddedToken& token : special.added) TEMPER_RETURN_IF_ERROR(ids.Add(token, where));
  for (const SpecialRole* role : {&special.bos, &special.eos, &special.unk, &special.pad}) {
    if (role->token && !ids.Has(role->token->content)) TEMPER_RETURN_IF_ERROR(ids.Add(*role->token, where));
  }
  for (const AddedToken& token : special.additional) {
    if (!ids.Has(token.content)) TEMPER_RETURN_IF_ERROR(ids.Add(token, where));
  }
  std::vector<AddedToken> tokens = ids.Take();
  for (AddedToken& token : tokens) token.normalized = false;  // here all are searched in the original text
  TEMPER_ASSIGN_OR_RETURN(made->added_, AddedTokens::Create(std::move(tokens), nullptr, where));

  made->legacy_ = legacy;
  made->add_prefix_space_ = special.add_prefix_space.value_or(true);
  if (special.unk.token) made->unk_ = special.unk.token->content;
  if (!legacy) {
    std::vector<int> pieces;
    if (!made->processor_->Encode(made->unk_, &pieces).ok())
      return Corrupt(where + ": cannot encode its unknown token");
    made->unk_pieces_ = pieces.size();
  }
  std::vector<int> anchor;
  made->cuts_at_space_ =
      !SomePieceCrossesASpace(made->vocabulary_) && made->processor_->Encode(std::string(kAnchor), &anchor).ok();
  made->anchor_pieces_ = anchor.size();
  const auto id_of = [&](const SpecialRole& role) {
    return role.token ? made->TokenToId(role.token->content) : std::nullopt;
  };
  made->post_processor_ = PostProcessor::Around(special.add_bos.value_or(!t5) ? id_of(special.bos) : std::nullopt,
                                                special.add_eos.value_or(t5) ? id_of(special.eos) : std::nullopt);
  const bool falls_back_on_bytes = made->processor_->IsByte(made->processor_->PieceToId("<0x00>"));
  if (!falls_back_on_bytes) made->unknown_ = made->processor_->unk_id();
  made->vocab_size_ = made->vocabulary_.limit();
  for (const AddedToken& token : made->added_.tokens()) {
    made->vocab_size_ = std::max<int64_t>(made->vocab_size_, token.id + int64_t{1});
  }
  return std::unique_ptr<Tokenizer>(std::move(made));
}

Result<std::vector<int32_t>> SentencePieceTokenizer::Encode(std::string_view text, EncodeOptions options) const {
  if (static_cast<int64_t>(text.size()) > max_text().v) {
    return InvalidArgument(
        fmt::format("a text of {} bytes cannot be tokenized in one piece (at most {}): split it into "
                    "documents",
                    text.size(), ToString(max_text())));
  }
  std::string storage;
  std::string_view valid = utf8::MakeValid(text, storage);
  std::string prepared;
  if (!legacy_ && !valid.empty()) {
    prepared = std::string(valid);
    ReplaceAll(prepared, kSpaceMark, " ");
    if (add_prefix_space_ && !options.continues) prepared.insert(0, kSpaceMark);
    valid = prepared;
  }
  std::vector<TextPart> parts;
  added_.Split(valid, /*normalized=*/false, options.parse_special, parts);
  std::vector<int32_t> ids;
  for (const TextPart& part : parts) {
    if (part.id) {
      ids.push_back(*part.id);
      if (options.unknown && *part.id == unknown_) options.unknown->emplace_back();
    } else {
      const bool continues = options.continues && part.text.data() == valid.data();
      TEMPER_RETURN_IF_ERROR(EncodePart(part.text, continues, ids, options.unknown));
    }
  }
  // Before a special token, the space put before the text is not a token of its own.
  if (!legacy_ && !options.continues && ids.size() > 1 && IsSpecial(ids[1]) &&
      vocabulary_.Spelling(ids[0]) == kSpaceMark)
    ids.erase(ids.begin());
  return options.add_special ? post_processor_.Apply(std::move(ids)) : std::move(ids);
}

Status SentencePieceTokenizer::EncodePart(std::string_view text, bool continues, std::vector<int32_t>& out,
                                          std::vector<std::string>* unknown) const {
  // sentencepiece treats the start of its input as the start of a text. After the unknown token's spelling, whose
  // pieces are then dropped, a leading space is an ordinary space.
  const bool behind_unk = !legacy_ && (text.starts_with(' ') || text.starts_with(kSpaceMark));
  size_t begin = 0;
  do {
    const size_t end = NextSlice(text, begin);
    const std::string_view slice = text.substr(begin, end - begin);
    if (begin > 0 || continues) {
      TEMPER_RETURN_IF_ERROR(EncodeSlice(slice, kAnchor, anchor_pieces_, out, unknown));
    } else {
      TEMPER_RETURN_IF_ERROR(EncodeSlice(slice, behind_unk ? unk_ : "", behind_unk ? unk_pieces_ : 0, out, unknown));
    }
    begin = end;
  } while (begin < text.size());
  return OkStatus();
}

// Appends the ids that `text` has after `anchor`, which has `anchor_pieces`.
Status SentencePieceTokenizer::EncodeSlice(std::string_view text, std::string_view anchor, size_t anchor_pieces,
                                           std::vector<int32_t>& out, std::vector<std::string>* unknown) const {
  std::vector<int> pieces;
  const auto status = processor_->Encode(std::string(anchor).append(text), &pieces);
  if (!status.ok()) return Corrupt("sentencepiece cannot encode a text: " + status.ToString());
  const auto first = pieces.begin() + static_cast<ptrdiff_t>(std::min(anchor_pieces, pieces.size()));
  out.insert(out.end(), first, pieces.end());
  if (unknown && unknown_ && std::find(first, pieces.end(), *unknown_) != pieces.end()) {
    std::vector<std::string> texts;
    const auto again = processor_->Encode(std::string(anchor).append(text), &texts);
    TEMPER_CHECK(again.ok() && texts.size() == pieces.size()) << "sentencepiece cuts one text in two ways";
    for (auto at = first; at != pieces.end(); ++at) {
      if (*at == *unknown_) unknown->push_back(texts[static_cast<size_t>(at - pieces.begin())]);
    }
  }
  return OkStatus();
}

// The end of the slice that begins at `begin`.
size_t SentencePieceTokenizer::NextSlice(std::string_view text, size_t begin) const {
  if (!cuts_at_space_ || text.size() - begin <= 2 * kSlice) return text.size();
  return std::min(FindSpace(text, begin + kSlice), text.size());
}

size_t SentencePieceTokenizer::FindCut(std::string_view text, size_t from) const {
  text = text.substr(0, from + kCutSearch);
  size_t at = cuts_at_space_ ? FindSpace(text, from) : text.npos;
  while (at != text.npos && !added_.Follow(TextBorder::Of(text[at - 1], ' '), /*normalized=*/false)) {
    at = FindSpace(text, at + 1);
  }
  return at;
}

// Text of ids that are all pieces of the model, as sentencepiece joins them.
std::string SentencePieceTokenizer::DecodeText(std::span<const int32_t> ids) const {
  std::vector<std::string> pieces;
  for (const int32_t id : ids) pieces.emplace_back(vocabulary_.Spelling(id));
  std::string text;
  if (pieces.empty() || !processor_->Decode(pieces, &text).ok()) return {};
  std::string storage;
  return std::string(utf8::MakeValid(text, storage));
}

std::string SentencePieceTokenizer::Decode(std::span<const int32_t> ids, bool skip_special) const {
  std::vector<int32_t> kept;
  for (const int32_t id : ids) {
    if (IdToToken(id).empty() || (skip_special && IsSpecial(id))) continue;
    kept.push_back(id);
  }
  std::string text;
  size_t begin = 0;
  for (size_t i = 0; i <= kept.size(); ++i) {
    if (i < kept.size() && !added_.Find(kept[i])) continue;
    // The space before the text is not the user's, whichever step added it.
    const bool strip =
        begin == 0 && i > 0 && add_prefix_space_ && vocabulary_.Spelling(kept[0]).starts_with(kSpaceMark);
    std::string part = DecodeText(std::span(kept).subspan(begin, i - begin));
    if (strip && !legacy_ && part.starts_with(' ')) part.erase(0, 1);
    text += part;
    if (i < kept.size()) text += added_.Find(kept[i])->content;
    begin = i + 1;
  }
  return text;
}

std::optional<int32_t> SentencePieceTokenizer::TokenToId(std::string_view token) const {
  if (const AddedToken* added = added_.Find(token)) return added->id;
  return vocabulary_.Find(token);
}

std::string SentencePieceTokenizer::IdToToken(int32_t id) const {
  if (const AddedToken* added = added_.Find(id)) return added->content;
  return std::string(vocabulary_.Spelling(id));
}

bool SentencePieceTokenizer::IsSpecial(int32_t id) const {
  const AddedToken* added = added_.Find(id);
  return added && added->special;
}

}  // namespace temper
