#include "base/program_name.h"

#include <algorithm>
#include <cctype>

namespace temper {
namespace {

std::string& Name() {
  static std::string name = "temper";
  return name;
}

}  // namespace

void SetProgramName(std::string_view called) {
  const bool plain = !called.empty() && std::all_of(called.begin(), called.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '/' || c == '.' || c == '-' || c == '_' || c == '+';
  });
  if (plain) Name() = called;
}

const std::string& ProgramName() {
  return Name();
}

}  // namespace temper
