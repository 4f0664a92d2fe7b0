// ProgramSet: Programs that were compiled together, found by name (program/program_names.h). They share the arenas of
// all tiers and the persistent buffers, so each states the same sizes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "program/program.h"

namespace temper {

class ProgramSet {
 public:
  ProgramSet() = default;
  explicit ProgramSet(std::vector<Program> programs) : programs_(std::move(programs)) {}

  const Program* Find(std::string_view name) const;  // nullptr if there is none; O(number of Programs)
  const Program& At(std::string_view name) const;    // REQUIRES: there is one
  // The one whose time the compiler kept short: the training step, if there is one. REQUIRES: not empty.
  const Program& first() const { return programs_.front(); }

  auto begin() const { return programs_.begin(); }
  auto end() const { return programs_.end(); }
  const std::vector<Program>& all() const { return programs_; }

 private:
  std::vector<Program> programs_;
};

using ProgramHashes = std::map<std::string, uint64_t, std::less<>>;  // by the names of Programs
ProgramHashes HashesOf(const ProgramSet& programs);

}  // namespace temper
