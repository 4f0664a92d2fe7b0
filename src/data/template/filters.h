// Jinja's filters: {{ value | name(arguments) }}.
#pragma once

#include <string_view>

#include "data/template/ast.h"

namespace temper::jinja {

// Null if there is none of that name. The function throws TemplateError.
FilterFunction FindFilter(std::string_view name);

}  // namespace temper::jinja
