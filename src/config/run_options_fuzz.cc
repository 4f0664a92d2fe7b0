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
        } else if constexpr (std::is_same_v<T, temper::NumberOrAuto>) {
          return *x.number == *y.number && *x.is_auto == *y.is_auto;
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

// Of a configuration, the options that print differently from their defaults.
std::string Changed(const Configured& read, const Configured& untouched) {
  std::string changed;
  for (size_t i = 0; i < read.all.size(); ++i) {
    const Option& option = *read.all[i];
    if (Differ(option, *untouched.all[i])) changed += option.name + ": " + temper::ValueAsYaml(option) + "\n";
  }
  return changed;
}

temper::Status Read(std::string_view text, const temper::OptionSet& options) {
  if (!text.starts_with('\0')) return temper::ReadYamlOptions(text, "f.yaml", options);
  std::vector<std::string> arguments;
  for (size_t at = 1; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    arguments.emplace_back(text.substr(at, end - at));
    at = end + 1;
  }
  const temper::Result<temper::CommandLine> line = temper::ReadCommandLine(arguments, options);
  return line.ok() ? temper::ApplyCommandLine(*line, options) : line.status();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Configured untouched;
  static Configured read;

  const temper::Status status = Read({reinterpret_cast<const char*>(data), size}, read.options);
  if (!status.ok() && status.message().empty()) std::abort();
  // Also after an error: settings made before it must be valid.
  const std::string changed = Changed(read, untouched);
  if (!changed.empty()) {
    read.config = untouched.config;
    if (!temper::ReadYamlOptions(changed, "saved.yaml", read.options).ok()) std::abort();
    if (Changed(read, untouched) != changed) std::abort();
  }
  // Not at the next input: libFuzzer runs one twice, in search of a leak, that leaves more memory than it found.
  read.config = untouched.config;
  return 0;
}
