// Progress of what takes a while, as data, and its text: a bar, or a line for a log. ProgressDisplay shows it wherever
// the lines of the thread go (base/log.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/named_number.h"
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
  std::vector<NamedNumber> reports;              // means as the loss's
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
// Columns of the terminal that `file` is; nullopt: it is none.
std::optional<int> ColumnsOf(int file);

}  // namespace temper
