#include "settings/mesh.h"

namespace temper {

std::string_view ToString(PipelineKind kind) {
  constexpr std::string_view kNames[] = {"1f1b", "interleaved", "zero_bubble", "gpipe"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace temper
