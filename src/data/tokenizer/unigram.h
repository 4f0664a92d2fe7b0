// Unigram: of all ways to write a word as tokens, the one whose scores have the greatest sum, with the ids of the
// tokenizers library's Unigram model (T5, XLM-R). By dynamic programming: linear in the word, times the longest token.
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
#include "data/tokenizer/word_cache.h"

namespace temper {

class Unigram final : public TokenModel {
 public:
  // `scores` by id. `unknown`: the id of characters without a token, a run of which is one. With byte_fallback they are
  // "<0xE2><0x96>..." if the vocabulary has these. `where` names the file in errors.
  static Result<std::unique_ptr<TokenModel>> Create(Vocabulary vocabulary, std::vector<double> scores, int32_t unknown,
                                                    bool byte_fallback, const std::string& where);

  std::unique_ptr<Scratch> MakeScratch() const override;
  void Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const override;
  // Whether the best way through a text passes between two characters depends on all of it, if any token may lie
  // across.
  bool Follow(TextBorder& border) const override { return border.cut; }
  std::optional<int32_t> unknown() const override { return covered_ ? std::nullopt : std::optional(unknown_); }
  void AppendUnknown(std::string_view word, std::vector<std::string>& out) const override;

 private:
  // The best way that ends before a byte: the token it ends with.
  struct Step {
    double score = 0;
    int32_t begin = -1;  // of the token; -1: no way ends here
    int32_t id = -1;
  };
  struct Buffers;

  Unigram(Vocabulary vocabulary, TokenTrie trie) : TokenModel(std::move(vocabulary)), trie_(std::move(trie)) {}

  void FindBest(std::string_view word, std::vector<Step>& steps) const;
  // Calls visit(text, id) for each token of `word`, from its end to its begin; a run of unknown ones is one.
  template <typename Visit>
  void VisitBackwards(std::string_view word, std::vector<Step>& steps, Visit&& visit) const;
  // Appends, backwards, the ids of an unknown run.
  void AppendFallback(std::string_view text, std::vector<int32_t>& out) const;
  bool FallsBack(std::string_view text) const;

  TokenTrie trie_;
  std::vector<double> scores_;
  int32_t unknown_ = 0;
  double unknown_score_ = 0;
  bool byte_fallback_ = false;
  bool covered_ = false;  // every character has other tokens
  std::optional<int32_t> fallback_[256];
};

}  // namespace temper
