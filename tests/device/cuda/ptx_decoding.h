// Decodes one instruction from text to machine form. Decoders of groups of opcodes (arithmetic, floating point,
// conversions, memory, matrix units) look at it in turn: Decode* returns false if the opcode is not in its group. An
// opcode with parts that no decoder has taken is refused: an instruction does all that it says, or is an error.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "ptx_program.h"
#include "ptx_text.h"

namespace temper::ptx {

class Decoding {
 public:
  Decoding(Program& program, const TextFunction& function, const TextInstruction& text);

  Instruction out;

  // The opcode's first word, and whether another word is among the rest, which is then taken.
  std::string_view name() const { return name_; }
  bool Take(std::string_view word);
  // The first of `words` that is present; empty: none.
  std::string_view TakeOneOf(std::initializer_list<std::string_view> words);
  Type TakeType();  // the first type in the opcode; not IsType: none is left

  Type PeekType() const;

  int operands() const { return static_cast<int>(text_.operands.size()); }
  const TextOperand& operand(int i) const;
  // Operand i, read as `type` or written to registers of its width; `wider`: or larger ones.
  Operand In(int i, Type type, bool wider = false);
  Operand Out(int i, Type type, bool wider = false);
  Operand Predicate(int i);  // a register (negated by predicate_negated), or 0 or not 0
  Operand SecondOut(int i);  // q of p|q
  // The elements of vector i (or operand i alone) appended to out.many.
  void Elements(int i, Type type, bool written, bool wider = false);
  int elements() const { return static_cast<int>(many_.size()); }
  // Puts [base + number] into `base` and out.number; adds the address spaces of named variables.
  void Address(int i, Operand& base);
  Operand Constant(uint64_t bits, int bytes);
  Operand Variable(const ptx::Variable& variable, uint64_t added);
  int64_t Integer(int i);  // an immediate

  void Require(bool holds, const char* what) {
    if (!holds && error_.empty()) error_ = what;
  }
  // Ends decoding: the error, or the parts of the opcode that were not taken; empty if all is well.
  std::string Finish();

 private:
  Operand Read(const TextOperand& operand, Type type, bool wider);

  Program& program_;
  const TextFunction& function_;
  const TextInstruction& text_;
  std::string_view name_;
  std::vector<std::string_view> words_;
  std::vector<Operand> many_;
  std::string error_;
};

bool DecodeArithmetic(Decoding& d);  // of integers
bool DecodeFloatingPoint(Decoding& d);
bool DecodeComparison(Decoding& d);      // setp, selp, set, slct
bool DecodeConversion(Decoding& d);      // cvt, mov, prmt
bool DecodeMemory(Decoding& d);          // ld, st, cvta, cp.async, fences
bool DecodeWarpExchange(Decoding& d);    // shfl, vote, barriers of warps
bool DecodeMatrixUnits(Decoding& d);     // ldmatrix, mma
bool DecodeWarpgroupUnits(Decoding& d);  // wgmma

Status Decode(Program& program);

}  // namespace temper::ptx
