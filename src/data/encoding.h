// What to tell the user of a text that is not UTF-8: the place, what stands there, and the line that converts the file.
// Pure functions; any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace temper {

// `text`, a part of the file `path`, is ill-formed at `bad` (utf8::ValidPrefix). `where`: the place of the text.
Status NotUtf8(std::string_view text, size_t bad, const std::string& path, const std::string& where);

}  // namespace temper
