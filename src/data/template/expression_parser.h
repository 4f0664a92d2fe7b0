// The expression half of the parser: a token stream and jinja2's operator precedence. The statement half derives from
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/template/ast.h"
#include "data/template/lexer.h"

namespace temper::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& Current() const { return tokens_[at_]; }
  const Token& Ahead() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  Token Next() { return at_ + 1 < tokens_.size() ? tokens_[at_++] : tokens_[at_]; }
  bool SkipName(std::string_view name);
  bool SkipOperator(std::string_view op);
  Token Expect(TokenType type, const char* what);
  void ExpectOperator(std::string_view op);
  [[noreturn]] void FailAt(int line, std::string message) const;

  ExprPtr ParseExpression(bool with_conditional = true);
  // A tuple where there is a comma. `end_name` ends it too ("in", "recursive"; may be null).
  ExprPtr ParseTuple(bool with_conditional, const char* end_name, bool explicit_parentheses = false);
  ExprPtr ParseFilterChain(ExprPtr operand, bool starts_inline);
  // Names, tuples of names and, where allowed, namespace attributes.
  ExprPtr ParseAssignTarget(bool with_namespace, const char* end_name);
  ExprPtr ParseNameTarget();

  ExprPtr Make(ExprKind kind, int line) const;
  // Computes the node's depth from its children and refuses what is too deep to walk. Every node passes here.
  ExprPtr Seal(ExprPtr node) const;

  // Set when the special names are read; a macro's body looks at them.
  bool saw_caller_ = false, saw_varargs_ = false, saw_kwargs_ = false;

 private:
  class Nested;

  ExprPtr ParseConditional();
  ExprPtr ParseOr();
  ExprPtr ParseAnd();
  ExprPtr ParseNot();
  ExprPtr ParseCompare();
  ExprPtr ParseSum();
  ExprPtr ParseConcat();
  ExprPtr ParseProduct();
  ExprPtr ParsePower();
  ExprPtr ParseUnary(bool with_filter = true);
  ExprPtr ParsePrimary(bool with_namespace = false);
  ExprPtr ParsePostfix(ExprPtr node);
  ExprPtr ParsePostfixAndFilters(ExprPtr node);
  ExprPtr ParseSubscript(ExprPtr node);
  ExprPtr ParseSubscripted(ExprPtr node, int line);
  ExprPtr ParseTest(ExprPtr node);
  ExprPtr ParseList();
  ExprPtr ParseDict();
  ExprPtr ParseCall(ExprPtr node);
  std::unique_ptr<CallArguments> ParseCallArguments();
  ExprPtr Binary(ExprKind kind, int line, ExprPtr left, ExprPtr right) const;
  bool AtTupleEnd(const char* end_name) const;
  ExprPtr ParseTupleOf(bool simplified, bool with_conditional, bool with_namespace, const char* end_name,
                       bool explicit_parentheses);
  void RequireAssignable(const Expr& target) const;

  const std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace temper::jinja
