#include "base/host_name.h"

#include <unistd.h>

#include <cstdlib>

namespace temper {

std::string HostName() {
  if (const char* const node = std::getenv("SLURMD_NODENAME"); node != nullptr && node[0] != '\0') return node;
  char name[256] = {};
  if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') return "localhost";
  return name;
}

}  // namespace temper
