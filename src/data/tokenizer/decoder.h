// Decoders of tokenizer.json: turn token spellings back into text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace temper {

// Immutable; any thread.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Rewrites the parts of the text, which join without separators. All are valid UTF-8 and stay so. `limit`: the bytes
  // to which they may grow together (GrowthLimit of text_pattern.h); a part that would exceed it stays unchanged.
  virtual void Apply(std::vector<std::string>& parts, size_t limit) const = 0;

  // nullptr for null: then spaces join the tokens. `where` names the file in errors.
  static Result<std::unique_ptr<Decoder>> FromJson(const Json& json, const std::string& where);
};

}  // namespace temper
