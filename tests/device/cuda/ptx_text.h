// The content of a PTX file: functions, their variables and instructions, names resolved. Data only.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace temper::ptx {

enum class Kind : uint8_t { kBits, kUnsigned, kSigned, kFloat, kBFloat, kPredicate };

// .b32, .s64, .bf16x2 ...; a predicate has no bytes.
struct Type {
  Kind kind = Kind::kBits;
  int bytes = 0;     // of an element
  int elements = 1;  // 2: .bf16x2, .f16x2
  bool operator==(const Type&) const = default;
};
// bytes 0 and kBits if `name` (without its dot) is not a type.
Type TypeNamed(std::string_view name);
inline bool IsType(Type t) {
  return t.bytes > 0 || t.kind == Kind::kPredicate;
}

enum class Space : uint8_t { kGeneric, kGlobal, kConst, kShared, kLocal, kParam };

// A name with memory. Its place is counted from the beginning of its space: of the module for kGlobal, of a block for
// kShared, of a thread for kLocal, of a kernel's parameters for kParam. Parameters of functions and those that calls
// pass are in kLocal.
struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  int64_t at = 0, bytes = 0;
  int align = 1;
  bool dynamic = false;  // .extern .shared x[]: begins where the static ones of its kernel end
};

// %tid.x and the like: the first bytes of a warp's registers, 128 for each in the order of kSpecialRegisters.
inline constexpr std::string_view kSpecialRegisters[] = {
    "%tid.x",   "%tid.y",   "%tid.z",   "%ntid.x",      "%ntid.y",      "%ntid.z",
    "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x",    "%nctaid.y",    "%nctaid.z",
    "%laneid",  "%warpid",  "%nwarpid", "%lanemask_eq", "%lanemask_lt", "%lanemask_le"};
inline constexpr int32_t kSpecialRegisterBytes = 128 * static_cast<int32_t>(std::size(kSpecialRegisters));

// A register of a function: lanes lie side by side from byte `at` of a warp's registers on.
struct Register {
  Type type;
  int32_t at = -1;
};

struct TextOperand {
  enum class Is : uint8_t {
    kRegister,
    kSpecial,
    kInteger,
    kFloat32,
    kFloat64,
    kVector,
    kAddress,
    kVariable,
    kName,
    kGroup,
    kSink
  };
  Is is = Is::kSink;
  bool negated = false;                // !%p
  Register reg;                        // kRegister, base of kAddress
  std::string_view name;               // kSpecial (%tid.x), kName (a label, a function)
  const Variable* variable = nullptr;  // kVariable, base of kAddress
  uint64_t bits = 0;                   // kInteger, kFloat*: its bits; kAddress, kVariable: the offset
  std::vector<TextOperand> of;         // kVector, kGroup
  std::vector<Register> also;          // the second of p|q, at most one
};

struct TextInstruction {
  int line = 0;
  Register guard;  // at -1: none
  bool guard_negated = false;
  std::string_view opcode;
  std::vector<TextOperand> operands;
};

struct TextFunction {
  std::string name;
  bool is_kernel = false;
  std::vector<Variable> parameters, results;
  std::vector<TextInstruction> instructions;
  struct Label {
    std::string_view name;
    int at;
  };
  std::vector<Label> labels;
  int32_t register_bytes = 0;                     // end of its registers
  int64_t local_bytes = 0;                        // end of its variables in kLocal
  int64_t parameter_bytes = 0, shared_bytes = 0;  // of a kernel
  int max_threads = 1024;                         // of a block (.maxntid)
};

}  // namespace temper::ptx
