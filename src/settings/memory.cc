#include "settings/memory.h"

namespace temper {

std::string_view ToString(Recompute mode) {
  switch (mode) {
    case Recompute::kAuto:
      return "auto";
    case Recompute::kNone:
      return "none";
    case Recompute::kSelective:
      return "selective";
    case Recompute::kBlock:
      return "block";
  }
  return "";
}

}  // namespace temper
