#include "data/tokenizer/regex_border.h"

#include <cctype>
#include <optional>
#include <string>

#include "base/utf8.h"
#include "data/tokenizer/regex.h"

namespace temper {
namespace {

constexpr int kMaxPatternDepth = 64;  // of groups; published expressions have at most three

// What is known of a part of the expression: whether its matches may ...
struct Part {
  bool empty = true;    // be empty
  bool begins = false;  // begin with the right character, or assert something of it there
  bool ends = false;    // end with the left character
  bool reads = false;   // read the right character behind the left one
};

Part Sequence(const Part& a, const Part& b) {
  return {.empty = a.empty && b.empty,
          .begins = a.begins || (a.empty && b.begins),
          .ends = b.ends || (b.empty && a.ends),
          .reads = a.reads || b.reads || (a.ends && b.begins)};
}

Part Either(const Part& a, const Part& b) {
  return {a.empty || b.empty, a.begins || b.begins, a.ends || b.ends, a.reads || b.reads};
}

// Whether the whole of `text` is the first match.
bool MatchesWhole(const Regex& regex, std::string_view text) {
  RegexScratch scratch;
  bool whole = false, first = true;
  const Status status = regex.Cover(text, scratch, [&](const Span& span) {
    if (first) whole = span.is_match && span.begin == 0 && span.end == text.size();
    first = false;
    return OkStatus();
  });
  return status.ok() && whole;
}

class Reader {
 public:
  Reader(std::string_view pattern, std::string_view left, std::string_view right)
      : in_(pattern), left_(left), right_(right) {}

  // nullopt: the expression has something that this does not follow.
  std::optional<Part> Run() {
    const auto part = Alternatives(/*flags=*/"", 0);
    return i_ == in_.size() ? part : std::nullopt;
  }

 private:
  bool At(std::string_view text) const { return in_.substr(i_).starts_with(text); }

  // Up to the closing parenthesis or the end. `flags`: of the group, "(?i)" or "(?m)" or both.
  std::optional<Part> Alternatives(std::string flags, int depth) {
    if (depth > kMaxPatternDepth) return std::nullopt;
    std::optional<Part> all;
    Part sequence;
    while (i_ < in_.size() && !At(")")) {
      if (At("|")) {
        ++i_;
        all = all ? Either(*all, sequence) : sequence;
        sequence = {};
        continue;
      }
      const auto part = One(flags, depth);
      if (!part) return std::nullopt;
      sequence = Sequence(sequence, *part);
    }
    return all ? Either(*all, sequence) : sequence;
  }

  // A character, class or group, with its quantifiers. Flags that it sets hold for what follows in its group.
  std::optional<Part> One(std::string& flags, int depth) {
    std::optional<Part> part = At("(") ? Group(flags, depth) : Character(flags);
    while (part && i_ < in_.size()) {
      size_t end = i_ + 1;
      bool optional = in_[i_] == '*' || in_[i_] == '?', repeats = in_[i_] == '*' || in_[i_] == '+';
      if (in_[i_] == '{') {
        end = in_.find('}', i_);
        const std::string_view counts = end == in_.npos ? "" : in_.substr(i_ + 1, end - i_ - 1);
        if (counts.empty() || counts.find_first_not_of("0123456789,") != counts.npos) return std::nullopt;
        ++end;
        optional = counts.substr(0, counts.find(',')).find_first_not_of('0') == counts.npos;
        repeats = true;  // at worst
      } else if (!optional && !repeats) {
        break;
      }
      i_ = end;
      // Lazy and possessive quantifiers try the same matches in another order, or fewer.
      if (At("?") || At("+")) ++i_;
      part->empty = part->empty || optional;
      part->reads = part->reads || (repeats && part->ends && part->begins);
    }
    return part;
  }

  std::optional<Part> Group(std::string& flags, int depth) {
    std::string inner = flags;
    bool assertion = false;
    if (At("(?=") || At("(?!")) {
      assertion = true;
      i_ += 3;
    } else if (At("(?:") || At("(?>")) {
      i_ += 3;
    } else if (At("(?")) {
      const size_t end = in_.find_first_not_of("im", i_ + 2);
      if (end == in_.npos || end == i_ + 2 || (in_[end] != ':' && in_[end] != ')')) return std::nullopt;
      inner += std::string(in_.substr(i_, end - i_)) + ')';
      i_ = end + 1;
      if (in_[end] == ')') {
        flags = inner;
        return Part();
      }
    } else if (At("(*")) {
      return std::nullopt;
    } else {
      ++i_;
    }
    auto part = Alternatives(inner, depth + 1);
    if (!part || !At(")")) return std::nullopt;
    ++i_;
    // It reads what follows, but the match goes on where it was.
    if (assertion) return Part{.empty = true, .begins = part->begins, .ends = false, .reads = part->reads};
    return part;
  }

  // A literal, an escape or a class: what matches one character.
  std::optional<Part> Character(const std::string& flags) {
    const size_t begin = i_;
    if (At("[")) {
      ++i_;
      if (At("^")) ++i_;
      if (At("]")) ++i_;
      while (i_ < in_.size() && !At("]")) {
        if (At("[:")) {
          const size_t end = in_.find(":]", i_);
          if (end == in_.npos) return std::nullopt;
          i_ = end + 2;
        } else {
          i_ += At("\\") ? 2 : 1;
        }
      }
      ++i_;
    } else if (At("\\")) {
      if (i_ + 1 >= in_.size()) return std::nullopt;
      const char c = in_[i_ + 1];
      if (c == 'p' || c == 'P') {
        const size_t end = in_.find('}', i_);
        if (end == in_.npos) return std::nullopt;
        i_ = end + 1;
      } else if (c == 'u') {
        i_ += 6;
      } else if (std::string_view("sSwWhHdDnrtfv").find(c) != std::string_view::npos) {
        i_ += 2;
      } else if (static_cast<unsigned char>(c) < 0x80 && !std::isalnum(static_cast<unsigned char>(c))) {
        i_ += 2;
      } else {
        return std::nullopt;
      }
    } else if (At("^") || At("$") || At("*") || At("+") || At("?") || At("{") || At("]") || At("}")) {
      return std::nullopt;
    } else {
      i_ += utf8::Length(in_[i_]);
    }
    if (i_ > in_.size()) return std::nullopt;
    const auto regex = Regex::Compile(flags + std::string(in_.substr(begin, i_ - begin)), "a part");
    if (!regex.ok()) return std::nullopt;
    return Part{.empty = false, .begins = MatchesWhole(*regex, right_), .ends = MatchesWhole(*regex, left_)};
  }

  const std::string_view in_, left_, right_;
  size_t i_ = 0;
};

}  // namespace

RegexBorder BorderOf(std::string_view pattern, std::string_view left, std::string_view right) {
  const auto part = Reader(pattern, left, right).Run();
  if (!part || part->empty || part->reads) return RegexBorder::kUncertain;
  if (!part->ends) return part->begins ? RegexBorder::kUncertain : RegexBorder::kOutside;
  // Where no earlier match takes the left character, the search reaches it. Then it must match.
  const auto regex = Regex::Compile(pattern, "a part");
  return regex.ok() && MatchesWhole(*regex, left) ? RegexBorder::kMatchEnds : RegexBorder::kUncertain;
}

}  // namespace temper
