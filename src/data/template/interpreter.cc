#include "data/template/interpreter.h"

#include <fmt/core.h>

#include <algorithm>

#include "data/template/operators.h"

namespace temper::jinja {
namespace {

// Nesting of statements and expressions, macro calls included. CPython stops at 1000 frames; here a level costs at most
// a few hundred bytes of stack, so this is under 1 MB.
constexpr int kMaxDepth = 1500;

// Approximate size of a scope that outlives its block.
constexpr int64_t kScopeBytes = 256;

struct MacroObject final : NativeObject {
  MacroObject(const MacroDefinition& definition, std::shared_ptr<Scope> scope)
      : macro(definition), closure(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  std::string Repr() const override { return "<Macro " + QuotedRepr(macro.name) + ">"; }
  bool callable() const override { return true; }
  std::optional<Value> Attribute(std::string_view name) override {
    if (name == "name") return Value::String(macro.name);
    return std::nullopt;
  }
  Value Call(Interpreter& interpreter, Arguments arguments) override {
    return interpreter.CallMacro(macro, closure, std::move(arguments));
  }

  const MacroDefinition& macro;
  const std::shared_ptr<Scope> closure;  // kept by the interpreter
};

// The variable "loop".
struct LoopObject final : NativeObject, std::enable_shared_from_this<LoopObject> {
  LoopObject(const Stmt& statement, std::shared_ptr<Scope> outer, std::vector<Value> loop_items, int64_t loop_depth)
      : stmt(statement), scope(std::move(outer)), items(std::move(loop_items)), depth0(loop_depth) {
    for (const Value& item : items) nesting = std::max(nesting, item.nesting() + 1);
  }
  std::string_view type_name() const override { return "LoopContext"; }
  std::string Repr() const override { return fmt::format("<LoopContext {}/{}>", index0 + 1, items.size()); }
  bool callable() const override { return true; }
  Value Call(Interpreter& interpreter, Arguments arguments) override {
    if (!stmt.recursive) Fail("The loop must have the 'recursive' marker to be called recursively.");
    if (arguments.positional.size() != 1) Fail("loop() takes one argument");
    return interpreter.CallRecursiveLoop(stmt, scope.lock(), arguments.positional[0], depth0 + 1);
  }
  std::optional<Value> Attribute(std::string_view name) override {
    const auto length = static_cast<int64_t>(items.size());
    if (name == "index") return Value::Int(index0 + 1);
    if (name == "index0") return Value::Int(index0);
    if (name == "first") return Value::Bool(index0 == 0);
    if (name == "last") return Value::Bool(index0 + 1 == length);
    if (name == "length") return Value::Int(length);
    if (name == "revindex") return Value::Int(length - index0);
    if (name == "revindex0") return Value::Int(length - index0 - 1);
    if (name == "depth") return Value::Int(depth0 + 1);
    if (name == "depth0") return Value::Int(depth0);
    if (name == "previtem") {
      return index0 > 0 ? items[static_cast<size_t>(index0 - 1)] : Value::UndefinedHint("there is no previous item");
    }
    if (name == "nextitem") {
      return index0 + 1 < length ? items[static_cast<size_t>(index0 + 1)]
                                 : Value::UndefinedHint("there is no next item");
    }
    if (name == "cycle") return Method("cycle", [this](Interpreter&, Arguments a) { return Cycle(a); });
    if (name == "changed") {
      return Method("changed", [this](Interpreter& i, Arguments a) { return Changed(i, std::move(a)); });
    }
    return std::nullopt;
  }
  void Release() override { last_changed.reset(); }

  Value Cycle(const Arguments& arguments) const {
    if (arguments.positional.empty()) Fail("no items for cycling given");
    return arguments.positional[static_cast<size_t>(index0) % arguments.positional.size()];
  }
  Value Changed(Interpreter& interpreter, Arguments arguments) {
    Value now = Value::Tuple(std::move(arguments.positional));
    if (last_changed && Equal(*last_changed, now)) return Value::Bool(false);
    if (!last_changed) interpreter.Keep(shared_from_this());
    last_changed = std::move(now);
    return Value::Bool(true);
  }
  Value Method(const char* name, FunctionObject::Body body) {
    auto function =
        std::make_shared<FunctionObject>(name, [self = shared_from_this(), body = std::move(body)](
                                                   Interpreter& i, Arguments a) { return body(i, std::move(a)); });
    function->nesting = nesting + 1;
    return Value::Native(std::move(function));
  }

