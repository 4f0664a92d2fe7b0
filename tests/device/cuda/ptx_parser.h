// Reads PTX.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ptx_text.h"

namespace temper::ptx {

struct Text {
  std::string source;  // views point into it
  std::vector<std::unique_ptr<TextFunction>> functions;
  std::list<Variable> variables;   // all; addresses are stable
  int dynamic_shared_align = 1;    // of .extern .shared
  std::vector<std::byte> globals;  // .global and .const with their initial values
};

// Functions (.func) have registers and locals of their own, one after the other, before those of kernels: there is no
// recursion. Shared variables outside functions come before those of each kernel, whether it names them or not.
Result<std::unique_ptr<Text>> ParseText(std::string_view source);

}  // namespace temper::ptx
