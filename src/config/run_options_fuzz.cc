// libFuzzer target: any bytes, read as a run.yaml or (after a first byte of 0) as a command line of NUL-separated
// arguments, are refused with a message or give a configuration that prints and reads back to itself.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "config/command_line.h"
#include "config/option_yaml.h"
#include "config/run_options.h"

namespace {

std::vector<std::string> Values(const temper::OptionSet& options) {
  std::vector<std::string> values;
  for (const temper::OptionGroup& group : options.groups()) {
    for (const temper::Option& option : group.options) values.push_back(temper::ValueAsYaml(option));
  }
  return values;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Made once: the options take longer to make than most inputs to read.
  static temper::RunConfig config;
  static const temper::OptionSet options = temper::RunOptions(config);
  static const std::vector<std::string> untouched = Values(options);

  const std::string_view text(reinterpret_cast<const char*>(data), size);
  config = temper::RunConfig();
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
  // Also after an error: settings made before it must be valid. Those that are as they were take most of the time to
  // read.
  const std::vector<std::string> values = Values(options);
  std::string changed;
  size_t i = 0;
  for (const temper::OptionGroup& group : options.groups()) {
    for (const temper::Option& option : group.options) {
      if (values[i] != untouched[i]) changed += option.name + ": " + values[i] + "\n";
      ++i;
    }
  }
  if (changed.empty()) return 0;
  config = temper::RunConfig();
  if (!temper::ReadYamlOptions(changed, "saved.yaml", options).ok()) std::abort();
  if (Values(options) != values) std::abort();
  return 0;
}
