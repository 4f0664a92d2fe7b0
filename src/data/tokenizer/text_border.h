// TextBorder: two neighbouring characters of a text. A tokenizer follows them through its steps to show that a long
// text may be cut between them and encoded in pieces, with the ids of the whole.
#pragma once

#include <string>
#include <string_view>

#include "base/utf8.h"
#include "data/tokenizer/unicode.h"

namespace temper {

// Every class that takes a step has `bool Follow(TextBorder&) const`: whether, wherever these two characters meet, the
// step does to the text before them what it would do if the text ended there, and to the text behind them what it
// would do if that were a text of its own that continues another (EncodeOptions::continues). It then updates the
// characters to those that the next step sees. False if that is not certain.
struct TextBorder {
  std::string left, right;  // one character each; `left` is no white space
  bool cut = false;         // a step always cuts here: later ones see the texts before and behind separately

  static TextBorder Of(char32_t left, char32_t right) {
    TextBorder border;
    utf8::Append(border.left, left);
    utf8::Append(border.right, right);
    return border;
  }
  // From what a step makes of each character by itself.
  bool Become(std::string_view new_left, std::string_view new_right) {
    if (new_left.empty() || new_right.empty()) return false;
    left = new_left.substr(utf8::LastStart(new_left));
    right = new_right.substr(0, utf8::Length(new_right[0]));
    return !unicode::IsSpace(utf8::At(left, 0));
  }
  // Whether a search for `text` might find something that lies across the border or ends at it.
  bool MayEndOrCross(std::string_view text) const {
    return text.ends_with(left) || text.find(left + right) != text.npos;
  }
};

}  // namespace temper
