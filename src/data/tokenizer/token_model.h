// TokenModel: what makes ids of one word of a text: BPE, Unigram or WordPiece, as in a tokenizer.json's "model".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/text_border.h"
#include "data/tokenizer/vocabulary.h"

namespace temper {

// Immutable once made; any thread, each with its own scratch.
class TokenModel {
 public:
  // Buffers and caches of one encoding at a time. Belongs to one model for good.
  class Scratch {
   public:
    virtual ~Scratch() = default;
  };

  virtual ~TokenModel() = default;
  TokenModel(const TokenModel&) = delete;
  TokenModel& operator=(const TokenModel&) = delete;

  virtual std::unique_ptr<Scratch> MakeScratch() const = 0;
  // Appends the ids of `word`, which is valid UTF-8 (for some BPE: any bytes). REQUIRES: `scratch` is of this model;
  // word.size() < 2^31.
  virtual void Encode(std::string_view word, Scratch& scratch, std::vector<int32_t>& out) const = 0;

  // As TextBorder says.
  virtual bool Follow(TextBorder& border) const = 0;

  // The token of unknown characters; none if every text has other tokens, or unknown characters are dropped.
  virtual std::optional<int32_t> unknown() const = 0;
  // Appends the characters of each unknown token of `word`.
  virtual void AppendUnknown(std::string_view word, std::vector<std::string>& out) const = 0;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 protected:
  explicit TokenModel(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  Vocabulary vocabulary_;
};

}  // namespace temper
