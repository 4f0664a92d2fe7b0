// Text form of a Program:
//   program "train" threads=2 arena=1048576
//   peak weights=65536 adapters=0 gradients=... at "backward block 1: linear_dw"
//   host bytes=4096 weights=4096 adapters=0 ...
//   buffer "model.norm.weight" f32[64] weight trainable offset=4096
//   segment "forward.block" forward
//     operand bf16[48, 64]
//     linear (%0, %1) -> (%2) {acc=0, bias=0}
//   binding segment=0 block=3 (0, 4096, 8192) rng (0, 0, 1234) scratch (12288, 0, 0)
//   run binding=5 micro_batch=0
//   load micro_batch=0
//   store micro_batch=0
//   before_update micro_batch=0
#include <fmt/core.h>

#include "graph/line_reader.h"
#include "program/program.h"

namespace temper {
namespace {

constexpr struct {
  const char* name;
  Bytes MemoryByClass::*member;
} kClasses[] = {{"weights", &MemoryByClass::weights},
                {"adapters", &MemoryByClass::adapters},
                {"gradients", &MemoryByClass::gradients},
                {"optimizer", &MemoryByClass::optimizer},
                {"activations", &MemoryByClass::activations},
                {"workspace", &MemoryByClass::workspace},
                {"inputs_outputs", &MemoryByClass::inputs_outputs},
                {"caches", &MemoryByClass::caches},
                {"in_flight", &MemoryByClass::in_flight},
                {"staged", &MemoryByClass::staged}};

constexpr struct {
  Call::Kind kind;
  const char* name;
} kCallKinds[] = {{Call::Kind::kRun, "run"},
                  {Call::Kind::kLoadInputs, "load"},
                  {Call::Kind::kStoreOutputs, "store"},
                  {Call::Kind::kBeforeUpdate, "before_update"}};

std::string Ids(const std::vector<int>& ids) {
  std::string text = "(";
  for (size_t i = 0; i < ids.size(); ++i) text += fmt::format("{}%{}", i ? ", " : "", ids[i]);
  return text + ")";
}

// Reads lines into a Program; `current` grows as "operand" and instruction lines follow a "segment" line.
class ProgramReader {
 public:
  bool Line(std::string_view line) {
    LineReader in(line);
    if (!has_head_) return in.Eat("program ") && ReadHead(in);
    if (in.Eat("  operand ")) return ReadOperand(in);
    if (in.Eat("  ")) return ReadInstruction(in);
    if (in.Eat("peak ")) return ReadPeak(in);
    if (in.Eat("host ")) return ReadFar(in, &program_.host);
    if (in.Eat("disk ")) return ReadFar(in, &program_.disk);
    if (in.Eat("buffer ")) return ReadBuffer(in);
    if (in.Eat("segment ")) return ReadSegment(in);
    if (in.Eat("binding ")) return ReadBinding(in);
    for (const auto& [kind, name] : kCallKinds) {
      if (in.Eat(name)) return ReadCall(in, kind);
    }
    return false;
  }
  bool has_head() const { return has_head_; }
  Program Take() { return std::move(program_); }

 private:
  bool ReadHead(LineReader& in) {
    has_head_ = true;
    return in.Quoted(&program_.name) && in.Eat(" threads=") && in.Number(&program_.threads) && in.Eat(" arena=") &&
           in.Number(&program_.arena_bytes.v) && in.AtEnd();
  }
  bool ReadClasses(LineReader& in, MemoryByClass* classes) {
    for (const auto& [name, member] : kClasses) {
      if (!in.Eat(name) || !in.Eat("=") || !in.Number(&(classes->*member).v) || !in.Eat(" ")) return false;
    }
    return true;
  }
  bool ReadPeak(LineReader& in) {
    return ReadClasses(in, &program_.peak) && in.Eat("at ") && in.Quoted(&program_.peak_instruction) && in.AtEnd();
  }
  bool ReadFar(LineReader& in, FarMemory* far) {
    return in.Eat("bytes=") && in.Number(&far->bytes.v) && in.Eat(" ") && ReadClasses(in, &far->peak) && in.AtEnd();
  }
  bool ReadBuffer(LineReader& in) {
    Buffer b;
    std::string_view role;
    if (!in.Quoted(&b.name) || !in.Eat(" ") || !in.Type(&b.type) || !in.Eat(" ") || !in.Word(&role) ||
        !ParseRole(role)) {
      return false;
    }
    b.role = *ParseRole(role);
    b.trainable = in.Eat(" trainable");
    b.transient = in.Eat(" transient");
    if (!in.Eat(" offset=") || !in.Number(&b.offset.v)) return false;
    if (in.Eat(" shard") && !in.ReadShard(&b.shard.emplace())) return false;
    program_.buffers.push_back(std::move(b));
    return in.AtEnd();
  }
  bool ReadSegment(LineReader& in) {
    Segment s;
    std::string_view phase;
    if (!in.Quoted(&s.name) || !in.Eat(" ") || !in.Word(&phase) || !ParsePhase(phase)) return false;
    s.phase = *ParsePhase(phase);
    program_.segments.push_back(std::move(s));
    return in.AtEnd();
  }
  bool ReadOperand(LineReader& in) {
    TensorType type;
    if (program_.segments.empty() || !in.Type(&type)) return false;
    program_.segments.back().operands.push_back(type);
    return in.AtEnd();
  }
  bool ReadInstruction(LineReader& in) {
    Instruction i;
    std::string_view op;
    if (program_.segments.empty() || !in.Word(&op) || !ParseOp(op) || !in.Eat(" ") || !in.IdList(&i.inputs) ||
        !in.Eat(" -> ") || !in.IdList(&i.outputs) || !in.Eat(" ") || !in.Braced(&i.attributes)) {
      return false;
    }
    i.op = *ParseOp(op);
    program_.segments.back().instructions.push_back(std::move(i));
    return in.AtEnd();
  }
  template <class T>
  bool Numbers(LineReader& in, std::vector<T>* out) {
    if (!in.Eat("(")) return false;
    while (!in.Eat(")")) {
      T x{};
      bool good = out->empty() || in.Eat(", ");
      if constexpr (std::is_same_v<T, Bytes>) {
        good = good && in.Number(&x.v);
      } else {
        good = good && in.Number(&x);
      }
      if (!good) return false;
      out->push_back(x);
    }
    return true;
  }
  bool ReadBinding(LineReader& in) {
    Binding b;
    if (!in.Eat("segment=") || !in.Number(&b.segment) || !in.Eat(" block=") || !in.Number(&b.block) || !in.Eat(" ") ||
        !Numbers(in, &b.offsets) || !in.Eat(" rng ") || !Numbers(in, &b.rng_hashes) || !in.Eat(" scratch ") ||
        !Numbers(in, &b.scratch)) {
      return false;
    }
    program_.bindings.push_back(std::move(b));
    return in.AtEnd();
  }
  bool ReadCall(LineReader& in, Call::Kind kind) {
    Call call{.kind = kind};
    if (kind == Call::Kind::kRun && (!in.Eat(" binding=") || !in.Number(&call.binding))) return false;
    if (!in.Eat(" micro_batch=") || !in.Number(&call.micro_batch)) return false;
    program_.schedule.push_back(call);
    return in.AtEnd();
  }

