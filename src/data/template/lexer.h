// Turns template source into tokens. Applies jinja2's rules for trim_blocks, lstrip_blocks, '-' and '+' to the text
// between tags: the parser sees text exactly as it will be printed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/template/value.h"

namespace temper::jinja {

enum class TokenType : unsigned char {
  kData,           // text outside of tags
  kVariableBegin,  // {{
  kVariableEnd,
  kBlockBegin,  // {%
  kBlockEnd,
  kName,
  kString,    // text holds the unescaped value
  kNumber,    // value holds it
  kOperator,  // text holds it
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;
  Value number;

  bool Is(TokenType t, std::string_view s) const { return type == t && text == s; }
  bool IsName(std::string_view s) const { return Is(TokenType::kName, s); }
  bool IsOperator(std::string_view s) const { return Is(TokenType::kOperator, s); }
};

// Ends with a kEnd token. Throws TemplateError with the line.
std::vector<Token> Tokenize(std::string_view source);

// For error messages: the text of the token, or its kind.
std::string Describe(const Token& token);

}  // namespace temper::jinja
