// libFuzzer target: any bytes as the text of a Program or of a Graph are refused, or verify and print what reads back.
#include <cstdint>
#include <cstdlib>

#include "program/program.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto program = ReadProgram(text); program.ok()) {
    const std::string printed = PrintProgram(*program);
    const auto again = ReadProgram(printed);
    if (!again.ok() || PrintProgram(*again) != printed) std::abort();
    (void)CostOfStep(*program);
  } else if (program.status().message().empty()) {
    std::abort();
  }
  if (const auto graph = ReadGraph(text); graph.ok()) {
    const std::string printed = PrintGraph(*graph);
    const auto again = ReadGraph(printed);
    if (!again.ok() || PrintGraph(*again) != printed) std::abort();
    for (const Node& node : graph->nodes()) {
      (void)CostOf(*graph, node);
      if (WorkspaceOf(*graph, node, kMaxThreads).v < 0) std::abort();
    }
  } else if (graph.status().message().empty()) {
    std::abort();
  }
  return 0;
}
