#include "data/encoding.h"

#include <fmt/core.h>

#include <algorithm>

#include "format/data_file_name.h"
#include "format/quoted.h"

namespace temper {
namespace {

bool IsAsciiByte(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

// Windows-1252 has no character for these bytes.
bool IsOfWindows1252(std::string_view text) {
  return text.find_first_of("\x81\x8d\x8f\x90\x9d") == text.npos;
}

// The word around `at`, or a part of it.
std::string_view WordAround(std::string_view text, size_t at) {
  constexpr size_t kMost = 24;
  constexpr std::string_view kEnds = " \t\r\n\",:;";
  const size_t before = at == 0 ? text.npos : text.find_last_of(kEnds, at - 1);
  const size_t begin = std::max(before == text.npos ? 0 : before + 1, at > kMost ? at - kMost : 0);
  const size_t end = std::min({text.find_first_of(kEnds, at), at + kMost, text.size()});
  return text.substr(begin, end - begin);
}

// The command that writes the file as UTF-8, unpacked, beside it.
std::string Conversion(const std::string& path) {
  const std::string_view plain = WithoutCompression(path);
  const size_t dot = plain.rfind('.'), slash = plain.rfind('/');
  const bool has_suffix = dot != plain.npos && (slash == plain.npos || dot > slash);
  const std::string_view stem = plain.substr(0, has_suffix ? dot : plain.size());
  const std::string to = fmt::format("{}.utf8{}", stem, plain.substr(stem.size()));
  const std::string_view packed = std::string_view(path).substr(plain.size());
  if (packed.empty()) return fmt::format("iconv -f WINDOWS-1252 -t UTF-8 {} > {}", ShellWord(path), ShellWord(to));
  return fmt::format("{} {} | iconv -f WINDOWS-1252 -t UTF-8 > {}", packed == ".gz" ? "zcat" : "zstdcat",
                     ShellWord(path), ShellWord(to));
}

}  // namespace

Status NotUtf8(std::string_view text, size_t bad, const std::string& path, const std::string& where) {
  const std::string what = fmt::format("{}: not UTF-8: {}", where, Quoted(WordAround(text, bad)));
  if (!std::all_of(text.begin(), text.begin() + static_cast<int64_t>(bad), IsAsciiByte)) {
    return Corrupt(what + ", though the text before is: it is damaged, or from files of different encodings");
  }
  return Corrupt(fmt::format("{}. {}: {}", what,
                             IsOfWindows1252(text)
                                 ? "The file seems to be Windows-1252 (ANSI, Latin 1); this line converts it"
                                 : "Convert the file, with its encoding in place of WINDOWS-1252",
                             Conversion(path)));
}

}  // namespace temper
