// Every code point against the tokenizers library (tests/tokenizer/make_unicode_goldens.py): the classes of its regular
// expressions, and the steps that depend on Unicode.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/env.h"
#include "base/project_folder_for_test.h"
#include "base/utf8.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/unicode.h"
#include "format/json.h"

namespace temper::unicode_golden_test {
namespace {

// Code points outside are unassigned, or for private use.
constexpr std::pair<char32_t, char32_t> kRanges[] = {{0, 0xD800}, {0xE000, 0x34000}, {0xE0000, 0xE1000}};
constexpr size_t kCodePoints = 0xD800 + (0x34000 - 0xE000) + 0x1000;

const Json& Goldens() {
  static const Json goldens = [] {
    auto json = ReadJsonFile(PosixEnv(), std::string(kProjectFolder) + "/tests/tokenizer/unicode_goldens.json");
    EXPECT_TRUE(json.ok()) << json.status().message();
    return json.ok() ? *json : Json::object();
  }();
  return goldens;
}

// Calls body(i, c) for each: the i-th is U+c.
template <class Body>
void ForEach(const Body& body) {
  size_t i = 0;
  for (const auto& [begin, end] : kRanges) {
    for (char32_t c = begin; c < end; ++c) body(i++, c);
  }
}
using Class = std::string;  // of the i-th code point: 1 if it is inside, else 0; compared fast

// "3 2 ..." is three outside, two inside, ...
Class ClassOf(const std::string& lengths) {
  Class inside;
  std::istringstream in(lengths);
  size_t length = 0;
  for (char value = 0; in >> length; value ^= 1) inside.append(length, value);
  EXPECT_EQ(inside.size(), kCodePoints);
  inside.resize(kCodePoints);
  return inside;
}

// The code points whose category (Lu and the like) begins so.
Class OfCategory(const std::string& prefix) {
  Class inside;
  std::istringstream in(Goldens()["categories"].get<std::string>());
  size_t length = 0;
  for (std::string name; in >> length >> name;) inside.append(length, name.starts_with(prefix) ? 1 : 0);
  EXPECT_EQ(inside.size(), kCodePoints);
  inside.resize(kCodePoints);
  return inside;
}

void ExpectSame(const Class& got, const Class& want, const std::string& what, size_t but_for = 0) {
  if (got == want && but_for == 0) return;
  std::string wrong;
  size_t n = 0;
  ForEach([&](size_t i, char32_t c) {
    if (got[i] != want[i] && n++ < 8) wrong += fmt::format(" U+{:04X}", static_cast<uint32_t>(c));
  });
  EXPECT_EQ(n, but_for) << what << ", wrong for" << wrong;
}

// The code points that the pattern matches in a text of all.
Class Matching(const std::string& pattern) {
  struct All {
    std::string text;
    std::vector<size_t> count;  // by bytes: of the code points that begin before
  };
  static const All all = [] {
    All of;
    ForEach([&](size_t i, char32_t c) {
      of.count.resize(of.text.size() + 1, i);
      utf8::Append(of.text, c);
    });
    of.count.resize(of.text.size() + 1, kCodePoints);
    return of;
  }();
  const auto regex = Regex::Compile(pattern, "f.json");
  EXPECT_TRUE(regex.ok()) << regex.status().message();
  Class inside(kCodePoints, 0);
  if (!regex.ok()) return inside;
  RegexScratch scratch;
  const Status status = regex->Cover(all.text, scratch, [&](const Span& span) {
    for (size_t i = all.count[span.begin]; span.is_match && i < all.count[span.end]; ++i) inside[i] = 1;
    return OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  return inside;
}

TEST(UnicodeGoldens, RegularExpressionsKnowTheCategoriesThatTokenizersKnows) {
  for (const char* name :
       {"L",  "M",  "N",  "P",  "S",  "Z",  "C",  "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No",
        "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co", "Cn"}) {
    Class want = OfCategory(name);
    ExpectSame(Matching(fmt::format("\\p{{{}}}", name)), want, name);
    ExpectSame(Matching(fmt::format("[\\p{{{}}}]+", name)), want, name);
    for (char& inside : want) inside ^= 1;
    ExpectSame(Matching(fmt::format("\\P{{{}}}+", name)), want, std::string("not ") + name);
    ExpectSame(Matching(fmt::format("[^\\p{{{}}}]", name)), want, std::string("not ") + name);
  }
}

TEST(UnicodeGoldens, RegularExpressionsKnowTheClassesAndScriptsThatTokenizersKnows) {
  // Newer characters for which PCRE2 has no similar one of the same byte count.
  const std::map<std::string, size_t> missed = {
      {"\\p{Arabic}", 4}, {"\\p{Common}", 2}, {"\\p{Cyrillic}", 64}, {"\\p{Devanagari}", 10}, {"[[:lower:]]", 62}};
  for (const auto& [pattern, lengths] : Goldens()["classes"].items()) {
    const auto found = missed.find(pattern);
    ExpectSame(Matching(pattern), ClassOf(lengths.get<std::string>()), pattern,
               found == missed.end() ? 0 : found->second);
  }
}

TEST(UnicodeGoldens, StepsTellCharactersApartAsTokenizersDoes) {
  const std::map<std::string, bool (*)(char32_t)> steps = {{"Digits", unicode::IsNumeric},
                                                           {"Punctuation", unicode::IsPunctuation},
                                                           {"WhitespaceSplit", unicode::IsSpace},
                                                           {"Whitespace", unicode::IsWord}};
  ASSERT_EQ(Goldens()["steps"].size(), steps.size());
  for (const auto& [name, is] : steps) {
    Class got(kCodePoints, 0);
    ForEach([&, is = is](size_t i, char32_t c) { got[i] = is(c) ? 1 : 0; });
    ExpectSame(got, ClassOf(Goldens()["steps"][name].get<std::string>()), name);
  }
}

TEST(UnicodeGoldens, StepsChangeCharactersAsTokenizersDoes) {
  using unicode::Form;
  const auto form = [](Form f) { return [f](const std::string& text) { return unicode::Normalize(text, f); }; };
  const std::string marks = "\u0345\u0301\u0323\u0327\u094d\u3099\u093c\u0334";
  const auto nfd = form(Form::kNfd);
  const std::string nfd_of_marks = nfd(marks);
  const auto bert = [](const char* part) {
    Json json = {{"type", "BertNormalizer"},
                 {"clean_text", false},
                 {"handle_chinese_chars", false},
                 {"strip_accents", false},
                 {"lowercase", false}};
    json[part] = true;
    return [step = std::shared_ptr<Normalizer>(*Normalizer::FromJson(json, "f.json"))](const std::string& text) {
      RegexScratch scratch;
      Stretch stretch{text, /*at_start=*/true, /*limit=*/1 << 20};
      EXPECT_TRUE(step->Apply(stretch, scratch).ok());
      return stretch.text;
    };
  };
  const std::map<std::string, std::function<std::string(const std::string&)>> changes = {
      {"Lowercase", [](const std::string& text) { return unicode::Lowercase(text); }},
      {"NFC", form(Form::kNfc)},
      {"NFD", nfd},
      {"NFKC", form(Form::kNfkc)},
      {"NFKD", form(Form::kNfkd)},
      {"StripAccents",
       [](const std::string& text) { return unicode::IsMark(utf8::At(text, 0)) ? std::string() : text; }},
      {"Bert clean_text", bert("clean_text")},
      {"Bert handle_chinese_chars", bert("handle_chinese_chars")},
      {"Bert strip_accents", bert("strip_accents")},
      {"order", [&](const std::string& text) {
         const std::string ordered = nfd(marks + text);
         return ordered == nfd_of_marks + nfd(text) ? text : ordered;
       }}};
  ASSERT_EQ(Goldens()["changes"].size(), changes.size());
  for (const auto& [name, change] : changes) {
    const Json& want = Goldens()["changes"][name];
    std::string changed;  // of one block
    ForEach([&, &name = name, &change = change](size_t, char32_t c) {
      std::string text;
      utf8::Append(text, c);
      const std::string to = change(text);
      if (to != text) changed += fmt::format("{:x} {};", static_cast<uint32_t>(c), to);
      if (c % 256 != 255) return;
      uint64_t hash = 0xCBF29CE484222325;
      for (const unsigned char byte : changed) hash = (hash ^ byte) * 0x100000001B3;
      EXPECT_EQ(changed.empty() ? "" : fmt::format("{:016x}", hash),
                want.value(fmt::format("{:x}", static_cast<uint32_t>(c) >> 8), ""))
          << name << " changes " << changed;
      changed.clear();
    });
  }
}

}  // namespace
}  // namespace temper::unicode_golden_test
