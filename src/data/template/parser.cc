#include "data/template/parser.h"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>

#include "data/template/expression_parser.h"

namespace temper::jinja {
namespace {

// Nested blocks; each level costs two stack frames here and in the interpreter.
constexpr int kMaxNestedBlocks = 100;

class Parser final : ExpressionParser {
 public:
  explicit Parser(std::vector<Token> tokens) : ExpressionParser(std::move(tokens)) {}

  ParsedTemplate Run() {
    ParsedTemplate out;
    out.body = ParseUntil({});
    out.has_generation = has_generation_;
    return out;
  }

 private:
  using EndTags = std::initializer_list<const char*>;

  static std::unique_ptr<Stmt> MakeStmt(StmtKind kind, int line) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = line;
    return stmt;
  }

  // Statements up to a tag of `ends`, which becomes the current token; if empty, to the end of the template.
  Body ParseUntil(EndTags ends) {
    Body body;
    while (Current().type != TokenType::kEnd) {
      const Token token = Next();
      if (token.type == TokenType::kData) {
        body.push_back(MakeStmt(StmtKind::kText, token.line));
        body.back()->text = token.text;
      } else if (token.type == TokenType::kVariableBegin) {
        body.push_back(MakeStmt(StmtKind::kPrint, token.line));
        body.back()->expr = ParseTuple(true, nullptr);
        Expect(TokenType::kVariableEnd, "'}}'");
      } else {
        const auto is_current = [&](const char* end) { return Current().IsName(end); };
        if (std::any_of(ends.begin(), ends.end(), is_current)) return body;
        body.push_back(ParseStatement());
        Expect(TokenType::kBlockEnd, "'%}'");
      }
    }
    if (ends.size() > 0) {
      std::string wanted;
      for (const char* end : ends) wanted += fmt::format("{}'{}'", wanted.empty() ? "" : " or ", end);
      FailAt(Current().line, fmt::format("Unexpected end of template. Jinja was looking for the following tags: {}. "
                                         "The innermost block that needs to be closed is '{}'.",
                                         wanted, open_.empty() ? "" : open_.back()));
    }
    return body;
  }

  // The rest of an opening tag, the statements inside, and the name that ended them (consumed).
  Body ParseBody(EndTags ends, std::string* end = nullptr) {
    if (++depth_ > kMaxNestedBlocks) FailAt(Current().line, "blocks are nested too deeply");
    SkipOperator(":");
    Expect(TokenType::kBlockEnd, "'%}'");
    Body body = ParseUntil(ends);
    const Token tag = Next();
    if (end) *end = tag.text;
    --depth_;
    return body;
  }

  std::unique_ptr<Stmt> ParseStatement() {
    const Token tag = Expect(TokenType::kName, "the name of a tag");
    const std::string& name = tag.text;
    open_.push_back(name);
    std::unique_ptr<Stmt> stmt;
    if (name == "if") {
      stmt = ParseIf(tag.line);
    } else if (name == "for") {
      stmt = ParseFor(tag.line);
    } else if (name == "set") {
      stmt = ParseSet(tag.line);
    } else if (name == "with") {
      stmt = ParseWith(tag.line);
    } else if (name == "macro") {
      stmt = ParseMacro(tag.line);
    } else if (name == "call") {
      stmt = ParseCallBlock(tag.line);
    } else if (name == "filter") {
      stmt = MakeStmt(StmtKind::kFilterBlock, tag.line);
      stmt->expr = ParseFilterChain(nullptr, /*starts_inline=*/true);
      stmt->body = ParseBody({"endfilter"});
    } else if (name == "generation") {
      stmt = MakeStmt(StmtKind::kGeneration, tag.line);
      has_generation_ = true;
      const int loops = std::exchange(loops_, 0);  // to jinja2 its body is a macro: no break out of it
      stmt->body = ParseBody({"endgeneration"});
      loops_ = loops;
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) FailAt(tag.line, fmt::format("'{}' outside of a loop", name));
      stmt = MakeStmt(name == "break" ? StmtKind::kBreak : StmtKind::kContinue, tag.line);
    } else if (name == "print") {
      stmt = ParsePrint(tag.line);
    } else if (name == "block") {
      stmt = ParseBlock(tag.line);
    } else if (name == "autoescape") {
      stmt = ParseAutoescape(tag.line);
    } else if (name == "include" || name == "import" || name == "from" || name == "extends") {
      stmt = MakeStmt(StmtKind::kUnsupported, tag.line);
      stmt->text = fmt::format("'{}' needs other template files, which a chat template cannot have", name);
      while (Current().type != TokenType::kBlockEnd && Current().type != TokenType::kEnd) Next();
    } else {
      open_.pop_back();
      FailUnknownTag(tag);
    }
    open_.pop_back();
    return stmt;
  }

