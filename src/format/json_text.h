// JSON as text, for what is written without a tree of values. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace temper {

// A string in quotes; other bytes than control characters, quotes and backslashes stay as they are.
void AppendJsonString(std::string_view text, std::string& out);
void AppendJsonInt(int64_t value, std::string& out);
void AppendJsonUnsigned(uint64_t value, std::string& out);
// In the shortest form that reads back as the same double, and as no integer; null if it is not finite.
void AppendJsonDouble(double value, std::string& out);

}  // namespace temper
