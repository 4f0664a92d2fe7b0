// Where this build found its sources, and where it writes: tests and benchmarks read goldens and load test libraries
// from there. One object file holds the paths (cmake/layers.cmake), so builds in different folders share ccache's
// files.
#pragma once

namespace temper {

extern const char kProjectFolder[];  // has src/ and tests/
extern const char kBuildFolder[];    // CMake's binary folder

}  // namespace temper
