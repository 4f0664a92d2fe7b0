#include "data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/core.h>
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <new>

#include "base/utf8.h"
#include "data/tokenizer/newer_characters.h"
#include "data/tokenizer/unicode.h"

namespace temper {
namespace {

constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;

// Effort of one search, in PCRE2's match steps. Nearly every search of a real tokenizer ends within the first limit; a
// longer one is retried with the next limit, and its maximal cost is charged to a budget proportional to the text.
constexpr uint32_t kLimits[] = {1u << 12, 1u << 16, 1u << 20, 1u << 24};
constexpr uint64_t kBudgetPerByte = 1024;
constexpr uint64_t kBudgetBase = 1u << 25;  // twice the last limit: a short text may use it once
constexpr size_t kJitStackStart = 32 * 1024, kJitStackLimit = 1024 * 1024;
constexpr size_t kMaxPattern = 64 * 1024;  // the longest known (Qwen, o200k) are below 1 KiB

// Oniguruma's \w: its [:word:], and Latin-1's other numbers.
constexpr std::string_view kWordClass = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xB2\\xB3\\xB9\\xBC-\\xBE";
constexpr std::string_view kHexClass = "0-9a-fA-F";  // Oniguruma's \h

// Including the characters that are alphabetic since Unicode 16.
constexpr std::string_view kAlphabetic =
    "\\p{Alphabetic}\\x{363}-\\x{36F}\\x{C04}\\x{F82}\\x{F83}\\x{1DD3}-\\x{1DE6}\\x{11080}\\x{11081}";

// Oniguruma's [:name:] classes; most of PCRE2's differ. Those of printed characters (graph, print) cannot be expressed.
struct PosixClass {
  std::string_view name, items, more = "";
};
constexpr PosixClass kPosixClasses[] = {
    {"alpha", kAlphabetic},
    {"alnum", kAlphabetic, "\\p{Nd}"},
    {"digit", "\\p{Nd}"},
    {"upper", "\\p{Uppercase}"},
    {"lower", "\\p{Lowercase}\\x{10FC}\\x{A7F2}-\\x{A7F4}\\x{AB69}"},  // the last since Unicode 15
    {"punct", "\\p{P}\\p{S}"},
    {"space", "\\p{White_Space}"},
    {"blank", "\\p{Zs}\\t"},
    {"cntrl", "\\p{Cc}"},
    {"xdigit", kHexClass},
    {"word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"}};

bool Compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions, &error, &at, nullptr);
  if (!code) return false;
  pcre2_code_free(code);
  return true;
}

// Translates Oniguruma's syntax to PCRE2's, one construct at a time.
class Translator {
 public:
  Translator(std::string_view in, const std::string& where) : in_(in), where_(where) {}

  Result<std::string> Run() {
    while (i_ < in_.size()) {
      const char c = in_[i_];
      Status status;
      if (c == '\\') {
        status = Escape();
      } else if (in_class_) {
        status = InClass();
      } else if (c == '[') {
        OpenClass();
      } else if (c == '(' && in_.substr(i_, 2) == "(?") {
        Flags();
      } else if (c == '}' && in_.substr(i_, 2) == "}+") {
        return Refuse("'}+', which is possessive in some dialects and a repetition in others");
      } else {
        Copy(1);
      }
      if (!status.ok()) return status;
    }
    return out_;
  }

 private:
  void Copy(size_t n) {
    out_ += in_.substr(i_, n);
    i_ += n;
  }
  Status Refuse(const std::string& what) const {
    return Unsupported(
        fmt::format("{}: the regular expression '{}' uses {}; temper cannot run it as the tokenizers library "
                    "does",
                    where_, in_, what));
  }

  void OpenClass() {
    in_class_ = true;
    Copy(1);
    if (i_ < in_.size() && in_[i_] == '^') Copy(1);
    if (i_ < in_.size() && in_[i_] == ']') Copy(1);  // a literal ']' when first
  }

