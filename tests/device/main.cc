// With --temper ARGUMENTS... this is the temper program, on the GPU of apart_gpu.cc; else the tests, which start it.
#include <gtest/gtest.h>

#include <string_view>

#include "cli/commands.h"

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "--temper") return temper::RunCommandLine({argv + 2, argv + argc});
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