  Program program_;
  bool has_head_ = false;  // the first line
};

}  // namespace

std::string PrintProgram(const Program& p) {
  std::string text = fmt::format("program \"{}\" threads={} arena={}\npeak ", p.name, p.threads, p.arena_bytes.v);
  for (const auto& [name, member] : kClasses) text += fmt::format("{}={} ", name, (p.peak.*member).v);
  text += fmt::format("at \"{}\"\n", p.peak_instruction);
  for (const auto& [name, far] : {std::pair("host", &p.host), std::pair("disk", &p.disk)}) {
    if (*far == FarMemory()) continue;
    text += fmt::format("{} bytes={} ", name, far->bytes.v);
    for (const auto& [of, member] : kClasses) text += fmt::format("{}={} ", of, (far->peak.*member).v);
    text += '\n';
  }
  for (const Buffer& b : p.buffers) {
    text += fmt::format("buffer \"{}\" {} {}{}{} offset={}", b.name, b.type.ToString(), ToString(b.role),
                        b.trainable ? " trainable" : "", b.transient ? " transient" : "", b.offset.v);
    if (b.shard) text += " shard" + b.shard->ToString();
    text += '\n';
  }
  for (const Segment& s : p.segments) {
    text += fmt::format("segment \"{}\" {}\n", s.name, ToString(s.phase));
    for (const TensorType& t : s.operands) text += fmt::format("  operand {}\n", t.ToString());
    for (const Instruction& i : s.instructions) {
      text += fmt::format("  {} {} -> {} {}\n", ToString(i.op), Ids(i.inputs), Ids(i.outputs), i.attributes.ToString());
    }
  }
  for (const Binding& b : p.bindings) {
    text += fmt::format("binding segment={} block={} (", b.segment, b.block);
    for (size_t i = 0; i < b.offsets.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", b.offsets[i].v);
    text += ") rng (";
    for (size_t i = 0; i < b.rng_hashes.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", b.rng_hashes[i]);
    text += ") scratch (";
    for (size_t i = 0; i < b.scratch.size(); ++i) text += fmt::format("{}{}", i ? ", " : "", b.scratch[i].v);
    text += ")\n";
  }
  for (const Call& call : p.schedule) {
    for (const auto& [kind, name] : kCallKinds) {
      if (kind == call.kind) text += name;
    }
    if (call.kind == Call::Kind::kRun) text += fmt::format(" binding={}", call.binding);
    text += fmt::format(" micro_batch={}\n", call.micro_batch);
  }
  return text;
}

Result<Program> ReadProgram(std::string_view text) {
  ProgramReader reader;
  for (int line_number = 1; !text.empty(); ++line_number) {
    const size_t n = std::min(text.find('\n'), text.size());
    if (!reader.Line(text.substr(0, n))) {
      return Corrupt(fmt::format("program text line {}: '{}' is not a line of a Program", line_number,
                                 text.substr(0, std::min<size_t>(n, 80))));
    }
    text.remove_prefix(std::min(n + 1, text.size()));
  }
  if (!reader.has_head()) return Corrupt("program text is empty");
  Program program = reader.Take();
  TEMPER_RETURN_IF_ERROR(Verify(program));
  return program;
}

}  // namespace temper
