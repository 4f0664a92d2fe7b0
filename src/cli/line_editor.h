// LineEditor: lines typed at a terminal, with the keys and the history that shells have. By libedit, if the build found
// it; there is one at a time, used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace temper {

class LineEditor {
 public:
  enum class Read : uint8_t { kLine, kInterrupted, kEnd };

  // For stdin and stderr, both of a terminal. `wake`: a descriptor that becomes readable when Ctrl-C was pressed.
  // nullptr: this build has none, or the terminal cannot move its cursor.
  static std::unique_ptr<LineEditor> Create(int wake);
  virtual ~LineEditor() = default;

  // Shows `prompt` and reads a line into `line`, without its end. Text that is pasted stays one line, with its line
  // ends in it, and is not sent before Enter is pressed. Ctrl-C drops what was typed, Ctrl-D on an empty line ends.
  virtual Read ReadLine(const std::string& prompt, std::string* line) = 0;
};

}  // namespace temper
