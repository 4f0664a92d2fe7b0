#include "format/quoted.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace temper::quoted_test {
namespace {

// What a shell makes of `word`.
std::string AsShellReads(const std::string& word) {
  FILE* const pipe = popen(("printf %s " + word).c_str(), "r");
  std::string text;
  for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
  EXPECT_EQ(pclose(pipe), 0) << word;
  return text;
}

TEST(ShellWord, IsReadAsTheTextByAShell) {
  for (const std::string text : {"out/my-run_1.2", "a b",  "",     "it's", "'",        "''",  "$(touch /tmp/x)",
                                 "`id`",           "a;id", "a\nb", "*",    "~",        "\"",  "\\",
                                 "a\\'b",          "#",    "-x",   "!x",   "\xC3\xA4", "a&b", "(a)",
                                 "{a,b}"}) {
    EXPECT_EQ(AsShellReads(ShellWord(text)), text);
  }
  EXPECT_EQ(ShellWord("out/my-run_1.2"), "out/my-run_1.2") << "plain names stay plain";
}

TEST(Quoted, ShowsNoControlCharacter) {
  EXPECT_EQ(Quoted("a\x1b[2J\x7f\xff"), "'a\\x1b[2J\\x7f\\xff'");
  EXPECT_EQ(Quoted(std::string(200, 'x')), "'" + std::string(120, 'x') + "...'");
}

}  // namespace
}  // namespace temper::quoted_test
