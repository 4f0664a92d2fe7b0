// Pipeline: the tokenizer that tokenizer.json, vocab.json + merges.txt, or tiktoken's ranks describe:
//   added tokens -> normalizer -> added tokens (normalized) -> pre-tokenizer -> token model -> post-processor
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/post_processor.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/token_model.h"
#include "data/tokenizer/tokenizer.h"

namespace temper {

struct PipelineParts {
  std::unique_ptr<Normalizer> normalizer;  // may be null
  std::vector<std::unique_ptr<PreTokenizer>> pre_tokenizers;
  std::unique_ptr<TokenModel> model;
  PostProcessor post_processor;
  std::unique_ptr<Decoder> decoder;  // null: tokens join with spaces
  AddedTokens added;
};

class Pipeline final : public Tokenizer {
 public:
  explicit Pipeline(PipelineParts parts);
  ~Pipeline() override;

  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options) const override;
  size_t FindCut(std::string_view text, size_t from) const override;
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> TokenToId(std::string_view token) const override;
  std::string IdToToken(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;

 private:
  struct Scratch {
    std::unique_ptr<TokenModel::Scratch> model;
    RegexScratch regex;  // of the normalizer
    PreTokenizerScratch cut;
    std::vector<TextPart> raw_parts, parts;
    std::string valid;
  };
  // Scratches live as long as the tokenizer; there are as many as encodings have run at once.
  std::unique_ptr<Scratch> TakeScratch() const;
  void ReturnScratch(std::unique_ptr<Scratch> scratch) const;

  bool CutsAt(TextBorder border) const;
  void AddToken(int32_t id, std::vector<int32_t>& out, std::vector<std::string>* unknown) const;
  Status EncodeValid(std::string_view text, EncodeOptions options, Scratch& scratch, std::vector<int32_t>& out) const;
  // `unknown`: as in EncodeOptions.
  Status EncodeWords(std::string_view text, bool at_start, Scratch& scratch, std::vector<int32_t>& out,
                     std::vector<std::string>* unknown) const;

  // Constant after construction.
  const PipelineParts parts_;
  int64_t vocab_size_ = 0;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;  // guarded by mutex_
};

}  // namespace temper
