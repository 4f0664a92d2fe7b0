// The expression half of the parser: jinja2's operators and their precedence. The statement half derives from it.
#pragma once

#include <initializer_list>
#include <vector>

#include "data/template/ast.h"
#include "data/template/token_stream.h"

namespace temper::jinja {

class ExpressionParser : protected TokenStream {
 protected:
  explicit ExpressionParser(std::vector<Token> tokens) : TokenStream(std::move(tokens)) {}

  ExprPtr ParseExpression(bool with_conditional = true);
  // A tuple if there is a comma. `end_name` also ends it ("in", "recursive"; may be null).
  ExprPtr ParseTuple(bool with_conditional, const char* end_name, bool explicit_parentheses = false);
  ExprPtr ParseFilterChain(ExprPtr operand, bool starts_inline);
  // Names, tuples of names and, where allowed, namespace attributes.
  ExprPtr ParseAssignTarget(bool with_namespace, const char* end_name);
  ExprPtr ParseNameTarget();

  // Set when an expression reads the special names; for macros' bodies.
  bool saw_caller_ = false, saw_varargs_ = false, saw_kwargs_ = false;

 private:
  class Nested;

  struct BinaryOperator;

  // Operands with any of `operators` between them, from the left.
  template <class Operand>
  ExprPtr ParseFromLeft(std::initializer_list<BinaryOperator> operators, const Operand& operand);

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
  bool AtTupleEnd(const char* end_name) const;
  ExprPtr ParseTupleOf(bool simplified, bool with_conditional, bool with_namespace, const char* end_name,
                       bool explicit_parentheses);
  void RequireAssignable(const Expr& target) const;

  int nesting_ = 0;
};

}  // namespace temper::jinja
