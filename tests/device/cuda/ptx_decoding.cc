#include "ptx_decoding.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <unordered_map>

#include "ptx_block.h"

namespace temper::ptx {

const std::byte* Program::ConstantOf(uint64_t bits, int bytes) {
  const auto [at, is_new] = known_constants_.try_emplace({bits, bytes}, nullptr);
  if (is_new) {
    Constant& constant = constants.emplace_back();
    if (bytes == 0) bits = bits != 0 ? kAllLanes : 0;
    const size_t width = bytes == 0 ? sizeof(Mask) : static_cast<size_t>(bytes);
    for (int lane = 0; lane < (bytes == 0 ? 1 : kLanes); ++lane) {
      std::memcpy(constant.lanes + static_cast<size_t>(lane) * width, &bits, width);
    }
    at->second = constant.lanes;
  }
  return at->second;
}

int64_t Program::DynamicShared(const TextFunction& kernel) const {
  const char* const least = std::getenv("TEMPER_TEST_GPU_WINDOWS");
  const int64_t align = least != nullptr ? std::atoi(least) : std::max(text->dynamic_shared_align, 16);
  return (kSharedBegin + kernel.shared_bytes + align - 1) / align * align;
}

Decoding::Decoding(Program& program, const TextFunction& function, const TextInstruction& text)
    : program_(program), function_(function), text_(text) {
  out.line = text.line;
  out.guard = text.guard.at;
  out.guard_negated = text.guard_negated;
  for (size_t begin = 0; begin <= text.opcode.size();) {
    const size_t end = std::min(text.opcode.find('.', begin), text.opcode.size());
    words_.push_back(text.opcode.substr(begin, end - begin));
    begin = end + 1;
  }
  name_ = words_.front();
  words_.erase(words_.begin());
}

bool Decoding::Take(std::string_view word) {
  const auto found = std::find(words_.begin(), words_.end(), word);
  if (found == words_.end()) return false;
  words_.erase(found);
  return true;
}

std::string_view Decoding::TakeOneOf(std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (Take(word)) return word;
  }
  return {};
}

Type Decoding::TakeType() {
  for (size_t i = 0; i < words_.size(); ++i) {
    const Type type = TypeNamed(words_[i]);
    if (!IsType(type)) continue;
    words_.erase(words_.begin() + static_cast<std::ptrdiff_t>(i));
    return type;
  }
  return {};
}

Type Decoding::PeekType() const {
  for (const std::string_view word : words_) {
    if (const Type type = TypeNamed(word); IsType(type)) return type;
  }
  return {};
}

const TextOperand& Decoding::operand(int i) const {
  static const TextOperand none;
  return i < operands() ? text_.operands[static_cast<size_t>(i)] : none;
}

Operand Decoding::Constant(uint64_t bits, int bytes) {
  if (bytes > 0 && bytes < 8) bits &= (uint64_t{1} << 8 * bytes) - 1;
  return {-1, static_cast<uint8_t>(bytes), program_.ConstantOf(bits, bytes)};
}

Operand Decoding::Variable(const ptx::Variable& variable, uint64_t added) {
  const uint64_t at = static_cast<uint64_t>(variable.at) + added;
  switch (variable.space) {
    case Space::kGlobal:
      return Constant(kModuleWindow + at, 8);
    case Space::kShared:
      if (variable.dynamic) return Constant(static_cast<uint64_t>(program_.DynamicShared(function_)) + added, 8);
      return Constant(static_cast<uint64_t>(kSharedBegin) + at, 8);
    default:
      return Constant(at, 8);
  }
}

Operand Decoding::Read(const TextOperand& operand, Type type, bool wider) {
  using Is = TextOperand::Is;
  const int bytes = type.bytes * type.elements;
  switch (operand.is) {
    case Is::kRegister: {
      const Type is = operand.reg.type;
      const int has = is.bytes * is.elements;
      if (is.kind == Kind::kPredicate || (wider ? has < bytes : has != bytes)) {
        Require(false, "a register of another width");
      }
      return {operand.reg.at, static_cast<uint8_t>(has), nullptr};
    }
    case Is::kSpecial:
      for (size_t i = 0; i < std::size(kSpecialRegisters); ++i) {
        if (operand.name != kSpecialRegisters[i]) continue;
        Require(bytes == 4, "a special register has 32 bits");
        return {static_cast<int32_t>(128 * i), 4, nullptr};
      }
      Require(false, "a special register that is not known");
      return {};
    case Is::kInteger:
      if (type.kind == Kind::kFloat && type.elements == 1 && operand.bits != 0) {
        Require(false, "an integer for a floating point operand");
      }
      return Constant(operand.bits, bytes);
    case Is::kFloat32:
      if (bytes == 8)
        return Constant(
            std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(operand.bits)))), 8);
      return Constant(operand.bits, bytes);
    case Is::kFloat64:
      if (bytes == 4) {
        return Constant(std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(operand.bits))), 4);
      }
      return Constant(operand.bits, bytes);
    case Is::kVariable: {
      const Operand at = Variable(*operand.variable, operand.bits);
      uint64_t bits = 0;
      std::memcpy(&bits, at.constant, 8);
      return Constant(bits, bytes);
    }
    default:
      Require(false, "an operand of another kind");
      return {};
  }
}