  const Stmt& stmt;
  const std::weak_ptr<Scope> scope;  // around the loop; alive while the loop runs
  const std::vector<Value> items;
  const int64_t depth0;
  int64_t index0 = 0;
  std::optional<Value> last_changed;
};

}  // namespace

void Scope::Set(std::string_view name, Value value) {
  for (auto& [known, old] : variables) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  variables.emplace_back(std::string(name), std::move(value));
}

std::string NamespaceObject::Repr() const {
  // Namespaces may contain each other: without a limit a cycle would never end.
  static thread_local int depth = 0;
  struct Guard {
    Guard() { ++depth; }
    ~Guard() { --depth; }
  } guard;
  if (depth > kMaxNesting / 10) Fail("the template prints a namespace that contains itself");
  DictBuilder dict;
  for (const auto& [name, value] : attributes) dict.Set(name, value);
  return "<Namespace " + jinja::Repr(dict.Build()) + ">";
}

std::optional<Value> NamespaceObject::Attribute(std::string_view name) {
  for (const auto& [known, value] : attributes) {
    if (known == name) return value;
  }
  return std::nullopt;
}

void NamespaceObject::Set(const std::string& name, Value value) {
  if (name.starts_with('_')) {
    Fail(
        fmt::format("a namespace cannot store '{}': names that start with an underscore are private; rename it", name));
  }
  Budget::Step(static_cast<int64_t>(attributes.size()));
  for (auto& [known, old] : attributes) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  Budget::Charge(static_cast<int64_t>(name.size() + sizeof(attributes[0])));
  attributes.emplace_back(name, std::move(value));
}

class Interpreter::Nested {
 public:
  explicit Nested(Interpreter& interpreter) : interpreter_(interpreter) {
    if (++interpreter_.depth_ > kMaxDepth) {
      --interpreter_.depth_;
      Fail("the template recurses too deeply: does a macro call itself forever?");
    }
  }
  ~Nested() { --interpreter_.depth_; }

