// Tokenizer: text to token ids and back, with the same ids as Hugging Face's tokenizers and sentencepiece.
//
//   auto tokenizer = LoadTokenizer(PosixEnv(), folder);  // load_tokenizer.h
//   auto ids = (*tokenizer)->Encode("Hello");
//
// Thread rule: immutable once loaded, but for StopAt; every other method may be called from any thread at once. A
// StreamDecoder (stream_decoder.h) turns ids that arrive one by one into text that is complete UTF-8.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace temper {

struct EncodeOptions {
  // Adds what the tokenizer's post-processor adds: BOS of Llama, "</s>" of OPT. Off for the text of a chat template,
  // which has these tokens already.
  bool add_special = true;
  // Special tokens spelled out in the text ("<|im_start|>") become their ids. Off for untrusted text, which must not
  // forge them: they are then encoded as ordinary text. (Added tokens that are not special are always recognised.)
  bool parse_special = true;
  // The text continues another, from which FindCut separates it: nothing is put in front of it.
  bool continues = false;
  // If not null: for each unknown() token the characters that became it are appended; "" if the text spells the token.
  std::vector<std::string>* unknown = nullptr;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Bytes of `text` that are not UTF-8 are read as U+FFFD, one per maximal ill-formed part, as Python and Rust do.
  // Takes linear time; a hostile regular expression in tokenizer.json that takes longer is an error. That and a text of
  // more than max_text() are the only errors.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text, EncodeOptions options = {}) const = 0;

  // The first place from `from` on where `text` may be cut: its ids, without add_special, are those of the part before
  // followed by those of the part behind as one that `continues`. npos if none was found within kCutSearch bytes: more
  // text may have one, but some tokenizers need a text whole. Takes some milliseconds for each pair of characters that
  // it tries, of which there are 32 at most. REQUIRES: valid UTF-8.
  virtual size_t FindCut(std::string_view /*text*/, size_t /*from*/) const { return std::string_view::npos; }
  // The longest text that Encode takes.
  virtual Bytes max_text() const { return GiB(1); }

  // Always valid UTF-8: bytes that form no character come out as U+FFFD. Ids without a token are omitted, and with
  // skip_special also special tokens.
  virtual std::string Decode(std::span<const int32_t> ids, bool skip_special = true) const = 0;

  // The largest id + 1, with added tokens. A model's embedding may have more rows (padding), or fewer if tokens were
  // added that the model never saw.
  virtual int64_t vocab_size() const = 0;
  // The token's spelling in the vocabulary ("Ġthe", "▁the", "<0x0A>"), not its text.
  virtual std::optional<int32_t> TokenToId(std::string_view token) const = 0;
  virtual std::string IdToToken(int32_t id) const = 0;  // empty if `id` has no token
  virtual bool IsSpecial(int32_t id) const = 0;

  std::optional<int32_t> bos() const { return bos_; }
  std::optional<int32_t> eos() const { return eos_; }
  std::optional<int32_t> pad() const { return pad_; }
  // The token for text that has no other; none if every text has.
  std::optional<int32_t> unknown() const { return unknown_; }
  // Where generation stops: eos() and every eos_token_id of generation_config.json and config.json. Sorted, no
  // duplicates.
  const std::vector<int32_t>& stop_ids() const { return stop_ids_; }
  // Adds `id` to stop_ids(): a chat template may end turns with a token that the model's files do not name. Not while
  // other threads use the tokenizer.
  void StopAt(int32_t id) {
    const auto at = std::lower_bound(stop_ids_.begin(), stop_ids_.end(), id);
    if (at == stop_ids_.end() || *at != id) stop_ids_.insert(at, id);
  }

 protected:
  static constexpr size_t kCutSearch = 64 << 10;

  Tokenizer() = default;

  std::optional<int32_t> bos_, eos_, pad_, unknown_;
  std::vector<int32_t> stop_ids_;

 private:
  friend class TokenizerLoader;  // fills in the ids above, for every kind of tokenizer
};

}  // namespace temper
