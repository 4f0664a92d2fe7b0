#include "ptx_parser.h"

#include <bit>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <unordered_map>

namespace temper::ptx {
namespace {

struct Token {
  std::string_view text;
  int line = 0;
};

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
         c == '%' || c == '.';
}

std::vector<Token> Tokens(std::string_view source) {
  std::vector<Token> tokens;
  int line = 1;
  for (size_t i = 0; i < source.size();) {
    const char c = source[i];
    if (c == '\n') {
      ++line, ++i;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++i;
    } else if (source.substr(i, 2) == "//") {
      while (i < source.size() && source[i] != '\n') ++i;
    } else if (source.substr(i, 2) == "/*") {
      for (; i < source.size() && source.substr(i, 2) != "*/"; ++i) line += source[i] == '\n';
      i += 2;
    } else {
      size_t end = i + 1;
      if (c == '"') {
        while (end < source.size() && source[end] != '"') ++end;
        ++end;
      } else if (IsWordCharacter(c)) {
        // :: is part of an opcode's name, : ends a label.
        while (end < source.size() && (IsWordCharacter(source[end]) || source.substr(end, 2) == "::")) {
          end += source[end] == ':' ? 2 : 1;
        }
      }
      tokens.push_back({source.substr(i, end - i), line});
      i = end;
    }
  }
  return tokens;
}

int64_t Aligned(int64_t at, int64_t align) {
  return (at + align - 1) / align * align;
}

// The meaning of names in a block of a function.
struct Scope {
  std::unordered_map<std::string_view, Register> registers;
  // .reg .b32 %r<50>: 50 registers, made when they are first named.
  struct Family {
    std::string_view prefix;
    Type type;
    int count;
  };
  std::vector<Family> families;
  std::unordered_map<std::string_view, const Variable*> variables;
};

class Parser {
 public:
  explicit Parser(Text& text) : text_(text), tokens_(Tokens(text.source)), scopes_(1) {}

  Status Parse() {
    while (at_ < tokens_.size()) {
      TEMPER_RETURN_IF_ERROR(TopLevel());
    }
    // Kernels last: the functions that they call have their registers and locals before theirs.
    for (auto& function : text_.functions) {
      if (!function->is_kernel) continue;
      function->register_bytes = function_register_bytes_;
      function->local_bytes = function_local_bytes_;
      function->shared_bytes = module_shared_bytes_;
      at_ = bodies_.at(function.get());
      TEMPER_RETURN_IF_ERROR(Body(*function));
    }
    return OkStatus();
  }

 private:
  std::string_view Peek(size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead].text : std::string_view();
  }
  int Line() const { return tokens_.empty() ? 0 : tokens_[std::min(at_, tokens_.size() - 1)].line; }
  std::string_view Next() { return at_ < tokens_.size() ? tokens_[at_++].text : std::string_view(); }
  bool Take(std::string_view token) {
    if (Peek() != token) return false;
    ++at_;
    return true;
  }
  Status Error(const std::string& what) const {
    return Unsupported("PTX line " + std::to_string(Line()) + ": " + what + ", at '" + std::string(Peek()) + "'");
  }
  Status Expect(std::string_view token) { return Take(token) ? OkStatus() : Error("expected " + std::string(token)); }
  void SkipLine() {
    for (const int line = Line(); at_ < tokens_.size() && tokens_[at_].line == line;) ++at_;
  }
  void SkipBraces() {  // from the opening one on
    int depth = 0;
    do {
      if (Peek() == "{") ++depth;
      if (Peek() == "}") --depth;
      ++at_;
    } while (depth > 0 && at_ < tokens_.size());
  }

  Status TopLevel() {
    const std::string_view word = Peek();
    if (word == ".version" || word == ".target" || word == ".address_size" || word == ".file" || word == ".loc" ||
        word == ".pragma") {
      SkipLine();
      return OkStatus();
    }
    if (word == ".section") {
      while (at_ < tokens_.size() && Peek() != "{") ++at_;
      SkipBraces();
      return OkStatus();
    }
    if (word == ".visible" || word == ".weak" || word == ".common" || word == ";") {
      ++at_;
      return OkStatus();
    }
    if (word == ".extern" && Peek(1) != ".shared") return Error("what another module defines");
    if (word == ".entry" || word == ".func") return Function();
    return Declaration(nullptr);
  }

