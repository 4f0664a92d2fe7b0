// Walks a parsed template and writes its text. One Interpreter serves one render on one thread.
#pragma once

#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/template/ast.h"

namespace temper::jinja {

// Variables of one block. A macro keeps the scope that defines it; the interpreter then keeps that scope, too, and
// empties it at the end, which breaks the cycle between the two.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent_scope) : parent(std::move(parent_scope)) {}
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> variables;
  bool kept = false;

  void Set(std::string_view name, Value value);
};

// A function of the interpreter's own, or a method bound to its value.
struct FunctionObject final : NativeObject {
  using Body = std::function<Value(Interpreter&, Arguments)>;
  FunctionObject(std::string function_name, Body function_body)
      : name(std::move(function_name)), body(std::move(function_body)) {}
  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, Arguments arguments) override { return body(interpreter, std::move(arguments)); }

  const std::string name;
  const Body body;
};

// The target of {% set ns.x = ... %}. The interpreter also owns it and empties it at the end.
struct NamespaceObject final : NativeObject {
  std::string_view type_name() const override { return "Namespace"; }
  std::string Repr() const override;
  std::optional<Value> Attribute(std::string_view name) override;
  void Set(const std::string& name, Value value);
  void Release() override { attributes.clear(); }

  std::vector<std::pair<std::string, Value>> attributes;
};

class Interpreter {
 public:
  struct Span {
    size_t begin = 0, end = 0;  // bytes of the output
  };

  // `context` and `now` must outlive the interpreter.
  Interpreter(const std::vector<std::pair<std::string, Value>>& context, const std::tm& now);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  // Both throw TemplateError, with the line.
  std::string Render(const Body& body);
  Value Evaluate(const Expr& expr);

  // Spans of {% generation %} blocks, in order.
  const std::vector<Span>& generations() const { return generations_; }
  // True if such a block ran inside a macro, a filter or a set block: its output cannot be located.
  bool lost_generation() const { return lost_generation_; }
  // Names, also with attributes, that were printed as nothing because they are not defined; each once, the first few.
  const std::vector<std::string>& undefined() const { return undefined_; }

  Value Call(const Value& callee, Arguments arguments);
  // Holds `object` until the end of the render and then calls its Release.
  void Keep(std::shared_ptr<NativeObject> object) { kept_objects_.push_back(std::move(object)); }
  const std::tm& now() const { return now_; }

  // For macros and recursive loops: runs `body` in `scope`, with its output returned instead of written.
  Value CallMacro(const MacroDefinition& macro, const std::shared_ptr<Scope>& closure, Arguments arguments);
  Value CallRecursiveLoop(const Stmt& loop, std::shared_ptr<Scope> scope, const Value& items, int64_t depth);

 private:
  enum class Flow : unsigned char { kNext, kBreak, kContinue };
  class Nested;

  Flow RunBody(const Body& body);
  Flow Run(const Stmt& stmt);
  Flow RunInScope(const Body& body);
  void NoteUndefined(const Expr& printed);
  Flow RunIf(const Stmt& stmt);
  void RunFor(const Stmt& stmt, const Value& items, int64_t depth);
  std::vector<Value> LoopItems(const Stmt& stmt, const Value& items);
  void RunGeneration(const Stmt& stmt);
  void RunCallBlock(const Stmt& stmt);
  Flow RunWith(const Stmt& stmt);
  // Returns the output of `body`, and how it ended: after a break or continue nothing is printed.
  std::string Capture(const Body& body, Flow* flow = nullptr);
  void Assign(const Expr& target, Value value);
  void Write(const Value& value);
  Value MakeMacro(const MacroDefinition& macro);

  Value Lookup(const std::string& name) const;
  Value EvaluateNode(const Expr& expr);
  Value EvaluateCall(const Expr& expr);
  Value EvaluateFilter(const Expr& expr);
  Value EvaluateTest(const Expr& expr);
  Value EvaluateCompare(const Expr& expr);
  Value EvaluateConcat(const Expr& expr);
  Value EvaluateSlice(const Expr& expr);
  Value EvaluateDict(const Expr& expr);
  std::vector<Value> EvaluateAll(const std::vector<ExprPtr>& list);
  Arguments EvaluateArguments(const CallArguments& call);

  const std::vector<std::pair<std::string, Value>>& context_;
  const std::tm& now_;
  std::shared_ptr<Scope> scope_;
  std::string* out_ = nullptr;
  int captures_ = 0;  // buffers between out_ and the template's output
  int depth_ = 0;
  bool in_filter_block_ = false;
  Value filter_block_text_;  // the text for the null operand of a filter
  std::vector<Span> generations_;
  bool lost_generation_ = false;
  std::vector<std::string> undefined_;
  std::vector<std::shared_ptr<Scope>> kept_scopes_;
  std::vector<std::shared_ptr<NativeObject>> kept_objects_;
};

// range, namespace, dict, raise_exception, strftime_now, joiner, cycler; null for any other name.
const Value* FindGlobal(std::string_view name);

}  // namespace temper::jinja
