#include "data/template/text_search.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "data/template/unicode.h"
#include "data/template/value.h"

namespace temper::jinja {

size_t FindFirst(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size()) return text.npos;
  if (wanted.empty()) return from;
  Budget::Step();
  // memmem is linear in the worst case too; std::string::find is not.
  const void* found = memmem(text.data() + from, text.size() - from, wanted.data(), wanted.size());
  const size_t at = found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.npos;
  Budget::Charge(static_cast<int64_t>((found ? at + wanted.size() : text.size()) - from));
  return at;
}

size_t FindLast(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return text.size();
  if (wanted.size() > text.size()) return text.npos;
  // Searches the reversed text, which keeps the linear bound of the search from the left.
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_wanted(wanted.rbegin(), wanted.rend());
  const size_t at = FindFirst(reversed_text, reversed_wanted, 0);
  return at == text.npos ? at : text.size() - at - wanted.size();
}

int64_t CountText(std::string_view text, std::string_view wanted) {
  if (wanted.empty()) return CountCodePoints(text) + 1;
  int64_t count = 0;
  for (size_t at = 0; (at = FindFirst(text, wanted, at)) != text.npos; at += wanted.size()) ++count;
  return count;
}

std::string ReplaceText(std::string_view text, std::string_view old, std::string_view replacement, int64_t limit) {
  std::string out;
  size_t at = 0;
  if (limit < 0) limit = std::numeric_limits<int64_t>::max();
  if (old.empty()) {  // before every code point, and at the end
    while (limit-- > 0) {
      Budget::Step();
      AppendText(out, replacement);
      if (at == text.size()) return out;
      const size_t start = at;
      NextCodePoint(text, at);
      AppendText(out, text.substr(start, at - start));
    }
  } else {
    size_t found;
    while (limit-- > 0 && (found = FindFirst(text, old, at)) != text.npos) {
      AppendText(out, text.substr(at, found - at));
      AppendText(out, replacement);
      at = found + old.size();
    }
  }
  AppendText(out, text.substr(at));
  return out;
}

std::vector<std::string_view> SplitText(std::string_view text, std::string_view separator, int64_t limit,
                                        bool from_right) {
  if (separator.empty()) Fail("empty separator");
  if (limit < 0) limit = std::numeric_limits<int64_t>::max();
  std::vector<std::string_view> out;
  if (!from_right) {
    size_t at = 0, found;
    while (limit-- > 0 && (found = FindFirst(text, separator, at)) != text.npos) {
      Budget::Charge(sizeof(std::string_view));
      out.push_back(text.substr(at, found - at));
      at = found + separator.size();
    }
    out.push_back(text.substr(at));
    return out;
  }
  // Searches the reversed text, so that overlapping separators are cut from the right.
  const std::string reversed(text.rbegin(), text.rend());
  const std::string_view back(reversed);
  const std::string wanted(separator.rbegin(), separator.rend());
  size_t at = 0, found;
  while (limit-- > 0 && (found = FindFirst(back, wanted, at)) != back.npos) {
    Budget::Charge(sizeof(std::string_view));
    out.push_back(text.substr(text.size() - found, found - at));
    at = found + wanted.size();
  }
  out.push_back(text.substr(0, text.size() - at));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<std::string_view> SplitSpace(std::string_view text, int64_t limit, bool from_right) {
  Budget::Charge(static_cast<int64_t>(text.size()));
  if (limit < 0) limit = std::numeric_limits<int64_t>::max();
  std::vector<std::string_view> words;  // all of them, as pieces of the text
  for (size_t at = 0; at < text.size();) {
    size_t begin = at;
    if (IsSpace(NextCodePoint(text, at))) continue;
    size_t end = at;
    while (at < text.size() && !IsSpace(NextCodePoint(text, at))) end = at;
    Budget::Step();
    Budget::Charge(sizeof(std::string_view));
    words.push_back(text.substr(begin, end - begin));
  }
  const auto cuts = static_cast<size_t>(std::min<int64_t>(limit, static_cast<int64_t>(words.size())));
  if (words.size() <= cuts) return words;
  if (!from_right) {  // the last piece is all the rest, with the space at its end
    const char* begin = words[cuts].data();
    words.resize(cuts);
    words.push_back(text.substr(static_cast<size_t>(begin - text.data())));
    return words;
  }
  const size_t first = words.size() - cuts;  // words[first..] are cut off; the text before them stays whole
  const std::string_view last = words[first - 1];
  std::vector<std::string_view> out = {text.substr(0, static_cast<size_t>(last.data() + last.size() - text.data()))};
  out.insert(out.end(), words.begin() + static_cast<int64_t>(first), words.end());
  return out;
}

std::vector<std::string_view> SplitLines(std::string_view text, bool keep_ends) {
  Budget::Charge(static_cast<int64_t>(text.size()));
  const auto ends_line = [](char32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<std::string_view> out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t c = NextCodePoint(text, at);
    if (!ends_line(c)) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    Budget::Step();
    Budget::Charge(sizeof(std::string_view));
    out.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) out.push_back(text.substr(begin));
  return out;
}

bool IsUpperText(std::string_view text) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = NextCodePoint(text, at);
    if (IsLower(c) || IsTitle(c)) return false;
    any |= IsUpper(c);
  }
  return any;
}

bool IsLowerText(std::string_view text) {
  bool any = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t c = NextCodePoint(text, at);
    if (IsUpper(c) || IsTitle(c)) return false;
    any |= IsLower(c);
  }
  return any;
}

void AppendRepeated(std::string& out, std::string_view piece, int64_t times) {
  if (times <= 0 || piece.empty()) return;
  Budget::CheckText(times);
  for (int64_t i = 0; i < times; ++i) AppendText(out, piece);
}

}  // namespace temper::jinja
