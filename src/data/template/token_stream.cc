#include "data/template/token_stream.h"

#include <fmt/core.h>

namespace temper::jinja {

bool TokenStream::SkipName(std::string_view name) {
  if (!Current().IsName(name)) return false;
  Next();
  return true;
}
bool TokenStream::SkipOperator(std::string_view op) {
  if (!Current().IsOperator(op)) return false;
  Next();
  return true;
}
Token TokenStream::Expect(TokenType type, const char* what) {
  if (Current().type != type) {
    FailAt(Current().line, fmt::format("expected {}, got '{}'", what, Describe(Current())));
  }
  return Next();
}
void TokenStream::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) FailAt(Current().line, fmt::format("expected token '{}', got '{}'", op, Describe(Current())));
}

void FailAt(int line, std::string message) {
  throw TemplateError(StatusCode::kInvalidArgument, std::move(message), line);
}

}  // namespace temper::jinja
