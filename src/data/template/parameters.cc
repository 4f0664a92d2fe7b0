#include "data/template/parameters.h"

#include <fmt/core.h>

#include <algorithm>

namespace temper::jinja {

Parameters::Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<const char*> names,
                       size_t required)
    : function_(function), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    Fail(fmt::format("{}() takes at most {} argument(s) but {} were given", function, names.size(),
                     arguments.positional.size()));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keywords) {
    const auto it = std::find(names.begin(), names.end(), std::string_view(name));
    if (it == names.end()) Fail(fmt::format("{}() got an unexpected keyword argument '{}'", function, name));
    const Value*& slot = values_[static_cast<size_t>(it - names.begin())];
    if (slot) Fail(fmt::format("{}() got multiple values for argument '{}'", function, name));
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i]) Fail(fmt::format("{}() missing required argument '{}'", function, *(names.begin() + i)));
  }
}

void RequireNoArguments(const Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.keywords.empty()) Fail("this filter takes no arguments");
}

int64_t Parameters::Int(size_t i, int64_t fallback) const {
  if (!values_[i]) return fallback;
  RequireDefined(*values_[i]);
  if (!values_[i]->IsInteger()) {
    Fail(fmt::format("{}(): '{}' object cannot be interpreted as an integer", function_, TypeName(*values_[i])));
  }
  return values_[i]->integer();
}

const std::string& Parameters::Text(size_t i) const {
  RequireDefined(*values_[i]);
  if (!values_[i]->IsString()) Fail(fmt::format("{}(): expected str, got {}", function_, TypeName(*values_[i])));
  return values_[i]->text();
}

}  // namespace temper::jinja