 private:
  Interpreter& interpreter_;
};

Interpreter::Interpreter(const std::vector<std::pair<std::string, Value>>& context, const std::tm& now)
    : context_(context), now_(now), scope_(std::make_shared<Scope>(nullptr)) {}

Interpreter::~Interpreter() {
  // One by one, so that no chain of scopes is destroyed by recursion.
  for (const auto& object : kept_objects_) object->Release();
  for (const auto& scope : kept_scopes_) {
    scope->variables.clear();
    scope->parent.reset();
  }
}

std::string Interpreter::Render(const Body& body) {
  std::string out;
  out_ = &out;
  RunBody(body);
  return out;
}

Interpreter::Flow Interpreter::RunBody(const Body& body) {
  for (const auto& stmt : body) {
    const Flow flow = Run(*stmt);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::RunInScope(const Body& body) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(outer);
  // An exception ends the render, so the scope need not be restored.
  const Flow flow = RunBody(body);
  scope_ = outer;
  return flow;
}

Interpreter::Flow Interpreter::Run(const Stmt& stmt) try {
  const Nested nested(*this);
  Budget::Step();
  switch (stmt.kind) {
    case StmtKind::kText:
      AppendText(*out_, stmt.text);
      break;
    case StmtKind::kPrint: {
      const Value value = Evaluate(*stmt.expr);
      if (value.IsUndefined()) NoteUndefined(*stmt.expr);
      Write(value);
      break;
    }
    case StmtKind::kIf:
      return RunIf(stmt);
    case StmtKind::kFor:
      if (stmt.recursive) {
        Write(CallRecursiveLoop(stmt, scope_, Evaluate(*stmt.expr), 0));
      } else {
        RunFor(stmt, Evaluate(*stmt.expr), 0);
      }
      break;
    case StmtKind::kSet:
      Assign(*stmt.target, Evaluate(*stmt.expr));
      break;
    case StmtKind::kSetBlock:
    case StmtKind::kFilterBlock: {
      Flow flow = Flow::kNext;
      Value text = Value::String(Capture(stmt.body, &flow));
      if (flow != Flow::kNext) return flow;
      if (stmt.expr) {
        std::swap(filter_block_text_, text);
        Value filtered = Evaluate(*stmt.expr);
        filter_block_text_ = std::move(text);
        text = std::move(filtered);
      }
      if (stmt.kind == StmtKind::kSetBlock) {
        Assign(*stmt.target, std::move(text));
      } else {
        Write(text);
      }
      break;
    }
    case StmtKind::kWith:
      return RunWith(stmt);
    case StmtKind::kMacro:
      scope_->Set(stmt.macro->name, MakeMacro(*stmt.macro));
      break;
    case StmtKind::kCallBlock:
      RunCallBlock(stmt);
      break;
    case StmtKind::kScope:
      return RunInScope(stmt.body);
    case StmtKind::kGeneration:
      RunGeneration(stmt);
      break;
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
    case StmtKind::kUnsupported:
      FailUnsupported(stmt.text);
  }
  return Flow::kNext;
} catch (TemplateError& error) {
  if (error.line() == 0) error.set_line(stmt.line);
  throw;
}

Interpreter::Flow Interpreter::RunIf(const Stmt& stmt) {
  const Stmt* branch = &stmt;
  while (true) {
    if (Truth(Evaluate(*branch->expr))) return RunBody(branch->body);
    const Body& other = branch->other;
    if (other.size() != 1 || other[0]->kind != StmtKind::kIf) return RunBody(other);
    branch = other[0].get();  // elif
  }
}

void Interpreter::Write(const Value& value) {
  if (value.IsString()) {
    AppendText(*out_, value.text());
  } else {
    AppendText(*out_, Str(value));
  }
}

std::string Interpreter::Capture(const Body& body, Flow* flow) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  ++captures_;
  const Flow end = RunInScope(body);
  if (flow) *flow = end;
  --captures_;
  out_ = outer;
  return text;
}

void Interpreter::RunGeneration(const Stmt& stmt) {
  if (captures_ > 0) lost_generation_ = true;
  const size_t begin = out_->size();
  RunInScope(stmt.body);
  if (captures_ == 0) generations_.push_back({begin, out_->size()});
}

Interpreter::Flow Interpreter::RunWith(const Stmt& stmt) {
  // All values are computed outside, before any of the names is bound.
  std::vector<Value> values = EvaluateAll(stmt.values);
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(outer);
  for (size_t i = 0; i < values.size(); ++i) Assign(*stmt.targets[i], std::move(values[i]));
  const Flow flow = RunBody(stmt.body);
  scope_ = outer;
  return flow;
}

Value Interpreter::MakeMacro(const MacroDefinition& macro) {
  // Each scope of the chain is held directly, so that none dies inside another's destructor.
  for (std::shared_ptr<Scope> scope = scope_; scope && !scope->kept; scope = scope->parent) {
    scope->kept = true;
    Budget::Charge(kScopeBytes);
    kept_scopes_.push_back(scope);
  }
  return Value::Native(std::make_shared<MacroObject>(macro, scope_));
}

void Interpreter::RunCallBlock(const Stmt& stmt) {
  const Value caller = MakeMacro(*stmt.macro);
  const Value callee = Evaluate(*stmt.expr->a);
  Arguments arguments = EvaluateArguments(*stmt.expr->call);
  arguments.keywords.emplace_back("caller", caller);
  Write(Call(callee, std::move(arguments)));
}

Value Interpreter::CallMacro(const MacroDefinition& macro, const std::shared_ptr<Scope>& closure, Arguments arguments) {
  const Nested nested(*this);
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>(closure);
  auto& keywords = arguments.keywords;
  const auto take = [&](const std::string& name) -> std::optional<Value> {
    const auto it = std::find_if(keywords.begin(), keywords.end(), [&](const auto& k) { return k.first == name; });
    if (it == keywords.end()) return std::nullopt;
    Value value = std::move(it->second);
    keywords.erase(it);
    return value;
  };
  const size_t n = macro.parameters.size();
  const size_t given = std::min(n, arguments.positional.size());
  for (size_t i = 0; i < n; ++i) {
    const std::string& name = macro.parameters[i];
    std::optional<Value> value;
    if (i < given) {
      value = std::move(arguments.positional[i]);
    } else if (!(value = take(name))) {
      const size_t required = n - macro.defaults.size();
      value = i >= required ? Evaluate(*macro.defaults[i - required])
                            : Value::UndefinedHint(fmt::format("parameter '{}' was not provided", name));
    }
    scope_->Set(name, std::move(*value));
  }
  if (macro.uses_caller) {
    auto caller = take("caller");
    scope_->Set("caller", caller ? std::move(*caller) : Value::UndefinedHint("No caller defined"));
  }
  if (macro.uses_kwargs) {
    DictBuilder rest;
    for (auto& [name, value] : keywords) rest.Set(name, std::move(value));
    scope_->Set("kwargs", rest.Build());
  } else if (!keywords.empty()) {
    Fail(fmt::format("macro '{}' takes no keyword argument '{}'", macro.name, keywords.front().first));
  }
  if (macro.uses_varargs) {
    scope_->Set("varargs",
                Value::Tuple({arguments.positional.begin() + static_cast<int64_t>(given), arguments.positional.end()}));
  } else if (arguments.positional.size() > n) {
    Fail(fmt::format("macro '{}' takes not more than {} argument(s)", macro.name, n));
  }
  Value text = Value::String(Capture(macro.body));
  scope_ = outer;
  return text;
}

std::vector<Value> Interpreter::LoopItems(const Stmt& stmt, const Value& items) {
  const Elements all(items);
  if (!stmt.condition) return *all;
  std::vector<Value> chosen;
  const std::shared_ptr<Scope> outer = scope_;
  for (const Value& item : *all) {
    scope_ = std::make_shared<Scope>(outer);
    Assign(*stmt.target, item);
    if (Truth(Evaluate(*stmt.condition))) chosen.push_back(item);
  }
  scope_ = outer;
  return chosen;
}

void Interpreter::RunFor(const Stmt& stmt, const Value& items, int64_t depth) {
  const auto loop = std::make_shared<LoopObject>(stmt, scope_, LoopItems(stmt, items), depth);
  const Value loop_value = Value::Native(loop);
  const std::shared_ptr<Scope> outer = scope_;
  // jinja2 runs the else branch if no pass ran to its end, not only if there was no pass.
  bool run_else = true;
  for (const Value& item : loop->items) {
    Budget::Step();
    if (scope_ != outer && scope_.use_count() == 1) {
      scope_->variables.clear();
    } else {
      scope_ = std::make_shared<Scope>(outer);
    }
    scope_->Set("loop", loop_value);
    Assign(*stmt.target, item);
    const Flow flow = RunBody(stmt.body);
    if (flow == Flow::kBreak) break;
    if (flow == Flow::kNext) run_else = false;
    ++loop->index0;
  }
  scope_ = outer;
  if (run_else) RunInScope(stmt.other);
}

Value Interpreter::CallRecursiveLoop(const Stmt& stmt, std::shared_ptr<Scope> scope, const Value& items,
                                     int64_t depth) {
  const Nested nested(*this);
  if (!scope) Fail("a loop is called after it has ended");
  const std::shared_ptr<Scope> outer = std::exchange(scope_, std::move(scope));
  std::string text;
  std::string* const outer_out = std::exchange(out_, &text);
  ++captures_;
  RunFor(stmt, items, depth);
  --captures_;
  out_ = outer_out;
  scope_ = outer;
  return Value::String(std::move(text));
}

void Interpreter::Assign(const Expr& target, Value value) {
  if (target.kind == ExprKind::kName) {
    scope_->Set(target.name, std::move(value));
    return;
  }
  if (target.kind == ExprKind::kNamespaceTarget) {
    const Value holder = Lookup(target.name);
    auto* ns = holder.Is(Type::kNative) ? dynamic_cast<NamespaceObject*>(&holder.native()) : nullptr;
    if (!ns) Fail("cannot assign attribute on non-namespace object");
    ns->Set(target.text, std::move(value));
    return;
  }
  if (!IsIterable(value)) Fail(fmt::format("cannot unpack non-iterable {} object", TypeName(value)));
  const Elements elements(value);
  const size_t wanted = target.list.size();
  if (elements->size() < wanted) {
    Fail(fmt::format("not enough values to unpack (expected {}, got {})", wanted, elements->size()));
  }
  if (elements->size() > wanted) Fail(fmt::format("too many values to unpack (expected {})", wanted));
  for (size_t i = 0; i < wanted; ++i) Assign(*target.list[i], (*elements)[i]);
}

void Interpreter::NoteUndefined(const Expr& printed) {
  constexpr size_t kMost = 16;
  std::string name;
  const Expr* expr = &printed;
  for (; expr->kind == ExprKind::kAttribute; expr = expr->a.get()) name.insert(0, "." + expr->name);
  if (expr->kind != ExprKind::kName) return;
  name.insert(0, expr->name);
  const bool known = std::find(undefined_.begin(), undefined_.end(), name) != undefined_.end();
  if (!known && undefined_.size() < kMost) undefined_.push_back(std::move(name));
}

Value Interpreter::Lookup(const std::string& name) const {
  for (const Scope* scope = scope_.get(); scope; scope = scope->parent.get()) {
    Budget::Step();
    for (const auto& [known, value] : scope->variables) {
      if (known == name) return value;
    }
  }
  for (const auto& [known, value] : context_) {
    if (known == name) return value;
  }
  if (const Value* global = FindGlobal(name)) return *global;
  return Value::UndefinedName(name);
}

}  // namespace temper::jinja
