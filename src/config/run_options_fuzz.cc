// libFuzzer target: any bytes, read as a run.yaml or (after a first byte of 0) as a command line of NUL-separated
// arguments, are refused with a message or give a configuration that prints and reads back to itself.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "config/command_line.h"
#include "config/option_yaml.h"
#include "config/run_options.h"

namespace {

using temper::Option;
using temper::OptionGroup;

std::vector<const Option*> All(const temper::OptionSet& options) {
  std::vector<const Option*> all;
  for (const OptionGroup& group : options.groups()) {
    for (const Option& option : group.options) all.push_back(&option);
  }
  return all;
}

// Whether the same option of two configurations prints differently. Most values are the same and need not be printed.
bool Differ(const Option& a, const Option& b) {
  const bool same = std::visit(
      [&](const auto& x) {
        using T = std::decay_t<decltype(x)>;
        const T& y = std::get<T>(b.target);
        if constexpr (std::is_same_v<T, temper::Choice>) {
          return x.get() == y.get();
        } else if constexpr (std::is_same_v<T, temper::OptionalText>) {
          return *x.value == *y.value;
        } else if constexpr (std::is_same_v<T, temper::JsonObject*>) {
          return x->text == y->text;
        } else if constexpr (std::is_same_v<T, temper::Repeatable>) {
          return false;
        } else {
          return *x == *y;
        }
      },
      a.target);
  return !same && temper::ValueAsYaml(a) != temper::ValueAsYaml(b);
}

// A configuration and its options. Made once: the options take longer to make than most inputs to read.
struct Configured {
  temper::RunConfig config;
  const temper::OptionSet options = temper::RunOptions(config);
  const std::vector<const Option*> all = All(options);
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Configured untouched;
  static Configured read, before;
  temper::RunConfig& config = read.config;
  const temper::OptionSet& options = read.options;

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  config = untouched.config;
  temper::Status status;
  if (text.starts_with('\0')) {
    std::vector<std::string> arguments;
    for (size_t at = 1; at < text.size();) {
      const size_t end = std::min(text.find('\0', at), text.size());
      arguments.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
    const temper::Result<temper::CommandLine> line = temper::ReadCommandLine(arguments, options);
    status = line.ok() ? temper::ApplyCommandLine(*line, options) : line.status();
  } else {
    status = temper::ReadYamlOptions(text, "f.yaml", options);
  }
  if (!status.ok() && status.message().empty()) std::abort();
  // Also after an error: settings made before it must be valid.
  std::string changed;
  for (size_t i = 0; i < read.all.size(); ++i) {
    const Option& option = *read.all[i];
    if (Differ(option, *untouched.all[i])) changed += option.name + ": " + temper::ValueAsYaml(option) + "\n";
  }
  if (changed.empty()) return 0;
  before.config = config;
  config = untouched.config;
  if (!temper::ReadYamlOptions(changed, "saved.yaml", options).ok()) std::abort();
  for (size_t i = 0; i < read.all.size(); ++i) {
    if (Differ(*read.all[i], *before.all[i])) std::abort();
  }
  return 0;
}