  [[noreturn]] void FailUnknownTag(const Token& tag) const {
    std::string message = fmt::format("Encountered unknown tag '{}'.", tag.text);
    if (!open_.empty()) message += fmt::format(" The innermost block that needs to be closed is '{}'.", open_.back());
    FailAt(tag.line, message);
  }

  std::unique_ptr<Stmt> ParseIf(int line) {
    auto stmt = MakeStmt(StmtKind::kIf, line);
    Stmt* tail = stmt.get();  // {% elif %} becomes the `other` of the previous branch
    while (true) {
      tail->expr = ParseTuple(/*with_conditional=*/false, nullptr);
      std::string end;
      tail->body = ParseBody({"elif", "else", "endif"}, &end);
      if (end == "endif") break;
      if (end == "else") {
        tail->other = ParseBody({"endif"});
        break;
      }
      // A chain of elif is walked by a loop but destroyed by recursion: limited like nesting, less strictly.
      if (++elifs_ > 10 * kMaxNestedBlocks) FailAt(Current().line, "too many elif branches");
      tail->other.push_back(MakeStmt(StmtKind::kIf, Current().line));
      tail = tail->other.back().get();
    }
    return stmt;
  }

  std::unique_ptr<Stmt> ParseFor(int line) {
    auto stmt = MakeStmt(StmtKind::kFor, line);
    stmt->target = ParseAssignTarget(/*with_namespace=*/false, "in");
    RejectLoopTarget(*stmt->target);
    if (!SkipName("in")) FailAt(Current().line, fmt::format("expected token 'in', got '{}'", Describe(Current())));
    stmt->expr = ParseTuple(/*with_conditional=*/false, "recursive");
    if (SkipName("if")) stmt->condition = ParseExpression();
    stmt->recursive = SkipName("recursive");
    ++loops_;
    std::string end;
    stmt->body = ParseBody({"endfor", "else"}, &end);
    --loops_;
    if (end == "else") stmt->other = ParseBody({"endfor"});
    return stmt;
  }

  void RejectLoopTarget(const Expr& target) const {
    if (target.name == "loop") FailAt(target.line, "Can't assign to special loop variable in for-loop target");
    for (const ExprPtr& item : target.list) RejectLoopTarget(*item);
  }

  std::unique_ptr<Stmt> ParseSet(int line) {
    auto stmt = MakeStmt(StmtKind::kSet, line);
    stmt->target = ParseAssignTarget(/*with_namespace=*/true, nullptr);
    if (SkipOperator("=")) {
      stmt->expr = ParseTuple(true, nullptr);
    } else {
      stmt->kind = StmtKind::kSetBlock;
      stmt->expr = ParseFilterChain(nullptr, /*starts_inline=*/false);
      stmt->body = ParseBody({"endset"});
    }
    return stmt;
  }

  std::unique_ptr<Stmt> ParseWith(int line) {
    auto stmt = MakeStmt(StmtKind::kWith, line);
    while (Current().type != TokenType::kBlockEnd) {
      if (!stmt->targets.empty()) ExpectOperator(",");
      stmt->targets.push_back(ParseAssignTarget(/*with_namespace=*/false, nullptr));
      ExpectOperator("=");
      stmt->values.push_back(ParseExpression());
    }
    stmt->body = ParseBody({"endwith"});
    return stmt;
  }

