#include "settings/data_sources.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace temper {

std::string PathsOf(const DataSources& sources) {
  std::vector<std::string> paths;
  for (const DataSource& source : sources) paths.push_back(source.path);
  return fmt::format("{}", fmt::join(paths, ", "));
}

bool SameUse(const DataSources& a, const DataSources& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const DataSource& x, const DataSource& y) {
    return x.passes == y.passes && x.max_samples == y.max_samples && x.columns == y.columns && x.roles == y.roles;
  });
}

}  // namespace temper
