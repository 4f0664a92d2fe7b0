#include "format/quoted.h"

#include <fmt/core.h>

namespace temper {

std::string Quoted(std::string_view text) {
  constexpr size_t kShown = 120;  // longer than any real tensor name (about 80), shorter than two terminal lines
  std::string out = "'";
  for (char c : text.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7F) {
      out += c;
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  out += text.size() > kShown ? "...'" : "'";
  return out;
}

}  // namespace temper