  void ParseSignature(MacroDefinition& macro) {
    ExpectOperator("(");
    while (!Current().IsOperator(")")) {
      if (!macro.parameters.empty()) ExpectOperator(",");
      macro.parameters.push_back(ParseNameTarget()->name);
      if (SkipOperator("=")) {
        macro.defaults.push_back(ParseExpression());
      } else if (!macro.defaults.empty()) {
        FailAt(Current().line, "non-default argument follows default argument");
      }
    }
    ExpectOperator(")");
  }

  // The body of a macro or call block up to `end`; notes which special names it reads.
  void ParseMacroBody(MacroDefinition& macro, const char* end) {
    const bool caller = std::exchange(saw_caller_, false);
    const bool varargs = std::exchange(saw_varargs_, false);
    const bool kwargs = std::exchange(saw_kwargs_, false);
    const int loops = std::exchange(loops_, 0);
    macro.body = ParseBody({end});
    loops_ = loops;
    const auto& p = macro.parameters;
    const auto is_parameter = [&](const char* name) { return std::find(p.begin(), p.end(), name) != p.end(); };
    macro.uses_caller = saw_caller_ && !is_parameter("caller");
    macro.uses_varargs = saw_varargs_ && !is_parameter("varargs");
    macro.uses_kwargs = saw_kwargs_ && !is_parameter("kwargs");
    saw_caller_ |= caller;
    saw_varargs_ |= varargs;
    saw_kwargs_ |= kwargs;
  }

  std::unique_ptr<Stmt> ParseMacro(int line) {
    auto stmt = MakeStmt(StmtKind::kMacro, line);
    stmt->macro = std::make_unique<MacroDefinition>();
    stmt->macro->name = ParseNameTarget()->name;
    ParseSignature(*stmt->macro);
    ParseMacroBody(*stmt->macro, "endmacro");
    return stmt;
  }

  std::unique_ptr<Stmt> ParseCallBlock(int line) {
    auto stmt = MakeStmt(StmtKind::kCallBlock, line);
    stmt->macro = std::make_unique<MacroDefinition>();
    stmt->macro->name = "caller";
    if (Current().IsOperator("(")) ParseSignature(*stmt->macro);
    stmt->expr = ParseExpression();
    if (stmt->expr->kind != ExprKind::kCall) FailAt(line, "expected call");
    ParseMacroBody(*stmt->macro, "endcall");
    return stmt;
  }

  std::unique_ptr<Stmt> ParsePrint(int line) {
    auto stmt = MakeStmt(StmtKind::kScope, line);
    while (Current().type != TokenType::kBlockEnd) {
      if (!stmt->body.empty()) ExpectOperator(",");
      auto print = MakeStmt(StmtKind::kPrint, line);
      print->expr = ParseExpression();
      stmt->body.push_back(std::move(print));
    }
    return stmt;
  }

  std::unique_ptr<Stmt> ParseBlock(int line) {
    auto stmt = MakeStmt(StmtKind::kScope, line);
    const std::string name = Expect(TokenType::kName, "the name of the block").text;
    SkipName("scoped");
    SkipName("required");
    const int loops = std::exchange(loops_, 0);
    stmt->body = ParseBody({"endblock"});
    loops_ = loops;
    SkipName(name);
    return stmt;
  }

  std::unique_ptr<Stmt> ParseAutoescape(int line) {
    auto stmt = MakeStmt(StmtKind::kScope, line);
    const ExprPtr on = ParseExpression();
    if (on->kind != ExprKind::kConstant || Truth(on->value)) {
      throw TemplateError(StatusCode::kUnsupported, "only {% autoescape false %} is supported", line);
    }
    stmt->body = ParseBody({"endautoescape"});
    return stmt;
  }

  std::vector<std::string> open_;  // tags that are not yet closed
  int depth_ = 0, loops_ = 0, elifs_ = 0;
  bool has_generation_ = false;
};

}  // namespace

ParsedTemplate ParseTemplate(std::string_view source) {
  return Parser(Tokenize(source)).Run();
}

}  // namespace temper::jinja
