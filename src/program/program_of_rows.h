// Names of Programs that do what another does with shorter rows (compile/run/row_lengths.h).
#pragma once

#include <cstdint>
#include <string>

#include "program/program_names.h"

namespace temper {

// "train.512": of rows of 512 tokens.
inline std::string ProgramOfRows(ProgramKind kind, int64_t row) {
  return ProgramName(kind) + "." + std::to_string(row);
}

}  // namespace temper
