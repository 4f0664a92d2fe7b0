#include "train/loss_curve.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

namespace temper {
namespace {

using Points = std::span<const std::pair<int64_t, double>>;

constexpr int kLabelColumns = 9;  // "  12.3456 " without the axis
constexpr int kLeastPlot = 8;

struct Bounds {
  int64_t first_step = INT64_MAX, last_step = INT64_MIN;
  double low = INFINITY, high = -INFINITY;

  void Add(Points points) {
    for (const auto& [step, loss] : points) {
      if (!std::isfinite(loss)) continue;
      first_step = std::min(first_step, step);
      last_step = std::max(last_step, step);
      low = std::min(low, loss);
      high = std::max(high, loss);
    }
  }
};

class Canvas {
 public:
  // Dots are addressed from the lower left.
  Canvas(int columns, int rows, bool unicode)
      : columns_(columns),
        rows_(rows),
        dots_per_column_(unicode ? 2 : 1),
        dots_per_row_(unicode ? 4 : 1),
        unicode_(unicode),
        dots_(static_cast<size_t>(width()) * static_cast<size_t>(height())),
        marks_(static_cast<size_t>(columns) * static_cast<size_t>(rows)) {}

  int width() const { return columns_ * dots_per_column_; }
  int height() const { return rows_ * dots_per_row_; }

  void Dot(int x, int y) { dots_[Index(x, y)] = true; }
  void Mark(int x, int y) { marks_[Cell(x / dots_per_column_, y / dots_per_row_)] = true; }

  // `row` from the top.
  std::string Row(int row) const {
    std::string out;
    for (int column = 0; column < columns_; ++column) {
      const int y = rows_ - 1 - row;
      out += marks_[Cell(column, y)] ? "o" : unicode_ ? Braille(column, y) : dots_[Index(column, y)] ? "*" : " ";
    }
    while (out.ends_with(' ')) out.pop_back();
    return out;
  }

 private:
  size_t Index(int x, int y) const {
    return static_cast<size_t>(y) * static_cast<size_t>(width()) + static_cast<size_t>(x);
  }
  size_t Cell(int column, int y) const {
    return static_cast<size_t>(y) * static_cast<size_t>(columns_) + static_cast<size_t>(column);
  }

  std::string Braille(int column, int cell_y) const {
    // Bits of U+2800 by dot, from the lower left upwards, then the right half.
    constexpr int kBits[2][4] = {{0x40, 0x04, 0x02, 0x01}, {0x80, 0x20, 0x10, 0x08}};
    int bits = 0;
    for (int dx = 0; dx < 2; ++dx) {
      for (int dy = 0; dy < 4; ++dy) {
        if (dots_[Index(column * 2 + dx, cell_y * 4 + dy)]) bits |= kBits[dx][dy];
      }
    }
    if (bits == 0) return " ";
    // UTF-8 of U+2800 + bits.
    return {'\xE2', static_cast<char>(0xA0 | (bits >> 6)), static_cast<char>(0x80 | (bits & 0x3F))};
  }

  const int columns_, rows_, dots_per_column_, dots_per_row_;
  const bool unicode_;
  std::vector<bool> dots_;
  std::vector<bool> marks_;
};

int Position(double value, double low, double high, int cells) {
  if (!(high > low)) return 0;
  const double part = (value - low) / (high - low);
  return std::clamp(static_cast<int>(std::lround(part * (cells - 1))), 0, cells - 1);
}

int StepPosition(int64_t step, const Bounds& b, int cells) {
  return Position(static_cast<double>(step), static_cast<double>(b.first_step), static_cast<double>(b.last_step),
                  cells);
}

void DrawLine(Points points, const Bounds& b, Canvas& canvas) {
  std::vector<double> sum(static_cast<size_t>(canvas.width()));
  std::vector<int> count(sum.size());
  for (const auto& [step, loss] : points) {
    if (!std::isfinite(loss)) continue;
    const auto x = static_cast<size_t>(StepPosition(step, b, canvas.width()));
    sum[x] += loss;
    ++count[x];
  }
  std::optional<std::pair<int, int>> before;
  for (int x = 0; x < canvas.width(); ++x) {
    const auto i = static_cast<size_t>(x);
    if (count[i] == 0) continue;
    const int y = Position(sum[i] / count[i], b.low, b.high, canvas.height());
    canvas.Dot(x, y);
    // Joins this point to the previous one, stepping along the longer side.
    if (before) {
      const auto [x0, y0] = *before;
      const int steps = std::max(x - x0, std::abs(y - y0));
      for (int k = 1; k < steps; ++k) {
        const double part = static_cast<double>(k) / steps;
        canvas.Dot(x0 + static_cast<int>(std::lround(part * (x - x0))),
                   y0 + static_cast<int>(std::lround(part * (y - y0))));
      }
    }
    before = {x, y};
  }
}

std::string Label(double v) {
  const double size = std::abs(v);
  return size != 0 && (size < 1e-3 || size >= 1e5) ? fmt::format("{:.1e}", v) : fmt::format("{:.4g}", v);
}

}  // namespace

std::string DrawLossCurve(Points training, Points evaluation, const LossCurveStyle& style) {
  Bounds bounds;
  bounds.Add(training);
  bounds.Add(evaluation);
  if (bounds.first_step >= bounds.last_step) return "";
  const int columns = std::max(kLeastPlot, style.width - kLabelColumns - 2);
  const int rows = std::max(2, style.height);
  Canvas canvas(columns, rows, style.unicode);
  DrawLine(training, bounds, canvas);
  for (const auto& [step, loss] : evaluation) {
    if (!std::isfinite(loss)) continue;
    canvas.Mark(StepPosition(step, bounds, canvas.width()), Position(loss, bounds.low, bounds.high, canvas.height()));
  }
  std::string out;
  for (int row = 0; row < rows; ++row) {
    const bool labelled = row == 0 || row == rows - 1 || row == rows / 2;
    const double value = bounds.high - (bounds.high - bounds.low) * row / (rows - 1);
    out += fmt::format("{:>{}} {}{}\n", labelled ? Label(value) : "", kLabelColumns, style.unicode ? "┤" : "|",
                       canvas.Row(row));
  }
  const std::string first = fmt::format("{}", bounds.first_step), last = fmt::format("step {}", bounds.last_step);
  std::string axis;
  for (int i = 0; i < columns; ++i) axis += style.unicode ? "─" : "-";
  out += std::string(kLabelColumns + 1, ' ') + (style.unicode ? "└" : "+") + axis + "\n";
  const int gap = std::max(1, columns - static_cast<int>(first.size() + last.size()));
  out += std::string(kLabelColumns + 2, ' ') + first + std::string(static_cast<size_t>(gap), ' ') + last + "\n";
  if (!evaluation.empty() && !training.empty()) {
    out += std::string(kLabelColumns + 2, ' ') +
           (style.unicode ? "line: loss, o: eval_loss\n" : "*: loss, o: eval_loss\n");
  }
  return out;
}

}  // namespace temper