  Status InClass() {
    if (in_[i_] == ']') {
      in_class_ = false;
    } else if (in_[i_] == '[') {
      const size_t end = in_.find(":]", i_ + 2);
      if (in_.substr(i_, 2) != "[:" || end == in_.npos) return Refuse("a character class within a class");
      const std::string_view name = in_.substr(i_ + 2, end - i_ - 2);
      for (const PosixClass& known : kPosixClasses) {
        if (name != known.name) continue;
        out_.append(known.items).append(known.more);
        i_ = end + 2;
        return OkStatus();
      }
      return Refuse(fmt::format("the class '[:{}:]'", name));
    } else if (in_.substr(i_, 2) == "&&") {
      return Refuse("'&&' within a character class");
    }
    Copy(1);
    return OkStatus();
  }

  // "(?imx-imx:" and "(?imx)": Ruby's m is PCRE2's s; ^ and $ always match at lines.
  void Flags() {
    size_t end = i_ + 2;
    while (end < in_.size() && (in_[end] == 'i' || in_[end] == 'm' || in_[end] == 'x' || in_[end] == '-')) ++end;
    if (end < in_.size() && (in_[end] == ':' || in_[end] == ')')) {
      std::string flags(in_.substr(i_, end - i_));
      std::replace(flags.begin(), flags.end(), 'm', 's');
      out_ += flags;
      i_ = end;
    } else {
      Copy(2);
    }
  }

  Status Escape() {
    if (i_ + 1 >= in_.size()) return Refuse("a backslash at the end");
    const char c = in_[i_ + 1];
    switch (c) {
      case 's':
        return Replace("\\p{White_Space}");  // PCRE2's own also has U+180E
      case 'S':
        return Replace("\\P{White_Space}");
      case 'w':
        return ReplaceClass(kWordClass);
      case 'h':
        return ReplaceClass(kHexClass);
      case 'W':
      case 'H':
        if (in_class_) return Refuse(fmt::format("'\\{}' within a character class", c));
        return Replace(fmt::format("[^{}]", c == 'W' ? kWordClass : kHexClass));
      case 'u': {
        const std::string_view hex = in_.substr(i_ + 2, 4);
        if (hex.size() != 4 || !std::all_of(hex.begin(), hex.end(), [](unsigned char h) { return std::isxdigit(h); })) {
          return Refuse("'\\u' without four hexadecimal digits");
        }
        out_ += fmt::format("\\x{{{}}}", hex);
        i_ += 6;
        return OkStatus();
      }
      case 'p':
      case 'P':
        return Property();
      case 'Q':
      case 'E':
      case 'C':
      case 'N':
        return Refuse(fmt::format("'\\{}'", c));
      default: {
        ++i_;
        out_ += '\\';
        Copy(utf8::Length(c));
        return OkStatus();
      }
    }
  }
  Status Replace(std::string_view with) {
    out_ += with;
    i_ += 2;
    return OkStatus();
  }
  Status ReplaceClass(std::string_view items) {
    return Replace(in_class_ ? std::string(items) : fmt::format("[{}]", items));
  }

  // A bare script name means Script_Extensions to PCRE2 and Script to Oniguruma.
  Status Property() {
    const size_t end = in_.find('}', i_);
    if (in_.substr(i_ + 2, 1) != "{" || end == in_.npos) return Refuse("'\\p' without {name}");
    const std::string_view name = in_.substr(i_ + 3, end - i_ - 3);
    const std::string_view bare = name.starts_with('^') ? name.substr(1) : name;
    const bool negated = (in_[i_ + 1] == 'P') != name.starts_with('^');
    const bool script = bare.find_first_of(":=") == bare.npos && Compiles(fmt::format("\\p{{sc:{}}}", bare));
    out_ += fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', script ? "sc:" : "", bare);
    i_ = end + 1;
    return OkStatus();
  }

  const std::string_view in_;
  const std::string& where_;
  size_t i_ = 0;
  bool in_class_ = false;
  std::string out_;
};

std::string PcreMessage(int code) {
  char buffer[256];
  const int n = pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(buffer), sizeof(buffer));
  return n < 0 ? fmt::format("PCRE2 error {}", code) : std::string(buffer, static_cast<size_t>(n));
}

}  // namespace

