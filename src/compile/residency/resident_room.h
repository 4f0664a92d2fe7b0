// ResidentRoom: the bytes of a device at every node of given graphs, and which of the values that want to live there
// fit: for all of the time, or from the node on that makes them.
#pragma once

#include <span>
#include <vector>

#include "base/units.h"

namespace temper {

// Bytes of one value that are there from a node of each graph on, to that graph's end.
struct LastingBytes {
  Bytes bytes;
  std::span<const size_t> from;  // per graph: the node, or how many nodes it has
};

class ResidentRoom {
 public:
  // `free`: of the device, for residents and for `used`, what else is there at each node of each graph; where that is
  // more, it counts as all that is free.
  ResidentRoom(Bytes free, std::vector<std::vector<Bytes>> used);

  // Takes the room where there is so much at every node; else takes none and returns false.
  bool Take(Bytes always, const LastingBytes& lasting = {});

 private:
  Bytes free_;                            // of it, what those that are always there have left
  std::vector<std::vector<Bytes>> used_;  // per graph and node
  Bytes most_used_;
};

}  // namespace temper
