// libFuzzer target: any bytes, read as a run.yaml or (after a first byte of 0) as a command line of NUL-separated
// arguments, are refused with a message or give a configuration that prints and reads back to itself.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "config/command_line.h"
#include "config/run_options.h"

namespace {

void CheckReadsBack(const temper::RunConfig& config) {
  const std::string text = temper::PrintRunConfig(config);
  const temper::Result<temper::RunConfig> back = temper::ParseRunConfig(text, "saved.yaml");
  if (!back.ok() || temper::PrintRunConfig(*back) != text) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  temper::RunConfig config;
  temper::Status status;
  if (text.starts_with('\0')) {
    std::vector<std::string> arguments;
    for (size_t at = 1; at < text.size();) {
      const size_t end = std::min(text.find('\0', at), text.size());
      arguments.emplace_back(text.substr(at, end - at));
      at = end + 1;
    }
    const temper::OptionSet options = temper::RunOptions(config);
    const temper::Result<temper::CommandLine> line = temper::ReadCommandLine(arguments, options);
    status = line.ok() ? temper::ApplyCommandLine(*line, options) : line.status();
  } else {
    const temper::Result<temper::RunConfig> read = temper::ParseRunConfig(text, "f.yaml");
    if (read.ok()) config = *read;
    status = read.status();
  }
  if (!status.ok() && status.message().empty()) std::abort();
  // Also after an error: settings made before it must be valid.
  CheckReadsBack(config);
  return 0;
}
