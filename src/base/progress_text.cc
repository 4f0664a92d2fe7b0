#include "base/progress_text.h"

#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

namespace temper {
namespace {

constexpr int kLeastBar = 6;  // columns; a narrower one is useless
constexpr int kMostBar = 30;  // a wider one does not help

std::string Loss(double v) {
  return fmt::format("{:.4f}", v);
}

// "1.9e-04": two digits of learning rates and norms are enough.
std::string Compact(double v) {
  if (v == 0 || !std::isfinite(v)) return fmt::format("{}", v);
  const double size = std::abs(v);
  return size >= 0.01 && size < 1000 ? fmt::format("{:.3g}", v) : fmt::format("{:.1e}", v);
}

// 950, 9,500, 1.25M
std::string Rate(double v) {
  if (!std::isfinite(v)) return fmt::format("{}", v);
  if (v >= 1e6) return fmt::format("{:.2f}M", v / 1e6);
  const auto whole = static_cast<int64_t>(v + 0.5);
  return whole >= 1000 ? fmt::format("{},{:03}", whole / 1000, whole % 1000) : fmt::format("{}", whole);
}

double DoneFraction(const ProgressState& s) {
  if (s.total_steps <= 0) return 0;
  return std::clamp(static_cast<double>(s.step) / static_cast<double>(s.total_steps), 0.0, 1.0);
}

std::string Bar(double fraction, int columns, bool unicode) {
  if (!unicode) {
    const int full = static_cast<int>(fraction * columns);
    return std::string(static_cast<size_t>(full), '#') + std::string(static_cast<size_t>(columns - full), '.');
  }
  const char* const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int parts = static_cast<int>(fraction * columns * 8);
  std::string out;
  for (int i = 0; i < parts / 8; ++i) out += "█";
  out += eighths[parts % 8];
  return out + std::string(static_cast<size_t>(columns - (parts + 7) / 8), ' ');
}

// "120/480", "1.20 GiB/12.55 GiB"
std::string Done(const ProgressState& s) {
  if (!s.in_bytes) return fmt::format("{}/{}", s.step, s.total_steps);
  return fmt::format("{}/{}", ToString(Bytes{s.step}), ToString(Bytes{s.total_steps}));
}

struct Figure {
  int importance;  // 0 stays longest
  std::string text;
};

std::vector<Figure> Figures(const ProgressState& s) {
  std::vector<Figure> out;
  if (s.rows) out.push_back({0, Rate(static_cast<double>(*s.rows)) + " rows"});
  if (s.loss) out.push_back({0, "loss " + Loss(*s.loss)});
  for (const NamedNumber& r : s.reports) out.push_back({3, fmt::format("{} {}", r.name, Compact(r.value))});
  if (s.grad_norm) out.push_back({4, "grad " + Compact(*s.grad_norm)});
  if (s.learning_rate) out.push_back({5, "lr " + Compact(*s.learning_rate)});
  if (s.tokens_per_second) out.push_back({2, Rate(*s.tokens_per_second) + " tok/s"});
  if (s.mfu) out.push_back({3, fmt::format("MFU {:.0f}%", *s.mfu * 100)});
  if (s.memory.v > 0) out.push_back({6, ToString(s.memory)});
  if (s.eta && s.eta->v >= 0.5) out.push_back({1, "ETA " + ToString(*s.eta)});
  return out;
}

}  // namespace

std::string ProgressBar(const ProgressState& state, int width, bool unicode) {
  const std::string head = fmt::format("{} {} ", state.what, Done(state));
  const std::string percent = fmt::format("{:3.0f}%", std::floor(DoneFraction(state) * 100));
  std::vector<Figure> figures = Figures(state);
  const auto columns_of = [&] {                         // of everything except the bar; all ASCII
    size_t columns = head.size() + percent.size() + 3;  // "[", "] "
    for (const Figure& f : figures) columns += 2 + f.text.size();
    return static_cast<int>(columns);
  };
  while (!figures.empty() && columns_of() + kLeastBar > width) {
    figures.erase(std::max_element(figures.begin(), figures.end(),
                                   [](const Figure& a, const Figure& b) { return a.importance < b.importance; }));
  }
  const int bar = std::min(kMostBar, width - columns_of());
  std::string out = head;
  if (bar >= kLeastBar) {
    // With eighths of a column the bar needs no brackets; '|' aligns uneven fonts.
    out += (unicode ? "|" : "[") + Bar(DoneFraction(state), bar, unicode) + (unicode ? "| " : "] ");
  }
  out += percent;
  for (const Figure& f : figures) out += "  " + f.text;
  const auto most = static_cast<size_t>(std::max(width, 0));
  if (bar < kLeastBar && out.size() > most) out.resize(most);
  return out;
}

std::string ProgressLine(const ProgressState& s) {
  std::string out = fmt::format("{} {}{}", s.what, s.epoch ? "step " : "", Done(s));
  if (s.epoch) out += fmt::format("  epoch {:.2f}", *s.epoch);
  for (const Figure& f : Figures(s)) out += "  " + f.text;
  return out;
}

bool LocaleIsUtf8() {
  for (const char* const name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* const value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string text(value);
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    return text.find("utf-8") != text.npos || text.find("utf8") != text.npos;
  }
  return false;
}

std::optional<int> ColumnsOf(int file) {
  winsize size{};
  if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

int TerminalWidth() {
  return ColumnsOf(STDERR_FILENO).value_or(80);
}

}  // namespace temper
