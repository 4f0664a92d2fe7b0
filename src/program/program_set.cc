#include "program/program_set.h"

#include <algorithm>

#include "base/check.h"

namespace temper {

const Program* ProgramSet::Find(std::string_view name) const {
  const auto found = std::find_if(programs_.begin(), programs_.end(), [&](const Program& p) { return p.name == name; });
  return found == programs_.end() ? nullptr : &*found;
}

const Program& ProgramSet::At(std::string_view name) const {
  const Program* const program = Find(name);
  TEMPER_CHECK(program != nullptr) << "no Program '" << name << "' was compiled";
  return *program;
}

ProgramHashes HashesOf(const ProgramSet& programs) {
  ProgramHashes hashes;
  for (const Program& p : programs) hashes.emplace(p.name, ProgramHash(p));
  return hashes;
}

}  // namespace temper
