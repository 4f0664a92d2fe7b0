// Normalizers of tokenizer.json: they change a text before it is cut into words.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/text_border.h"
#include "format/json.h"

namespace temper {

// A stretch of text between input and ids: its current form, and whether it begins where the whole text began (some
// steps prepend a space only there).
struct Stretch {
  std::string text;
  bool at_start = false;
  size_t limit = 0;        // bytes to which `text` may grow: a hostile file could double it at every step
  bool continues = false;  // begins where another text ended: nothing is put or stripped there
};

// Immutable; any thread, each with its own scratch.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  // `stretch.text` is valid UTF-8 and stays so.
  virtual Status Apply(Stretch& stretch, RegexScratch& scratch) const = 0;
  // As TextBorder says. REQUIRES: both characters, and the one behind them, are no marks.
  virtual bool Follow(TextBorder& border) const = 0;

  // nullptr for null: nothing to do. `where` names the file in errors.
  static Result<std::unique_ptr<Normalizer>> FromJson(const Json& json, const std::string& where);
};

}  // namespace temper
