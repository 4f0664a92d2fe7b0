#include "data/template/expression_parser.h"

#include <fmt/core.h>

#include <algorithm>

#include "data/template/filters.h"
#include "data/template/predicates.h"

namespace temper::jinja {
namespace {

// Nested brackets; each level costs a dozen stack frames of the parser.
constexpr int kMaxNestedExpressions = 100;

}  // namespace

class ExpressionParser::Nested {
 public:
  explicit Nested(ExpressionParser& parser) : parser_(parser) {
    if (++parser_.nesting_ > kMaxNestedExpressions) {
      FailAt(parser_.Current().line, "the expression is nested too deeply");
    }
  }
  ~Nested() { --parser_.nesting_; }

 private:
  ExpressionParser& parser_;
};

ExprPtr ExpressionParser::ParseExpression(bool with_conditional) {
  const Nested nested(*this);
  return with_conditional ? ParseConditional() : ParseOr();
}

ExprPtr ExpressionParser::ParseConditional() {
  const Nested nested(*this);  // "a if b else c if d else ..." recurses here
  const int line = Current().line;
  ExprPtr node = ParseOr();
  while (SkipName("if")) {
    ExprPtr conditional = Make(ExprKind::kConditional, line);
    conditional->a = std::move(node);
    conditional->b = ParseOr();
    if (SkipName("else")) conditional->c = ParseConditional();
    node = Seal(std::move(conditional));
  }
  return node;
}

struct ExpressionParser::BinaryOperator {
  std::string_view symbol;  // or word
  ExprKind kind;
};

template <class Operand>
ExprPtr ExpressionParser::ParseFromLeft(std::initializer_list<BinaryOperator> operators, const Operand& operand) {
  const int line = Current().line;
  ExprPtr left = operand();
  while (true) {
    const auto op = std::find_if(operators.begin(), operators.end(), [&](const BinaryOperator& o) {
      return Current().IsOperator(o.symbol) || Current().IsName(o.symbol);
    });
    if (op == operators.end()) return left;
    Next();
    left = Binary(op->kind, line, std::move(left), operand());
  }
}

ExprPtr ExpressionParser::ParseOr() {
  return ParseFromLeft({{"or", ExprKind::kOr}}, [this] { return ParseAnd(); });
}

ExprPtr ExpressionParser::ParseAnd() {
  return ParseFromLeft({{"and", ExprKind::kAnd}}, [this] { return ParseNot(); });
}

ExprPtr ExpressionParser::ParseNot() {
  const Nested nested(*this);
  if (!Current().IsName("not")) return ParseCompare();
  ExprPtr node = Make(ExprKind::kNot, Next().line);
  node->a = ParseNot();
  return Seal(std::move(node));
}

ExprPtr ExpressionParser::ParseCompare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual},
  };
  ExprPtr node = Make(ExprKind::kCompare, Current().line);
  node->a = ParseSum();
  while (true) {
    const auto op =
        std::find_if(std::begin(kOps), std::end(kOps), [&](const auto& o) { return Current().IsOperator(o.first); });
    if (op != std::end(kOps)) {
      Next();
      node->ops.push_back(op->second);
    } else if (SkipName("in")) {
      node->ops.push_back(CompareOp::kIn);
    } else if (Current().IsName("not") && Ahead().IsName("in")) {
      Next();
      Next();
      node->ops.push_back(CompareOp::kNotIn);
    } else {
      break;
    }
    node->list.push_back(ParseSum());
  }
  return node->ops.empty() ? std::move(node->a) : Seal(std::move(node));
}

ExprPtr ExpressionParser::ParseSum() {
  return ParseFromLeft({{"+", ExprKind::kAdd}, {"-", ExprKind::kSubtract}}, [this] { return ParseConcat(); });
}

ExprPtr ExpressionParser::ParseConcat() {
  ExprPtr node = Make(ExprKind::kConcat, Current().line);
  node->list.push_back(ParseProduct());
  while (SkipOperator("~")) node->list.push_back(ParseProduct());
  return node->list.size() == 1 ? std::move(node->list[0]) : Seal(std::move(node));
}