  // .global .align 4 .b8 name[8] = {...}; of any space; `function`: whose, nullptr outside of them.
  Status Declaration(TextFunction* function) {
    const bool is_extern = Take(".extern");
    TEMPER_ASSIGN_OR_RETURN(Variable variable, TypedName());
    variable.dynamic = is_extern;
    if (variable.space == Space::kParam) variable.space = Space::kLocal;
    std::vector<std::byte> initial;
    if (Take("=")) TEMPER_RETURN_IF_ERROR(Initializer(initial));
    TEMPER_RETURN_IF_ERROR(Expect(";"));
    if (!initial.empty()) variable.bytes = std::max(variable.bytes, static_cast<int64_t>(initial.size()));
    switch (variable.space) {
      case Space::kGlobal:
      case Space::kConst:
        variable.at = Aligned(static_cast<int64_t>(text_.globals.size()), std::max(variable.align, 16));
        text_.globals.resize(static_cast<size_t>(variable.at + variable.bytes));
        std::copy(initial.begin(), initial.end(), text_.globals.begin() + variable.at);
        variable.space = Space::kGlobal;
        break;
      case Space::kShared:
        if (variable.dynamic) {
          text_.dynamic_shared_align = std::max(text_.dynamic_shared_align, variable.align);
          break;
        }
        if (function == nullptr || !function->is_kernel) {
          variable.at = Aligned(module_shared_bytes_, variable.align);
          module_shared_bytes_ = variable.at + variable.bytes;
        } else {
          function->shared_bytes = std::max(function->shared_bytes, module_shared_bytes_);
          variable.at = Aligned(function->shared_bytes, variable.align);
          function->shared_bytes = variable.at + variable.bytes;
        }
        break;
      default:
        if (function == nullptr) return Error("a variable of a thread outside of functions");
        PutInLocal(*function, variable);
    }
    text_.variables.push_back(std::move(variable));
    const Variable& stored = text_.variables.back();
    scopes_.back().variables[stored.name] = &stored;
    return OkStatus();
  }

  void PutInLocal(TextFunction& function, Variable& variable) {
    variable.space = Space::kLocal;
    variable.at = Aligned(function.local_bytes, variable.align);
    function.local_bytes = variable.at + variable.bytes;
  }

  // .param .u64 .ptr .global .align 1 name[8]
  Result<Variable> TypedName() {
    Variable variable;
    Type type;
    for (;;) {
      const std::string_view word = Peek();
      if (word.empty() || word[0] != '.') break;
      ++at_;
      if (word == ".align") {
        variable.align = std::max(1, std::atoi(std::string(Next()).c_str()));
      } else if (word == ".ptr") {
        while (!Peek().empty() && Peek()[0] == '.') {  // what it points to
          if (Next() == ".align") Next();
        }
      } else if (word == ".global" || word == ".const") {
        variable.space = Space::kGlobal;
      } else if (word == ".shared") {
        variable.space = Space::kShared;
      } else if (word == ".local") {
        variable.space = Space::kLocal;
      } else if (word == ".param") {
        variable.space = Space::kParam;
      } else if (const Type named = TypeNamed(word.substr(1)); IsType(named)) {
        type = named;
      } else {
        --at_;
        return Error("a directive that is not known");
      }
    }
    if (!IsType(type)) return Error("expected a declaration");
    variable.name = Next();
    variable.bytes = type.bytes * type.elements;
    variable.align = std::max(variable.align, type.bytes * type.elements);
    while (Take("[")) {
      int64_t count = 0;
      if (Peek() != "]") {
        const auto number = Integer(Next());
        if (!number) return Error("expected a number of elements");
        count = static_cast<int64_t>(*number);
      }
      variable.bytes *= count;
      TEMPER_RETURN_IF_ERROR(Expect("]"));
    }
    element_bytes_ = type.bytes;
    return variable;
  }

