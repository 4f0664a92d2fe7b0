// Searches, splits and replaces in text, in linear time and charged to the render's budget.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace temper::jinja {

// Byte offset, or npos.
size_t FindFirst(std::string_view text, std::string_view wanted, size_t from);
size_t FindLast(std::string_view text, std::string_view wanted);
// The number of occurrences that do not overlap; for an empty `wanted`, one more than there are code points.
int64_t CountText(std::string_view text, std::string_view wanted);
// Replaces the first `limit` occurrences; all if negative.
std::string ReplaceText(std::string_view text, std::string_view old, std::string_view replacement, int64_t limit);

// str.split and str.rsplit, with a separator (not empty) and without; at most `limit` cuts if not negative.
std::vector<std::string_view> SplitText(std::string_view text, std::string_view separator, int64_t limit,
                                        bool from_right);
std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit, bool from_right);
std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends);

// str.isupper and str.islower: some letter has this case, and none has the other.
bool IsUpperText(std::string_view text);
bool IsLowerText(std::string_view text);

// Appends nothing if `times` is not positive.
void AppendRepeated(std::string& out, std::string_view piece, int64_t times);

}  // namespace temper::jinja
