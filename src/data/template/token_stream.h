// A template's tokens as its parser reads them: the current one and one ahead; takes tokens that must or may come next.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/template/lexer.h"

namespace temper::jinja {

class TokenStream {
 public:
  // REQUIRES: `tokens` ends with a kEnd token, which stays current once it is reached.
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Current() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token Next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }

  // Moves past the current token if it is this one.
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);

  // These throw TemplateError with the current line if another token comes. `what`: "a name".
  Token Expect(TokenType type, const char* what);
  void ExpectOperator(std::string_view op);

 private:
  const std::vector<Token> tokens_;
  size_t at_ = 0;
};

[[noreturn]] void FailAt(int line, std::string message);

}  // namespace temper::jinja