Operand Decoding::In(int i, Type type, bool wider) {
  Require(i < operands(), "an operand is missing");
  return Read(operand(i), type, wider);
}

Operand Decoding::Out(int i, Type type, bool wider) {
  const TextOperand& to = operand(i);
  if (to.is == TextOperand::Is::kSink) return {};
  Require(to.is == TextOperand::Is::kRegister, "a result that is not a register");
  if (type.kind == Kind::kPredicate) {
    Require(to.reg.type.kind == Kind::kPredicate, "a result that is not a predicate");
    return {to.reg.at, 0, nullptr};
  }
  return Read(to, type, wider);
}

Operand Decoding::Predicate(int i) {
  const TextOperand& from = operand(i);
  if (from.is == TextOperand::Is::kInteger) return Constant(from.bits, 0);
  Require(from.is == TextOperand::Is::kRegister && from.reg.type.kind == Kind::kPredicate, "expected a predicate");
  out.predicate_negated = from.negated;
  return {from.reg.at, 0, nullptr};
}

Operand Decoding::SecondOut(int i) {
  const TextOperand& to = operand(i);
  if (to.also.empty()) return {};
  return {to.also[0].at, static_cast<uint8_t>(to.also[0].type.bytes), nullptr};
}

void Decoding::Elements(int i, Type type, bool written, bool wider) {
  const TextOperand& vector = operand(i);
  const auto add = [&](const TextOperand& element) {
    Operand o;
    if (element.is != TextOperand::Is::kSink) o = Read(element, type, wider);
    many_.push_back(o);
    if (written) ++out.written;
  };
  if (vector.is != TextOperand::Is::kVector) return add(vector);
  for (const TextOperand& element : vector.of) add(element);
}

void Decoding::Address(int i, Operand& base) {
  const TextOperand& address = operand(i);
  Require(address.is == TextOperand::Is::kAddress, "expected an address");
  if (address.variable != nullptr) {
    base = Variable(*address.variable, address.bits);
  } else if (address.reg.at >= 0) {
    base = {address.reg.at, static_cast<uint8_t>(address.reg.type.bytes), nullptr};
    Require(base.bytes >= 4, "an address of fewer than 32 bits");
    out.number = static_cast<int64_t>(address.bits);
  } else {
    base = Constant(address.bits, 8);
  }
}

int64_t Decoding::Integer(int i) {
  Require(operand(i).is == TextOperand::Is::kInteger, "expected an immediate");
  return static_cast<int64_t>(operand(i).bits);
}

std::string Decoding::Finish() {
  if (error_.empty() && !words_.empty()) error_ = "." + std::string(words_.front()) + " is not known here";
  if (error_.empty() && out.run == nullptr && out.flow == Flow::kNext) error_ = "this combination is not known";
  if (!many_.empty()) {
    program_.vectors.push_back(std::move(many_));
    out.many = program_.vectors.back();
  }
  return error_;
}

