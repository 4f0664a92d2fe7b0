#include "config/import_shares.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/foreign_rows.h"
#include "config/names_without_option.h"
#include "format/json.h"

namespace temper {
namespace {

// The rows of a file of JSON, up to the size of which they are counted.
std::optional<int64_t> RowsOf(Env& env, const DataSource& file) {
  constexpr Bytes kMostRead = MiB(256);
  const bool lines = file.path.ends_with(".jsonl");
  if (!env.IsFile(file.path) || !(lines || file.path.ends_with(".json"))) return std::nullopt;
  const auto text = ReadTextFile(env, file.path, kMostRead);
  if (!text.ok()) return std::nullopt;
  int64_t rows = 0;
  if (lines) {
    for (size_t at = 0; at < text->size();) {
      const size_t end = std::min(text->find('\n', at), text->size());
      rows += text->find_first_not_of(" \t\r", at) < end;
      at = end + 1;
    }
  } else {
    const auto list = ParseOrderedJson(*text, file.path);
    if (!list.ok() || !list->is_array()) return std::nullopt;
    rows = static_cast<int64_t>(list->size());
  }
  rows = std::min(rows, file.max_samples.value_or(rows));
  return rows > 0 ? std::optional(rows) : std::nullopt;
}

// Of "0.7,0.3", or a list of numbers; of `count` equal ones without. nullopt: they are no shares of so many.
std::optional<std::vector<double>> Probabilities(const ForeignSetting* setting, size_t count) {
  if (setting == nullptr) return std::vector<double>(count, 1 / static_cast<double>(count));
  std::vector<double> shares;
  if (setting->value.is_array()) {
    for (const OrderedJson& one : setting->value) shares.push_back(one.is_number() ? one.get<double>() : 0);
  } else {
    for (const std::string& one : NamesIn(setting->value)) shares.push_back(std::strtod(one.c_str(), nullptr));
  }
  double sum = 0;
  for (const double share : shares) sum += share > 0 ? share : std::nan("");
  const bool whole = std::abs(sum - 1) < 1e-3;
  return whole && shares.size() == count ? std::optional(shares) : std::nullopt;
}

}  // namespace

void TakeShares(Translation&, const ForeignSetting&, const ForeignName&) {}  // TranslateShares

void TranslateShares(Translation& run) {
  const ForeignSetting* const strategy = run.Given("mix_strategy");
  const ForeignSetting* const given = run.Given("interleave_probs");
  const std::string mix = strategy == nullptr ? "concat" : strategy->Text();
  const bool under = mix == "interleave_under", over = mix == "interleave_over";
  if (mix == "interleave_once") {
    run.Needless(*strategy, "each sample is seen once an epoch, in any order");
    if (given != nullptr) run.Needless(*given, "each sample is seen once an epoch, in any order");
    return;
  }
  DataSources& files = run.config.data.data;
  std::vector<int64_t> rows;
  if (under || over) {
    for (const DataSource& file : files) {
      if (const auto counted = RowsOf(run.env(), file); counted && file.passes == 1) rows.push_back(*counted);
    }
  }
  const auto shares = Probabilities(given, files.size());
  if (!shares || files.empty() || rows.size() != files.size()) {
    if (strategy != nullptr && mix != "concat") run.Lost(*strategy, kSharesOfData);
    if (given != nullptr && !run.SaysNothing(*given)) run.Lost(*given, kSharesOfData);
    return;
  }
  // Samples are drawn by their share until the first data set ends, or the last one.
  std::vector<double> draws, passes;
  for (size_t i = 0; i < files.size(); ++i) draws.push_back(static_cast<double>(rows[i]) / (*shares)[i]);
  const auto [least, most] = std::minmax_element(draws.begin(), draws.end());
  for (size_t i = 0; i < files.size(); ++i) {
    passes.push_back(std::round(1e4 * (under ? *least : *most) / draws[i]) / 1e4);
    files[i].passes = std::max(passes.back(), 1e-4);
  }
  run.Changed(*strategy,
              fmt::format("the files' passes an epoch are {}, of {} rows, which gives these shares; which samples "
                          "an epoch takes is drawn otherwise",
                          fmt::join(passes, ", "), fmt::join(rows, ", ")));
  if (given != nullptr) run.Changed(*given, "in the files' passes");
}

}  // namespace temper