  Status Initializer(std::vector<std::byte>& bytes) {
    const int element = element_bytes_;
    const auto one = [&]() -> Status {
      const bool minus = Take("-");
      uint64_t bits = 0;
      const std::string_view word = Next();
      if (word.starts_with("0f") || word.starts_with("0d")) {
        bits = std::strtoull(std::string(word.substr(2)).c_str(), nullptr, 16);
      } else if (const auto number = Integer(word)) {
        bits = minus ? 0 - *number : *number;
      } else {
        return Error("an initial value that is not a number");
      }
      for (int i = 0; i < element; ++i) bytes.push_back(static_cast<std::byte>(bits >> 8 * i));
      return OkStatus();
    };
    if (!Take("{")) return one();
    while (!Take("}")) {
      TEMPER_RETURN_IF_ERROR(one());
      if (Peek() != "}") TEMPER_RETURN_IF_ERROR(Expect(","));
    }
    return OkStatus();
  }

  static std::optional<uint64_t> Integer(std::string_view word) {
    if (!word.empty() && word.back() == 'U') word.remove_suffix(1);
    int base = 10;
    if (word.starts_with("0x") || word.starts_with("0X")) {
      base = 16, word.remove_prefix(2);
    } else if (word.starts_with("0b")) {
      base = 2, word.remove_prefix(2);
    } else if (word.size() > 1 && word[0] == '0') {
      base = 8, word.remove_prefix(1);
    }
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value, base);
    if (error != std::errc() || end != word.data() + word.size() || word.empty()) return std::nullopt;
    return value;
  }

  Status Parameters(TextFunction& function, std::vector<Variable>& into) {
    TEMPER_RETURN_IF_ERROR(Expect("("));
    while (!Take(")")) {
      TEMPER_ASSIGN_OR_RETURN(Variable variable, TypedName());
      if (function.is_kernel) {
        variable.at = Aligned(function.parameter_bytes, variable.align);
        function.parameter_bytes = variable.at + variable.bytes;
      } else {
        PutInLocal(function, variable);
      }
      into.push_back(std::move(variable));
      if (Peek() != ")") TEMPER_RETURN_IF_ERROR(Expect(","));
    }
    return OkStatus();
  }

  Status Function() {
    auto function = std::make_unique<TextFunction>();
    function->is_kernel = Next() == ".entry";
    if (!function->is_kernel) {
      function->local_bytes = function_local_bytes_;
      function->register_bytes = function_register_bytes_;
    }
    if (Peek() == "(") TEMPER_RETURN_IF_ERROR(Parameters(*function, function->results));
    function->name = Next();
    if (Peek() == "(") TEMPER_RETURN_IF_ERROR(Parameters(*function, function->parameters));
    while (!Peek().empty() && Peek()[0] == '.') {
      if (Peek() != ".maxntid" && Peek() != ".reqntid") {
        SkipLine();
        continue;
      }
      function->max_threads = 1;
      do {
        Next();
        function->max_threads *= static_cast<int>(Integer(Next()).value_or(1));
      } while (Peek() == ",");
    }
    if (Take(";")) return OkStatus();  // a declaration
    if (function->is_kernel) {
      bodies_[function.get()] = at_;
      SkipBraces();
    } else {
      TEMPER_RETURN_IF_ERROR(Body(*function));
      function_local_bytes_ = Aligned(function->local_bytes, 16);
      function_register_bytes_ = function->register_bytes;
    }
    text_.functions.push_back(std::move(function));
    return OkStatus();
  }

  Status Body(TextFunction& function) {
    scopes_.emplace_back();
    for (const auto* variables : {&function.parameters, &function.results}) {
      for (const Variable& variable : *variables) {
        text_.variables.push_back(variable);
        scopes_.back().variables[text_.variables.back().name] = &text_.variables.back();
      }
    }
    TEMPER_RETURN_IF_ERROR(Block(function));
    scopes_.pop_back();
    return OkStatus();
  }

  Status Block(TextFunction& function) {
    TEMPER_RETURN_IF_ERROR(Expect("{"));
    scopes_.emplace_back();
    while (!Take("}")) {
      const std::string_view word = Peek();
      if (word.empty()) return Error("a function that does not end");
      if (word == "{") {
        TEMPER_RETURN_IF_ERROR(Block(function));
      } else if (word == ";") {
        ++at_;
      } else if (word == ".loc") {
        SkipLine();
      } else if (word == ".pragma") {
        while (Next() != ";") {
        }
      } else if (word == ".reg") {
        TEMPER_RETURN_IF_ERROR(Registers());
      } else if (word[0] == '.') {
        TEMPER_RETURN_IF_ERROR(Declaration(&function));
      } else if (Peek(1) == ":") {
        function.labels.push_back({word, static_cast<int>(function.instructions.size())});
        at_ += 2;
      } else {
        TEMPER_RETURN_IF_ERROR(Instruction(function));
      }
    }
    scopes_.pop_back();
    return OkStatus();
  }

  Status Registers() {
    ++at_;
    const Type type = TypeNamed(Next().substr(1));
    if (!IsType(type)) return Error("expected the type of registers");
    do {
      const std::string_view name = Next();
      if (Take("<")) {
        const auto count = Integer(Next());
        if (!count || !Take(">")) return Error("expected a number of registers");
        scopes_.back().families.push_back({name, type, static_cast<int>(*count)});
      } else {
        scopes_.back().registers[name] = {type, -1};
      }
    } while (Take(","));
    return Expect(";");
  }

  // nullptr: no register has this name.
  const Register* FindRegister(TextFunction& function, std::string_view name) {
    for (size_t i = scopes_.size(); i-- > 0;) {
      Scope& scope = scopes_[i];
      auto found = scope.registers.find(name);
      if (found == scope.registers.end()) {
        for (const Scope::Family& family : scope.families) {
          if (!name.starts_with(family.prefix)) continue;
          const std::string_view digits = name.substr(family.prefix.size());
          int number = -1;
          const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
          if (error != std::errc() || end != digits.data() + digits.size() || number >= family.count) continue;
          found = scope.registers.insert({name, {family.type, -1}}).first;
          break;
        }
      }
      if (found == scope.registers.end()) continue;
      if (found->second.at < 0) {
        const Type type = found->second.type;
        found->second.at = function.register_bytes;
        function.register_bytes +=
            static_cast<int32_t>(Aligned(type.kind == Kind::kPredicate ? 4 : 32 * type.bytes * type.elements, 64));
      }
      return &found->second;
    }
    return nullptr;
  }

  const Variable* FindVariable(std::string_view name) const {
    for (size_t i = scopes_.size(); i-- > 0;) {
      const auto found = scopes_[i].variables.find(name);
      if (found != scopes_[i].variables.end()) return found->second;
    }
    return nullptr;
  }

  Status Instruction(TextFunction& function) {
    TextInstruction instruction;
    instruction.line = Line();
    if (Take("@")) {
      instruction.guard_negated = Take("!");
      const Register* guard = FindRegister(function, Next());
      if (guard == nullptr || guard->type.kind != Kind::kPredicate) return Error("expected a predicate");
      instruction.guard = *guard;
    }
    instruction.opcode = Next();
    while (!Take(";")) {
      TextOperand operand;
      TEMPER_RETURN_IF_ERROR(Operand(function, operand));
      instruction.operands.push_back(std::move(operand));
      if (Peek() != ";") TEMPER_RETURN_IF_ERROR(Expect(","));
    }
    function.instructions.push_back(std::move(instruction));
    return OkStatus();
  }

  Status List(TextFunction& function, std::string_view end, TextOperand& operand) {
    while (!Take(end)) {
      TEMPER_RETURN_IF_ERROR(Operand(function, operand.of.emplace_back()));
      if (Peek() != end) TEMPER_RETURN_IF_ERROR(Expect(","));
    }
    return OkStatus();
  }

  Status Operand(TextFunction& function, TextOperand& operand) {
    using Is = TextOperand::Is;
    if (Take("{")) {
      operand.is = Is::kVector;
      return List(function, "}", operand);
    }
    if (Take("(")) {
      operand.is = Is::kGroup;
      return List(function, ")", operand);
    }
    if (Take("[")) {
      TEMPER_RETURN_IF_ERROR(Operand(function, operand));
      TEMPER_RETURN_IF_ERROR(Offset(operand));
      if (operand.is != Is::kRegister && operand.is != Is::kVariable && operand.is != Is::kInteger) {
        return Error("an address that is not known");
      }
      operand.is = Is::kAddress;
      return Expect("]");
    }
    operand.negated = Take("!");
    const bool minus = Take("-");
    const std::string_view word = Next();
    if (word == "_") return OkStatus();
    if (word.starts_with("0f") || word.starts_with("0F") || word.starts_with("0d") || word.starts_with("0D")) {
      const bool is_double = word[1] == 'd' || word[1] == 'D';
      operand.is = is_double ? Is::kFloat64 : Is::kFloat32;
      operand.bits = std::strtoull(std::string(word.substr(2)).c_str(), nullptr, 16);
      return OkStatus();
    }
    if (word[0] >= '0' && word[0] <= '9') {
      if (const auto number = Integer(word)) {
        operand.is = Is::kInteger;
        operand.bits = minus ? 0 - *number : *number;
        return OkStatus();
      }
      operand.is = Is::kFloat64;
      operand.bits = std::bit_cast<uint64_t>(std::strtod(std::string(word).c_str(), nullptr) * (minus ? -1 : 1));
      return OkStatus();
    }
    if (const Register* found = FindRegister(function, word)) {
      operand.is = Is::kRegister;
      operand.reg = *found;
      if (Take("|")) {
        const Register* second = FindRegister(function, Next());
        if (second == nullptr) return Error("expected a register");
        operand.also.push_back(*second);
      }
      return OkStatus();
    }
    if (const Variable* variable = FindVariable(word)) {
      operand.is = Is::kVariable;
      operand.variable = variable;
      return Offset(operand);
    }
    operand.is = word[0] == '%' ? Is::kSpecial : Is::kName;
    operand.name = word;
    return OkStatus();
  }

  Status Offset(TextOperand& operand) {
    while (Peek() == "+" || Peek() == "-") {
      const bool minus = Next() == "-";
      const bool negative = Take("-");
      const auto number = Integer(Next());
      if (!number) return Error("expected an offset");
      operand.bits += minus != negative ? 0 - *number : *number;
    }
    return OkStatus();
  }

  Text& text_;
  std::vector<Token> tokens_;
  std::vector<Scope> scopes_;
  size_t at_ = 0;
  std::map<const TextFunction*, size_t> bodies_;  // of kernels: where they begin
  int element_bytes_ = 0;                         // of the declaration being read
  int64_t module_shared_bytes_ = 0, function_local_bytes_ = 0;
  int32_t function_register_bytes_ = kSpecialRegisterBytes;
};

}  // namespace

