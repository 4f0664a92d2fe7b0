// StreamDecoder: text from ids that arrive one by one, as generation yields them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace temper {

// The returned texts join to the result of Tokenizer::Decode for all ids, if they spell
// valid UTF-8 (else the number of U+FFFD may differ). One thread at a time. `tokenizer`
// must outlive it. An id costs a decoding of the few ids since the last complete character.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(tokenizer), skip_special_(skip_special) {}

  // The text that `id` completes; empty while a character's bytes are still to come.
  std::string Push(int32_t id);
  // The rest at the end: bytes that never became a character, as U+FFFD.
  std::string Finish();

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_;
  // The ids of the last text returned, then those since. Decoding needs the former because a token's text can depend on
  // the text before it (the first word loses its space).
  std::vector<int32_t> ids_;
  size_t returned_ids_ = 0;
  std::string returned_;  // the text of the former alone
};

}  // namespace temper
