// The parsed template: expressions and statements as trees. Built by the parser, read by the interpreter, immutable in
// between; the depth of expressions is bounded here, that of statements by the parser, so recursion over them is safe.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/template/value.h"

namespace temper::jinja {

struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<std::unique_ptr<Stmt>>;

// Filters and tests are functions of (interpreter, value, arguments).
using FilterFunction = Value (*)(Interpreter& interpreter, const Value& value, Arguments arguments);
using TestFunction = bool (*)(Interpreter& interpreter, const Value& value, const Arguments& arguments);

enum class ExprKind : unsigned char {
  kConstant,   // value
  kName,       // name
  kAttribute,  // a.name
  kItem,       // a[b]
  kSlice,      // a[b:c:d], each of b, c, d may be null
  kCall,       // a(call)
  kFilter,     // a | name(call); a is null in a filter block
  kTest,       // a is name(call)
  kList,
  kTuple,  // list
  kDict,   // list: key, value, key, value ...
  kNot,
  kNegative,
  kPositive,  // a
  kAnd,
  kOr,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,            // a, b
  kConcat,           // list: joined as text
  kCompare,          // a, then list[i] compared by ops[i]
  kConditional,      // a if b else c; c may be null
  kNamespaceTarget,  // name.text, on the left of {% set %}
};

enum class CompareOp : unsigned char { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> keywords;
  ExprPtr star, double_star;  // *a, **b; may be null
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 1;
  int depth = 1;  // of the tree below
  std::string name, text;
  Value value;
  ExprPtr a, b, c, d;
  std::vector<ExprPtr> list;
  std::vector<CompareOp> ops;
  std::unique_ptr<CallArguments> call;
  FilterFunction filter = nullptr;  // null: no filter of that name, an error when it is reached
  TestFunction test = nullptr;
};

ExprPtr Make(ExprKind kind, int line);
// Sets the node's depth from its children. Must be called for every
// node of a tree. Throws TemplateError if it is too deep to walk.
ExprPtr Seal(ExprPtr node);
ExprPtr Binary(ExprKind kind, int line, ExprPtr left, ExprPtr right);  // sealed

enum class StmtKind : unsigned char {
  kText,         // text
  kPrint,        // expr
  kIf,           // expr, body, other
  kFor,          // target in expr [if condition], body, other
  kSet,          // target = expr
  kSetBlock,     // target = body [through the filters of expr]
  kWith,         // targets[i] = values[i], body
  kMacro,        // macro
  kCallBlock,    // macro is the caller, expr the call
  kFilterBlock,  // expr: filters whose innermost operand is null; body
  kScope,        // body, with variables of its own ({% block %}, {% autoescape false %})
  kGeneration,   // body, whose output the assistant wrote
  kBreak,
  kContinue,
  kUnsupported,  // text says what; an error when it is reached
};

struct MacroDefinition {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
  Body body;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 1;
  std::string text;
  ExprPtr target, expr, condition;
  std::vector<ExprPtr> targets, values;
  Body body, other;
  std::unique_ptr<MacroDefinition> macro;
  bool recursive = false;  // {% for ... recursive %}
};

}  // namespace temper::jinja