Type TypeNamed(std::string_view name) {
  static const std::map<std::string_view, Type> types = {
      {"pred", {Kind::kPredicate, 0}}, {"b8", {Kind::kBits, 1}},         {"b16", {Kind::kBits, 2}},
      {"b32", {Kind::kBits, 4}},       {"b64", {Kind::kBits, 8}},        {"b128", {Kind::kBits, 16}},
      {"u8", {Kind::kUnsigned, 1}},    {"u16", {Kind::kUnsigned, 2}},    {"u32", {Kind::kUnsigned, 4}},
      {"u64", {Kind::kUnsigned, 8}},   {"s8", {Kind::kSigned, 1}},       {"s16", {Kind::kSigned, 2}},
      {"s32", {Kind::kSigned, 4}},     {"s64", {Kind::kSigned, 8}},      {"f16", {Kind::kFloat, 2}},
      {"f32", {Kind::kFloat, 4}},      {"f64", {Kind::kFloat, 8}},       {"bf16", {Kind::kBFloat, 2}},
      {"f16x2", {Kind::kFloat, 2, 2}}, {"bf16x2", {Kind::kBFloat, 2, 2}}};
  const auto found = types.find(name);
  return found == types.end() ? Type{Kind::kBits, 0} : found->second;
}

Result<std::unique_ptr<Text>> ParseText(std::string_view source) {
  auto text = std::make_unique<Text>();
  text->source = source;
  TEMPER_RETURN_IF_ERROR(Parser(*text).Parse());
  return text;
}

}  // namespace temper::ptx
