// SentencePieceTokenizer: a SentencePiece tokenizer.model, read as transformers' LlamaTokenizer reads it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/post_processor.h"
#include "data/tokenizer/special_tokens.h"
#include "data/tokenizer/tokenizer.h"
#include "data/tokenizer/vocabulary.h"

namespace sentencepiece {
class SentencePieceProcessor;
}

namespace temper {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // `model` is the file's content. Fills in the roles of `special` that no file states (<s>, </s>, <unk>). `where`
  // names the file in errors.
  static Result<std::unique_ptr<Tokenizer>> Create(std::string_view model, SpecialTokens& special,
                                                   const std::string& where);
  ~SentencePieceTokenizer() override;

  Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options) const override;
  size_t FindCut(std::string_view text, size_t from) const override;
  Bytes max_text() const override { return MiB(256); }  // sentencepiece's positions are int, several per byte
  std::string Decode(std::span<const int32_t> ids, bool skip_special) const override;
  int64_t vocab_size() const override { return vocab_size_; }
  std::optional<int32_t> TokenToId(std::string_view token) const override;
  std::string IdToToken(int32_t id) const override;
  bool IsSpecial(int32_t id) const override;

 private:
  SentencePieceTokenizer(std::unique_ptr<sentencepiece::SentencePieceProcessor> processor, Vocabulary vocabulary);

  // `unknown`: as in EncodeOptions.
  Status EncodePart(std::string_view text, bool continues, std::vector<int32_t>& out,
                    std::vector<std::string>* unknown) const;
  Status EncodeSlice(std::string_view text, std::string_view anchor, size_t anchor_pieces, std::vector<int32_t>& out,
                     std::vector<std::string>* unknown) const;
  size_t NextSlice(std::string_view text, size_t begin) const;
  std::string DecodeText(std::span<const int32_t> ids) const;

  // Constant after Create.
  std::unique_ptr<sentencepiece::SentencePieceProcessor> processor_;
  Vocabulary vocabulary_;  // of the model file
  AddedTokens added_;
  PostProcessor post_processor_;
  // LlamaTokenizer until transformers 4.31 ("legacy") put a space before every stretch of text between special tokens;
  // since then only the whole text gets one.
  bool legacy_ = true;
  bool add_prefix_space_ = true;
  std::string unk_;             // spelling of the unknown token; see EncodePart
  size_t unk_pieces_ = 0;       // how many pieces that is
  bool cuts_at_space_ = false;  // no piece crosses a space; see FindSpace
  size_t anchor_pieces_ = 0;    // of kAnchor
  int64_t vocab_size_ = 0;
};

}  // namespace temper
