#include <algorithm>
#include <string>
#include <vector>

#include "base/process_limits.h"
#include "base/program_name.h"
#include "base/standard_streams.h"
#include "cli/commands.h"

int main(int argc, char** argv) {
  temper::OpenMissingStreams();
  temper::ReportReachedLimits();
  if (argc > 0) temper::SetProgramName(argv[0]);
  return temper::RunCommandLine(std::vector<std::string>(argv + std::min(argc, 1), argv + argc));
}
