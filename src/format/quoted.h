// Makes names that come from a file fit to print: a tensor's name may hold terminal escapes or a megabyte of text.
#pragma once

#include <string>
#include <string_view>

namespace temper {

// `'text'` with control characters and bytes above 0x7E as \xNN, cut (with "...") at 120 characters.
std::string Quoted(std::string_view text);

// `text` as one word of a shell, for commands that a user is told to copy: quoted where it needs it.
std::string ShellWord(std::string_view text);

}  // namespace temper
