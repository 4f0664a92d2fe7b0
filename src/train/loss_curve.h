// Draws a loss curve with characters, for the end of a run.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace temper {

struct LossCurveStyle {
  int width = 72;       // columns in all, labels included
  int height = 12;      // rows of the plot
  bool unicode = true;  // 2 x 4 dots per character (braille); else '*'
};

// `training` and `evaluation`: (step, loss), by ascending steps. Training is a line
// of the mean per dot column, evaluation single marks ('o'). Losses that are not
// finite are omitted. Fewer than two steps give "". Every line ends with a newline.
std::string DrawLossCurve(std::span<const std::pair<int64_t, double>> training,
                          std::span<const std::pair<int64_t, double>> evaluation, const LossCurveStyle& style = {});

}  // namespace temper
