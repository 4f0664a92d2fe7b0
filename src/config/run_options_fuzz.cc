// libFuzzer target: any bytes, read as a run.yaml or (after a first byte of 0) as a command line of NUL-separated
// arguments, are refused with a message or give a configuration that prints and reads back to itself.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "config/command_line.h"
#include "config/option_yaml.h"
#include "config/run_options.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Made once: the options take longer to make than most inputs to read.
  static temper::RunConfig config;
  static const temper::OptionSet options = temper::RunOptions(config);
  static const std::string untouched = temper::PrintYamlOptions(options);

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
  // Also after an error: settings made before it must be valid.
  const std::string printed = temper::PrintYamlOptions(options);
  if (size > 0 && printed == untouched) return 0;
  config = temper::RunConfig();
  if (!temper::ReadYamlOptions(printed, "saved.yaml", options).ok()) std::abort();
  if (temper::PrintYamlOptions(options) != printed) std::abort();
  return 0;
}
