// ForeignSetting: a setting of another tool, from a line of its configuration; ForeignProgram: what a script starts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "config/option_set.h"
#include "format/json.h"

namespace temper {

struct ForeignSetting {
  std::string name;
  OrderedJson value;
  int line = 0;      // from 1
  std::string file;  // that a script names; empty: the file itself

  // A scalar as it would be typed, to look it up and to show it; a list or a mapping as JSON.
  std::string Text() const;
  // "line 3", or "recipe.yaml line 3".
  std::string Place() const;
  // "line 3, cutoff_len: 2048", in one line, without the end of a long value.
  std::string Shown() const;
};

struct ForeignWord {
  std::string text;
  int line = 0;
};

// What a script starts.
struct ForeignProgram {
  ForeignWord word;                      // "trl/scripts/dpo.py"; of a tool what it does: the "dpo" of "trl dpo"
  ForeignTool tool = ForeignTool::kAny;  // whose program it is, where its name says so
  std::string other_tool;                // one whose recipes are not read: "ms-swift"
  std::string does;                      // of a tool's own program: "train", "export"
};

// `text` with a space for each control character.
std::string OneLine(std::string text);

}  // namespace temper
