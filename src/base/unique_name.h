#pragma once

#include <string>

namespace temper {

// 16 hexadecimal digits that no other call gives, in any process on any machine: the kernel's random bits.
std::string UniqueName();

}  // namespace temper
