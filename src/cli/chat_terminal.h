// The terminal of `temper chat`: messages come in as lines, which keys edit (cli/line_editor.h), and Ctrl-C stops an
// answer instead of the program.
//
// One at a time, used by one thread. Where stdin is no terminal it only reads lines, and Ctrl-C ends the program.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "cli/line_editor.h"

namespace temper {

class ChatTerminal {
 public:
  ChatTerminal();  // from here on SIGINT is caught, if stdin is a terminal
  ~ChatTerminal();
  ChatTerminal(const ChatTerminal&) = delete;

  bool interactive() const { return interactive_; }
  // Shows the prompt on a terminal and returns the next line without its end; nullopt after the last. Ctrl-C drops what
  // was typed. Forgets an interrupt.
  std::optional<std::string> ReadLine();
  // Whether Ctrl-C was pressed since the last line was read.
  bool Interrupted() const;

 private:
  std::optional<std::string> ReadEdited();
  std::optional<std::string> ReadPlain();

  const bool interactive_;
  std::unique_ptr<LineEditor> editor_;  // nullptr: lines are read as the terminal sends them
  bool ended_ = false;
  std::string read_;  // bytes after the last line
};

}  // namespace temper
