// ResidentRoom: the free bytes of a device at every node of given graphs; tells whether a value fits, for the whole
// time or from the node on that creates it.
#pragma once

#include <span>
#include <vector>

#include "base/units.h"

namespace temper {

// Bytes of one value that exists in each graph from one node to the end.
struct LastingBytes {
  Bytes bytes;
  std::span<const size_t> from;  // per graph: the node, or the number of nodes if it does not exist there
};

class ResidentRoom {
 public:
  // `free`: bytes of the device for residents and for `used`, the other
  // bytes at each node of each graph, which count at most as `free`.
  ResidentRoom(Bytes free, std::vector<std::vector<Bytes>> used);

  // Takes the room if every node has enough; else takes none and returns false.
  bool Take(Bytes always, const LastingBytes& lasting = {});

 private:
  Bytes free_;                            // bytes that permanent residents have left
  std::vector<std::vector<Bytes>> used_;  // per graph and node
  Bytes most_used_;
};

}  // namespace temper
