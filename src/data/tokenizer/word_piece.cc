#include "data/tokenizer/word_piece.h"

#include <fmt/core.h>

#include <algorithm>

namespace temper {

Result<std::unique_ptr<TokenModel>> WordPiece::Create(Vocabulary vocabulary, WordPieceOptions options,
                                                      const std::string& where) {
  const auto unknown = vocabulary.Find(options.unk_token);
  if (!unknown) {
    return Corrupt(fmt::format("{}: the unknown token '{}' is not in the vocabulary", where, options.unk_token));
  }
  TEMPER_ASSIGN_OR_RETURN(TokenTrie trie, TokenTrie::Create(vocabulary, where));
  std::unique_ptr<WordPiece> made(new WordPiece(std::move(vocabulary), std::move(trie), std::move(options)));
  made->unknown_ = *unknown;
  uint32_t node = TokenTrie::kRoot;
  bool found = true;
  for (const char c : made->options_.continuing_subword_prefix) {
    node = made->trie_.Next(node, static_cast<unsigned char>(c));
    found = found && node != TokenTrie::kNone;
    if (!found) break;
  }
  if (found) made->continued_ = node;
  return std::unique_ptr<TokenModel>(std::move(made));
}

void WordPiece::Encode(std::string_view word, Scratch&, std::vector<int32_t>& out) const {
  const size_t before = out.size();
  const auto characters = std::count_if(word.begin(), word.end(), [](char c) { return (c & 0xC0) != 0x80; });
  bool known = characters <= options_.max_input_chars_per_word;
  for (size_t begin = 0; known && begin < word.size();) {
    known = begin == 0 || continued_;
    if (!known) break;
    uint32_t node = begin == 0 ? TokenTrie::kRoot : *continued_;
    int32_t id = -1;
    size_t end = begin;
    for (size_t at = begin; at < word.size();) {
      node = trie_.Next(node, static_cast<unsigned char>(word[at++]));
      if (node == TokenTrie::kNone) break;
      if (trie_.IdAt(node) < 0) continue;
      id = trie_.IdAt(node);
      end = at;
    }
    known = id >= 0;
    if (known) out.push_back(id);
    begin = end;
  }
  if (known) return;
  out.resize(before);
  out.push_back(unknown_);
}

void WordPiece::AppendUnknown(std::string_view word, std::vector<std::string>& out) const {
  // The word is one unknown token, unless it spells that.
  out.emplace_back(word == options_.unk_token ? std::string_view() : word);
}

}  // namespace temper
