#include "data/template/ast.h"

#include <algorithm>

namespace temper::jinja {
namespace {

// Longest chain of operators or filters: the interpreter recurses once per link.
constexpr int kMaxExpressionDepth = 400;

}  // namespace

ExprPtr Make(ExprKind kind, int line) {
  auto node = std::make_unique<Expr>();
  node->kind = kind;
  node->line = line;
  return node;
}

ExprPtr Seal(ExprPtr node) {
  int deepest = 0;
  const auto see = [&](const ExprPtr& child) {
    if (child) deepest = std::max(deepest, child->depth);
  };
  for (const ExprPtr* child : {&node->a, &node->b, &node->c, &node->d}) see(*child);
  for (const ExprPtr& child : node->list) see(child);
  if (node->call) {
    for (const ExprPtr& child : node->call->positional) see(child);
    for (const auto& [name, child] : node->call->keywords) see(child);
    see(node->call->star);
    see(node->call->double_star);
  }
  node->depth = deepest + 1;
  if (node->depth > kMaxExpressionDepth) {
    throw TemplateError(StatusCode::kInvalidArgument, "the expression is too long", node->line);
  }
  return node;
}

ExprPtr Binary(ExprKind kind, int line, ExprPtr left, ExprPtr right) {
  ExprPtr node = Make(kind, line);
  node->a = std::move(left);
  node->b = std::move(right);
  return Seal(std::move(node));
}

}  // namespace temper::jinja
