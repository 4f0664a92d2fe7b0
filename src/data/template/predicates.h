// Jinja's tests: {% if value is name(arguments) %}.
#pragma once

#include <string_view>

#include "data/template/ast.h"

namespace temper::jinja {

// Null if there is none of that name. The function throws TemplateError.
TestFunction FindTest(std::string_view name);

}  // namespace temper::jinja
