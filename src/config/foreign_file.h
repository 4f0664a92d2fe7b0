// ForeignFile: a configuration of another tool as settings, in the file's order. Two kinds of files: YAML, and a shell
// script whose command has the settings as options ("accelerate launch sft.py --learning_rate 1e-4").
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/json.h"

namespace temper {

struct ForeignSetting {
  std::string name;
  OrderedJson value;
  int line = 0;  // from 1

  // A scalar as it would be typed, to look it up and to show it; a list or a mapping as JSON.
  std::string Text() const;
  // "line 3, cutoff_len: 2048", in one line, without the end of a long value.
  std::string Shown() const;
};

struct ForeignWord {
  std::string text;
  int line = 0;
};

struct ForeignFile {
  std::vector<ForeignSetting> settings;  // a null leaves one open
  std::vector<ForeignWord> programs;     // of a script: the words that are neither options nor their values
};

// `file` is its path, for messages.
Result<ForeignFile> ReadForeignFile(std::string_view text, const std::string& file);

// The words of a program's file name, in lower case: "recipes/run_dpo.py" has run, dpo and py.
std::vector<std::string> NameWords(std::string_view program);

// `text` with a space for each control character.
std::string OneLine(std::string text);

}  // namespace temper
