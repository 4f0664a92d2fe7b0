// A Jinja2 interpreter for chat templates: renders as Python's jinja2 does in the environment that transformers gives
// them (sandboxed and immutable, trim_blocks, lstrip_blocks, loop controls, raise_exception, strftime_now, tojson
// without HTML escapes, {% generation %}). Unsupported features give an error that names them: other template files,
// autoescape, integers beyond 64 bits, and the filters random, pprint, urlize, wordwrap, striptags, xmlattr.
//
// A Template is immutable after Parse: any number of threads may render it at once. Template and context are untrusted:
// nesting, steps and memory are bounded, and every error names the template and the line.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "format/json.h"

namespace temper {

namespace jinja {
class Value;
}

// What a template may spend on a short conversation, and more for each byte of text that it is given: hostile ones end
// within a second and 100 MB, and no real one comes near, however long its conversation.
struct RenderLimits {
  // A chat template takes about 100 steps per message; the longest conversations take some ten thousand.
  int64_t steps = 4'000'000;
  // Longest single text, the output included.
  Bytes text = MiB(16);
  // All texts and containers created and all text searched, summed over the render.
  Bytes work = MiB(48);

  static constexpr int64_t kStepsPerByte = 8, kTextPerByte = 4, kWorkPerByte = 64;
};

// 1 January 1970.
inline std::tm Epoch() {
  std::tm t{};
  t.tm_mday = 1;
  t.tm_year = 70;
  t.tm_wday = 4;
  return t;
}

struct RenderOptions {
  // The time that strftime_now formats. Fixed by the caller, so that a run can be repeated. Default: the epoch.
  std::tm now = Epoch();
  RenderLimits limits;
};

// Bytes [begin, end) of a rendered text.
struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

struct RenderedTemplate {
  std::string text;
  std::vector<TextSpan> generations;  // output of {% generation %} blocks, in order
  // True if one of them ran inside a macro, a filter or a set block: then it is missing from `generations`.
  bool generation_lost = false;
  // What is printed as nothing because it is not defined: "frage", "antwort.text"; each once, the first few.
  std::vector<std::string> undefined;
};

// Whether `text` is a template, not the name of its file.
inline bool IsTemplateText(std::string_view text) {
  return text.find("{{") != text.npos || text.find("{%") != text.npos;
}

class Template {
 public:
  // `where` names the template in errors.
  static Result<Template> Parse(std::string source, std::string where);

  // `context`: an object whose keys are the template's variables.
  Result<std::string> Render(const OrderedJson& context, const RenderOptions& options = {}) const;
  Result<RenderedTemplate> RenderWithGenerations(const OrderedJson& context, const RenderOptions& options = {}) const;

  // As above, on values that are already converted: prefixes of one conversation share their messages.
  using Variables = std::vector<std::pair<std::string, jinja::Value>>;
  Result<RenderedTemplate> RenderVariables(const Variables& variables, const RenderOptions& options = {}) const;

  bool has_generation_blocks() const;
  const std::string& source() const;
  const std::string& where() const;

 private:
  struct Parsed;
  explicit Template(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace temper
