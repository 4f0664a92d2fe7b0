#include "data/template/jinja.h"

#include <fmt/core.h>

#include <new>
#include <nlohmann/json.hpp>

#include "base/utf8.h"
#include "data/template/interpreter.h"
#include "data/template/parser.h"
#include "data/template/unicode.h"
#include "data/template/value_json.h"

namespace temper {
namespace {

// Real chat templates have at most some tens of kilobytes.
constexpr size_t kMaxSource = 4 << 20;

Status ToStatus(const jinja::TemplateError& error, const std::string& where) {
  if (error.line() == 0) return Status(error.code(), fmt::format("{}: {}", where, error.what()));
  return Status(error.code(), fmt::format("{}, line {}: {}", where, error.line(), error.what()));
}

// Bytes of all texts in a value that came from JSON.
int64_t TextIn(const jinja::Value& v) {
  int64_t sum = 0;
  if (v.IsString()) return static_cast<int64_t>(v.text().size());
  if (v.IsSequence()) {
    for (const jinja::Value& item : v.items()) sum += TextIn(item);
  } else if (v.Is(jinja::Type::kDict)) {
    for (const auto& [key, value] : v.dict().entries) sum += TextIn(key) + TextIn(value);
  }
  return sum;
}

}  // namespace

struct Template::Parsed {
  std::string source, where;
  jinja::ParsedTemplate tree;
};

Result<Template> Template::Parse(std::string source, std::string where) {
  if (source.size() > kMaxSource) {
    return InvalidArgument(
        fmt::format("{}: a template of {} is too long", where, ToString(Bytes{static_cast<int64_t>(source.size())})));
  }
  if (!utf8::IsValid(source)) return Corrupt(fmt::format("{}: the template is not valid UTF-8", where));
  auto parsed = std::make_shared<Parsed>();
  parsed->where = std::move(where);
  parsed->source = std::move(source);
  try {
    parsed->tree = jinja::ParseTemplate(parsed->source);
  } catch (const jinja::TemplateError& error) {
    return ToStatus(error, parsed->where);
  }
  return Template(std::move(parsed));
}

Result<RenderedTemplate> Template::RenderWithGenerations(const OrderedJson& context,
                                                         const RenderOptions& options) const {
  if (!context.is_object()) return InvalidArgument(fmt::format("{}: the context is not an object", where()));
  Variables variables;
  try {
    for (const auto& [name, value] : context.items()) variables.emplace_back(name, jinja::FromJson(value));
  } catch (const jinja::TemplateError& error) {
    return ToStatus(error, where());
  }
  return RenderVariables(variables, options);
}

Result<RenderedTemplate> Template::RenderVariables(const Variables& variables, const RenderOptions& options) const {
  try {
    int64_t given = 0;
    for (const auto& [name, value] : variables) given += TextIn(value);
    const RenderLimits& limits = options.limits;
    jinja::Budget budget(limits.steps + RenderLimits::kStepsPerByte * given,
                         limits.work.v + RenderLimits::kWorkPerByte * given,
                         limits.text.v + RenderLimits::kTextPerByte * given);
    const jinja::Budget::Scope scope(budget);
    jinja::Interpreter interpreter(variables, options.now);
    RenderedTemplate out;
    out.text = interpreter.Render(parsed_->tree.body);
    for (const auto& span : interpreter.generations()) out.generations.push_back({span.begin, span.end});
    out.generation_lost = interpreter.lost_generation();
    out.undefined = interpreter.undefined();
    return out;
  } catch (const jinja::TemplateError& error) {
    return ToStatus(error, where());
  } catch (const std::bad_alloc&) {
    return OutOfMemory(fmt::format("{}: no memory left to render the template", where()));
  }
}

Result<std::string> Template::Render(const OrderedJson& context, const RenderOptions& options) const {
  TEMPER_ASSIGN_OR_RETURN(RenderedTemplate rendered, RenderWithGenerations(context, options));
  return std::move(rendered.text);
}

bool Template::has_generation_blocks() const {
  return parsed_->tree.has_generation;
}
const std::string& Template::source() const {
  return parsed_->source;
}

const std::string& Template::where() const {
  return parsed_->where;
}

}  // namespace temper