ExprPtr ExpressionParser::ParseProduct() {
  return ParseFromLeft(
      {{"*", ExprKind::kMultiply}, {"/", ExprKind::kDivide}, {"//", ExprKind::kFloorDivide}, {"%", ExprKind::kModulo}},
      [this] { return ParsePower(); });
}

// jinja2's "**" binds to the left, unlike Python's.
ExprPtr ExpressionParser::ParsePower() {
  return ParseFromLeft({{"**", ExprKind::kPower}}, [this] { return ParseUnary(); });
}

ExprPtr ExpressionParser::ParseUnary(bool with_filter) {
  const Nested nested(*this);
  ExprPtr node;
  const bool minus = Current().IsOperator("-");
  if (minus || Current().IsOperator("+")) {
    node = Make(minus ? ExprKind::kNegative : ExprKind::kPositive, Next().line);
    node->a = ParseUnary(false);
    node = Seal(std::move(node));
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  return with_filter ? ParsePostfixAndFilters(std::move(node)) : std::move(node);
}

ExprPtr ExpressionParser::ParsePrimary(bool with_namespace) {
  const Token token = Current();
  switch (token.type) {
    case TokenType::kName: {
      Next();
      ExprPtr node = Make(ExprKind::kConstant, token.line);
      if (token.text == "true" || token.text == "True") {
        node->value = Value::Bool(true);
      } else if (token.text == "false" || token.text == "False") {
        node->value = Value::Bool(false);
      } else if (token.text != "none" && token.text != "None") {
        node->kind = ExprKind::kName;
        node->name = token.text;
        if (with_namespace && SkipOperator(".")) {
          node->kind = ExprKind::kNamespaceTarget;
          node->text = Expect(TokenType::kName, "a name").text;
        }
        saw_caller_ |= token.text == "caller";
        saw_varargs_ |= token.text == "varargs";
        saw_kwargs_ |= token.text == "kwargs";
      }
      return node;
    }
    case TokenType::kString: {
      std::string text;
      while (Current().type == TokenType::kString) text += Next().text;
      ExprPtr node = Make(ExprKind::kConstant, token.line);
      node->value = Value::String(std::move(text));
      return node;
    }
    case TokenType::kNumber: {
      ExprPtr node = Make(ExprKind::kConstant, Next().line);
      node->value = token.number;
      return node;
    }
    case TokenType::kOperator:
      if (token.text == "(") {
        Next();
        ExprPtr node = ParseTuple(true, nullptr, /*explicit_parentheses=*/true);
        ExpectOperator(")");
        return node;
      }
      if (token.text == "[") return ParseList();
      if (token.text == "{") return ParseDict();
      break;
    default:
      break;
  }
  FailAt(token.line, fmt::format("unexpected '{}'", Describe(token)));
}

bool ExpressionParser::AtTupleEnd(const char* end_name) const {
  return Current().type == TokenType::kVariableEnd || Current().type == TokenType::kBlockEnd ||
         Current().IsOperator(")") || (end_name && Current().IsName(end_name));
}

ExprPtr ExpressionParser::ParseTuple(bool with_conditional, const char* end_name, bool explicit_parentheses) {
  return ParseTupleOf(/*simplified=*/false, with_conditional, /*with_namespace=*/false, end_name, explicit_parentheses);
}

ExprPtr ExpressionParser::ParseTupleOf(bool simplified, bool with_conditional, bool with_namespace,
                                       const char* end_name, bool explicit_parentheses) {
  ExprPtr tuple = Make(ExprKind::kTuple, Current().line);
  bool is_tuple = false;
  while (true) {
    if (!tuple->list.empty()) ExpectOperator(",");
    if (AtTupleEnd(end_name)) break;
    tuple->list.push_back(simplified ? ParsePrimary(with_namespace) : ParseExpression(with_conditional));
    if (!Current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->list.empty()) return std::move(tuple->list[0]);
    if (!explicit_parentheses) {
      FailAt(Current().line, fmt::format("Expected an expression, got '{}'", Describe(Current())));
    }
  }
  return Seal(std::move(tuple));
}

ExprPtr ExpressionParser::ParseList() {
  ExprPtr node = Make(ExprKind::kList, Next().line);
  while (!Current().IsOperator("]")) {
    if (!node->list.empty()) ExpectOperator(",");
    if (Current().IsOperator("]")) break;
    node->list.push_back(ParseExpression());
  }
  ExpectOperator("]");
  return Seal(std::move(node));
}

ExprPtr ExpressionParser::ParseDict() {
  ExprPtr node = Make(ExprKind::kDict, Next().line);
  while (!Current().IsOperator("}")) {
    if (!node->list.empty()) ExpectOperator(",");
    if (Current().IsOperator("}")) break;
    node->list.push_back(ParseExpression());
    ExpectOperator(":");
    node->list.push_back(ParseExpression());
  }
  ExpectOperator("}");
  return Seal(std::move(node));
}

ExprPtr ExpressionParser::ParsePostfix(ExprPtr node) {
  while (true) {
    if (Current().IsOperator(".") || Current().IsOperator("[")) {
      node = ParseSubscript(std::move(node));
    } else if (Current().IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::ParsePostfixAndFilters(ExprPtr node) {
  while (true) {
    if (Current().IsOperator("|")) {
      node = ParseFilterChain(std::move(node), false);
    } else if (Current().IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (Current().IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExprPtr ExpressionParser::ParseSubscript(ExprPtr of) {
  const Token token = Next();
  if (token.text == ".") {
    const Token name = Next();
    if (name.type == TokenType::kName) {
      ExprPtr node = Make(ExprKind::kAttribute, token.line);
      node->name = name.text;
      node->value = Value::String(name.text);
      node->a = std::move(of);
      return Seal(std::move(node));
    }
    if (name.type != TokenType::kNumber || !name.number.Is(Type::kInt)) FailAt(name.line, "expected name or number");
    ExprPtr index = Make(ExprKind::kConstant, name.line);
    index->value = name.number;
    return Binary(ExprKind::kItem, token.line, std::move(of), std::move(index));
  }
  ExprPtr node = ParseSubscripted(std::move(of), token.line);
  ExpectOperator("]");
  return node;
}

ExprPtr ExpressionParser::ParseSubscripted(ExprPtr of, int line) {
  if (Current().IsOperator("]")) FailAt(line, "expected an index or a slice between '[' and ']'");
  ExprPtr start, stop, step;
  if (!Current().IsOperator(":")) start = ParseExpression();
  if (Current().IsOperator(",")) {  // a[1, 2] asks for the key (1, 2)
    ExprPtr key = Make(ExprKind::kTuple, line);
    key->list.push_back(std::move(start));
    while (SkipOperator(",")) key->list.push_back(ParseExpression());
    return Binary(ExprKind::kItem, line, std::move(of), Seal(std::move(key)));
  }
  if (!SkipOperator(":")) return Binary(ExprKind::kItem, line, std::move(of), std::move(start));
  if (!Current().IsOperator(":") && !Current().IsOperator("]")) stop = ParseExpression();
  if (SkipOperator(":") && !Current().IsOperator("]")) step = ParseExpression();
  ExprPtr node = Make(ExprKind::kSlice, line);
  node->a = std::move(of);
  node->b = std::move(start);
  node->c = std::move(stop);
  node->d = std::move(step);
  return Seal(std::move(node));
}

std::unique_ptr<CallArguments> ExpressionParser::ParseCallArguments() {
  const int line = Current().line;
  ExpectOperator("(");
  auto call = std::make_unique<CallArguments>();
  const auto ensure = [&](bool ok) {
    if (!ok) FailAt(line, "invalid syntax for function call expression");
  };
  bool first = true;
  while (!Current().IsOperator(")")) {
    if (!first) {
      ExpectOperator(",");
      if (Current().IsOperator(")")) break;
    }
    first = false;
    if (SkipOperator("*")) {
      ensure(!call->star && !call->double_star);
      call->star = ParseExpression();
    } else if (SkipOperator("**")) {
      ensure(!call->double_star);
      call->double_star = ParseExpression();
    } else if (Current().type == TokenType::kName && Ahead().IsOperator("=")) {
      ensure(!call->double_star);
      std::string name = Next().text;
      Next();
      call->keywords.emplace_back(std::move(name), ParseExpression());
    } else {
      ensure(!call->star && !call->double_star && call->keywords.empty());
      call->positional.push_back(ParseExpression());
    }
  }
  ExpectOperator(")");
  return call;
}

ExprPtr ExpressionParser::ParseCall(ExprPtr of) {
  ExprPtr node = Make(ExprKind::kCall, Current().line);
  node->a = std::move(of);
  node->call = ParseCallArguments();
  return Seal(std::move(node));
}

ExprPtr ExpressionParser::ParseFilterChain(ExprPtr operand, bool starts_inline) {
  while (starts_inline || Current().IsOperator("|")) {
    if (!starts_inline) Next();
    starts_inline = false;
    const Token name = Expect(TokenType::kName, "the name of a filter");
    ExprPtr node = Make(ExprKind::kFilter, name.line);
    node->name = name.text;
    while (SkipOperator(".")) node->name += "." + Expect(TokenType::kName, "the name of a filter").text;
    node->filter = FindFilter(node->name);
    node->a = std::move(operand);
    node->call = Current().IsOperator("(") ? ParseCallArguments() : std::make_unique<CallArguments>();
    operand = Seal(std::move(node));
  }
  return operand;
}

ExprPtr ExpressionParser::ParseTest(ExprPtr operand) {
  const int line = Next().line;
  const bool negated = SkipName("not");
  const Token name = Expect(TokenType::kName, "the name of a test");
  ExprPtr node = Make(ExprKind::kTest, line);
  node->name = name.text;
  while (SkipOperator(".")) node->name += "." + Expect(TokenType::kName, "the name of a test").text;
  node->test = FindTest(node->name);
  node->a = std::move(operand);
  const Token& next = Current();
  const bool starts_operand = next.type == TokenType::kName || next.type == TokenType::kString ||
                              next.type == TokenType::kNumber || next.IsOperator("[") || next.IsOperator("{");
  if (next.IsOperator("(")) {
    node->call = ParseCallArguments();
  } else {
    node->call = std::make_unique<CallArguments>();
    if (starts_operand && !next.IsName("else") && !next.IsName("or") && !next.IsName("and")) {
      if (next.IsName("is")) FailAt(next.line, "You cannot chain multiple tests with is");
      node->call->positional.push_back(ParsePostfix(ParsePrimary()));
    }
  }
  node = Seal(std::move(node));
  if (!negated) return node;
  ExprPtr inverse = Make(ExprKind::kNot, line);
  inverse->a = std::move(node);
  return Seal(std::move(inverse));
}

ExprPtr ExpressionParser::ParseNameTarget() {
  const Token name = Expect(TokenType::kName, "a name");
  ExprPtr node = Make(ExprKind::kName, name.line);
  node->name = name.text;
  RequireAssignable(*node);
  return node;
}

ExprPtr ExpressionParser::ParseAssignTarget(bool with_namespace, const char* end_name) {
  ExprPtr target = ParseTupleOf(/*simplified=*/true, true, with_namespace, end_name, false);
  RequireAssignable(*target);
  return target;
}

void ExpressionParser::RequireAssignable(const Expr& target) const {
  if (target.kind == ExprKind::kTuple) {
    for (const ExprPtr& item : target.list) RequireAssignable(*item);
    return;
  }
  const bool reserved = target.name == "true" || target.name == "false" || target.name == "none" ||
                        target.name == "True" || target.name == "False" || target.name == "None";
  const bool is_name = target.kind == ExprKind::kName || target.kind == ExprKind::kNamespaceTarget;
  if (!is_name || reserved) FailAt(target.line, "can't assign to this; a name or a tuple of names is needed");
}

}  // namespace temper::jinja
