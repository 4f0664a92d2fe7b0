// What a step does where tokens do not choose experts alike. Memory is planned for any choice: an expert may get a row
// of every token.
#pragma once

#include <cstdint>
#include <optional>

#include "program/program.h"

namespace temper {

struct ExpertImbalance {
  int64_t experts = 0, own = 0, active = 0;  // in all, of this rank (mesh.ep), of a token
  int64_t tokens = 0;                        // of a micro-batch that are sent to this rank's experts
  // Rows of an expert if all are used alike.
  double alike() const { return static_cast<double>(tokens * active) / static_cast<double>(experts); }
  // How many times the rows of a rank whose experts are used alike a rank may get: all tokens choose as many of its
  // experts as they can. 1: a rank has all experts.
  double worst() const;
};
// Of the experts that the Program computes; nullopt: it has none.
std::optional<ExpertImbalance> FindImbalance(const Program& train);

}  // namespace temper
