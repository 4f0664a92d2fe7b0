// Progress of a run on the terminal: one line that is redrawn, or plain lines in a pipe. The text is a pure function of
// a state, a width and a character set (ProgressBar, ProgressLine); ProgressDisplay writes it to stderr.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"

namespace temper {

struct ProgressState {
  std::string_view what = "train";  // "train", "eval", "load": REQUIRES: outlives the use
  int64_t step = 0;                 // done
  int64_t total_steps = 0;
  bool in_bytes = false;        // both count bytes
  std::optional<int64_t> rows;  // of data, done
  std::optional<double> epoch;  // absent: these are no steps of training
  // The mean loss since the last logged row; the others are of the last step. Absent before it, or if unknown.
  std::optional<double> loss, grad_norm, learning_rate;
  std::optional<double> tokens_per_second, mfu;  // mfu: 0 to 1
  Bytes memory;                                  // device peak; 0: unknown
  std::optional<Seconds> eta;
};

// One line of at most `width` columns without control characters: as many of bar, loss, speed, ETA, ... as fit, the
// important ones first. `unicode`: the bar has eighths of a column, else '#'.
std::string ProgressBar(const ProgressState& state, int width, bool unicode);

// One line for a log: every known figure as "key value", always in the same order.
std::string ProgressLine(const ProgressState& state);

// True if the locale is UTF-8 (LC_ALL, LC_CTYPE, LANG: the first that is set).
bool LocaleIsUtf8();

// Columns of the terminal on stderr; 80 if there is none. Queried in each call, so that resizing works.
int TerminalWidth();

// Thread rule: one thread. Messages of others (base/log.h) replace the bar's line; it reappears at the next Update.
class ProgressDisplay {
 public:
  // `rich`: redraw a line (StderrIsRich()); else print lines. `silent`: show nothing, because another rank does. Update
  // prints lines if `log` is set; a bar is redrawn at most ten times a second.
  ProgressDisplay(bool rich, bool unicode, bool silent = false);
  ~ProgressDisplay();  // leaves the last state of the bar on its line
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  // `log`: this is a logging step; other steps only move a bar.
  void Update(const ProgressState& state, bool log);
  // A line above the bar.
  void Message(std::string_view line);
  // Ends the bar: the next output begins on a new line.
  void Finish();

 private:
  void Draw();

  const bool rich_;
  const bool unicode_;
  const bool silent_;
  ProgressState last_;
  bool drawn_ = false;    // a bar is on the terminal's last line
  bool pending_ = false;  // last_ is newer than what is drawn
  std::chrono::steady_clock::time_point last_draw_;
};

}  // namespace temper
