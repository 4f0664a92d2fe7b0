// Decoders of tokenizer.json: from token spellings back to text.
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
  // Rewrites the parts of the text, which join without anything between. All are valid UTF-8 and stay so. `limit` is
  // how many bytes they may grow to together (GrowthLimit of pattern.h); what would grow beyond stays as it is.
  virtual void Apply(std::vector<std::string>& parts, size_t limit) const = 0;

  // nullptr for null: the tokens join with spaces. `where` names the file in errors.
  static Result<std::unique_ptr<Decoder>> FromJson(const Json& json, const std::string& where);
};

}  // namespace temper