namespace {

// Arguments of a call become the callee's parameters, lane by lane.
void PassArguments(Warp& warp, const Instruction& i, Mask mask) {
  ForLanes(mask, [&](int lane) {
    for (size_t k = 0; k < i.arguments.size(); ++k) {
      std::memcpy(warp.Local(lane) + i.callee->parameters[k].at, warp.Local(lane) + i.arguments[k].at,
                  static_cast<size_t>(i.arguments[k].bytes));
    }
  });
}

void Trap(Warp& warp, const Instruction&, Mask mask) {
  warp.Fail(__builtin_ctz(mask), "traps");
}

// A call's target is an index of the text's functions until all are decoded.
bool DecodeControl(Decoding& d, Program& program, const std::unordered_map<std::string_view, int>& labels) {
  using Is = TextOperand::Is;
  if (d.name() == "bra") {
    d.Take("uni");
    d.out.flow = Flow::kBranch;
    const auto found = labels.find(d.operand(0).name);
    d.Require(found != labels.end(), "a label that is not there");
    if (found != labels.end()) d.out.target = found->second;
    return true;
  }
  if (d.name() == "ret" || d.name() == "exit") {
    d.Take("uni");
    d.out.flow = d.name() == "ret" ? Flow::kReturn : Flow::kExit;
    return true;
  }
  if (d.name() == "trap") {
    d.out.run = Trap;
    return true;
  }
  if (d.name() == "bar" || d.name() == "barrier") {
    if (d.Take("warp")) {
      d.Require(d.Take("sync"), "of barriers for a warp only .sync is known");
      d.out.flow = Flow::kTogether;
      d.out.members = d.In(0, {Kind::kBits, 4});
      return true;
    }
    d.Take("cta"), d.Take("aligned");
    d.out.flow = d.Take("sync") ? Flow::kBarrier : d.Take("arrive") ? Flow::kArrive : Flow::kNext;
    if (d.operands() > 0) d.out.a = d.In(0, {Kind::kBits, 4});
    if (d.operands() > 1) d.out.b = d.In(1, {Kind::kBits, 4});
    return true;
  }
  if (d.name() != "call") return false;
  d.Take("uni");
  d.out.flow = Flow::kCall;
  d.out.run = PassArguments;
  int at = 0;
  const auto group = [&](std::span<const Variable>& to) {
    if (d.operand(at).is != Is::kGroup) return;
    std::vector<Variable>& variables = program.call_variables.emplace_back();
    for (const TextOperand& o : d.operand(at).of) {
      d.Require(o.is == Is::kVariable, "an argument that is no variable");
      if (o.is == Is::kVariable) variables.push_back(*o.variable);
    }
    to = variables;
    ++at;
  };
  group(d.out.results);
  const std::string_view callee = d.operand(at++).name;
  group(d.out.arguments);
  for (size_t i = 0; i < program.text->functions.size(); ++i) {
    if (program.text->functions[i]->name != callee) continue;
    d.out.target = static_cast<int32_t>(i);
    d.out.callee = program.text->functions[i].get();
  }
  d.Require(d.out.callee != nullptr && d.out.callee->parameters.size() == d.out.arguments.size() &&
                d.out.callee->results.size() == d.out.results.size(),
            "a function that the file does not have");
  return true;
}

}  // namespace

Status Decode(Program& program) {
  std::vector<int32_t> begins;
  int granule = 4;
  for (const auto& function : program.text->functions) {
    const auto begin = static_cast<int32_t>(program.code.size());
    begins.push_back(begin);
    std::unordered_map<std::string_view, int> labels;
    for (const TextFunction::Label& label : function->labels) labels[label.name] = begin + label.at;
    Kernel kernel{function.get(), begin, 4, false, false};
    for (const TextInstruction& text : function->instructions) {
      Decoding d(program, *function, text);
      const bool known = DecodeControl(d, program, labels) || DecodeArithmetic(d) || DecodeFloatingPoint(d) ||
                         DecodeComparison(d) || DecodeConversion(d) || DecodeMemory(d) || DecodeWarpExchange(d) ||
                         DecodeMatrixUnits(d) || DecodeWarpgroupUnits(d);
      const std::string error = known ? d.Finish() : "not known";
      if (!error.empty()) {
        return Unsupported("PTX line " + std::to_string(text.line) + ": " + std::string(text.opcode) + ": " + error);
      }
      if (d.out.space == Space::kShared || d.out.space == Space::kGeneric) {
        if (text.opcode.starts_with("ld") || text.opcode.starts_with("st")) {
          granule = std::min(granule, static_cast<int>(d.out.access_bytes));
        }
      }
      kernel.has_products |= d.out.asynchronous;
      kernel.has_named_barriers |=
          d.out.flow == Flow::kArrive ||
          (d.out.flow == Flow::kBarrier && (d.operands() > 1 || (d.operands() == 1 && d.operand(0).bits != 0)));
      program.code.push_back(d.out);
    }
    // Falling off its end returns.
    Instruction end;
    end.flow = Flow::kReturn;
    program.code.push_back(end);
    if (function->is_kernel) program.kernels.emplace(function->name, kernel);
  }
  for (Instruction& i : program.code) {
    if (i.flow == Flow::kCall) i.target = begins[static_cast<size_t>(i.target)];
  }
  for (auto& [name, kernel] : program.kernels) kernel.shared_granule = granule;
  return OkStatus();
}

}  // namespace temper::ptx