struct RegexScratch::Rep {
  std::string stand_ins;
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackLimit, nullptr);

  Rep() {
    if (!data || !context || !stack) throw std::bad_alloc();
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, kLimits[0]);
  }
  ~Rep() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
};

RegexScratch::RegexScratch() = default;
RegexScratch::~RegexScratch() = default;

void Regex::CodeDeleter::operator()(void* code) const {
  pcre2_code_free(static_cast<pcre2_code*>(code));
}

Result<Regex> Regex::Compile(std::string_view pattern, const std::string& where) {
  if (pattern.size() > kMaxPattern) {
    return Corrupt(
        fmt::format("{}: a regular expression of {} bytes (at most {})", where, pattern.size(), kMaxPattern));
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string translated, Translator(pattern, where).Run());
  int error = 0;
  PCRE2_SIZE at = 0;
  Regex regex;
  regex.code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions, &error,
                                  &at, nullptr));
  if (!regex.code_) {
    return Corrupt(fmt::format("{}: the regular expression '{}' does not compile: {} at offset {}", where, pattern,
                               PcreMessage(error), at));
  }
  // If the system forbids executable memory this fails and searches are interpreted: slower, same matches.
  (void)pcre2_jit_compile(static_cast<pcre2_code*>(regex.code_.get()), PCRE2_JIT_COMPLETE);
  regex.pattern_ = std::string(pattern);
  regex.where_ = where;
  return regex;
}

std::string Regex::Escape(std::string_view literal) {
  std::string out;
  for (const char c : literal) {
    if (unicode::IsPunctuation(static_cast<unsigned char>(c)) && static_cast<unsigned char>(c) < 0x80) out += '\\';
    out += c;
  }
  return out;
}

Status Regex::Cover(std::string_view as_given, RegexScratch& scratch, SpanVisitor visit) const {
  auto* code = static_cast<pcre2_code*>(code_.get());
  if (!scratch.rep_) scratch.rep_ = std::make_unique<RegexScratch::Rep>();
  RegexScratch::Rep& s = *scratch.rep_;
  const std::string_view text = WithStandIns(as_given, s.stand_ins);
  uint64_t budget = kBudgetBase + kBudgetPerByte * text.size();
  size_t covered = 0;             // end of the last span
  size_t from = 0;                // where the next search starts
  size_t last_match = text.npos;  // end of the last match: an empty one right after it does not count
  while (from <= text.size() && !text.empty()) {
    int rc = PCRE2_ERROR_MATCHLIMIT;
    for (size_t level = 0; rc == PCRE2_ERROR_MATCHLIMIT && level < std::size(kLimits) && kLimits[level] <= budget;
         ++level) {
      if (level > 0) {
        budget -= kLimits[level];
        pcre2_set_match_limit(s.context, kLimits[level]);
      }
      rc = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK, s.data,
                       s.context);
      if (level > 0) pcre2_set_match_limit(s.context, kLimits[0]);
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      return Unsupported(
          fmt::format("{}: the regular expression '{}' fails on a text of {} bytes ({}): it backtracks "
                      "too much",
                      where_, pattern_, text.size(), PcreMessage(rc)));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(s.data);
    const size_t begin = ends[0], end = ends[1];
    if (begin > end || begin < from) {  // \K within a lookaround
      return Unsupported(fmt::format("{}: the regular expression '{}' matches backwards", where_, pattern_));
    }
    if (begin == end) {
      from = end + (end < text.size() ? utf8::Length(text[end]) : 1);
      if (end == last_match) continue;
    } else {
      from = end;
    }
    last_match = end;
    if (begin > covered) TEMPER_RETURN_IF_ERROR(visit({covered, begin, false}));
    TEMPER_RETURN_IF_ERROR(visit({begin, end, true}));
    covered = end;
  }
  return covered < text.size() ? visit({covered, text.size(), false}) : OkStatus();
}

}  // namespace temper
