// Parses template source into a tree, by jinja2's grammar.
#pragma once

#include <string_view>

#include "data/template/ast.h"

namespace temper::jinja {

struct ParsedTemplate {
  Body body;
  bool has_generation = false;  // there is a {% generation %} block
};

// Throws TemplateError with the line of the error.
ParsedTemplate ParseTemplate(std::string_view source);

}  // namespace temper::jinja
