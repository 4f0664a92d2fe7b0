// WordPiece: a word as the longest token that begins it, then the longest that continues it ("##ing"), and so on, with
// the ids of the tokenizers library's WordPiece model (BERT). A word with a part that has no token is unknown as a
// whole.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/token_model.h"
#include "data/tokenizer/token_trie.h"

namespace temper {

struct WordPieceOptions {
  std::string unk_token = "[UNK]";
  std::string continuing_subword_prefix = "##";
  int64_t max_input_chars_per_word = 100;  // a longer word is unknown
};

class WordPiece final : public TokenModel {
 public:
  // `where` names the file in errors.
  static Result<std::unique_ptr<TokenModel>> Create(Vocabulary vocabulary, WordPieceOptions options,
                                                    const std::string& where);

  std::unique_ptr<Scratch> MakeScratch() const override { return std::make_unique<Scratch>(); }
  void Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const override;
  // The whole word decides whether it is known.
  bool Follow(TextBorder& border) const override { return border.cut; }
  std::optional<int32_t> unknown() const override { return unknown_; }
  void AppendUnknown(std::string_view word, std::vector<std::string>& out) const override;

 private:
  WordPiece(Vocabulary vocabulary, TokenTrie trie, WordPieceOptions options)
      : TokenModel(std::move(vocabulary)), trie_(std::move(trie)), options_(std::move(options)) {}

  TokenTrie trie_;
  WordPieceOptions options_;
  int32_t unknown_ = 0;
  std::optional<uint32_t> continued_;  // the trie's node behind the prefix; none: no token has it
};

}  // namespace temper
