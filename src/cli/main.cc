#include <string>
#include <vector>

#include "base/process_limits.h"
#include "base/standard_streams.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  temper::OpenMissingStreams();
  temper::ReportReachedLimits();
  return temper::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc));
}
