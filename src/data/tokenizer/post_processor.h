// PostProcessor: puts tokens around a text (BOS, EOS), as tokenizer.json's post_processor says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/tokenizer/vocabulary.h"
#include "format/json.h"

namespace temper {

// Immutable; any thread.
class PostProcessor {
 public:
  PostProcessor() = default;  // adds nothing

  // `where` names the file in errors. Ids beyond kMaxTokenId are errors.
  static Result<PostProcessor> FromJson(const Json& json, const std::string& where);
  static PostProcessor Around(std::optional<int32_t> before, std::optional<int32_t> after);

  std::vector<int32_t> Apply(std::vector<int32_t> ids) const;
  // Every id that Apply may add.
  std::vector<int32_t> ids() const;

 private:
  // {before, after} the text; {before} alone leaves the text out.
  using Template = std::vector<std::vector<int32_t>>;

  static Status Collect(const Json& json, std::vector<Template>& out, const std::string& where);
  static Result<Template> TemplateFromJson(const Json& json, const std::string& where);

  std::vector<Template> steps_;
};

}  // namespace temper
