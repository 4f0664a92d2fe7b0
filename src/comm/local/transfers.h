// Transfers: send and recv between two ranks of one host. The receiver copies straight out of the sender's arena into
// its own; the sender may reuse its memory when send returns. Transfers of a pair keep their order.
//
// Thread rule: one thread that sends and one that receives, beside the one that runs collectives. Allocates nothing.
#pragma once

#include <cstddef>
#include <cstdint>

#include "comm/local/peer_wait.h"
#include "comm/local/shared_arenas.h"

namespace temper {

class Transfers {
 public:
  Transfers(const ControlBlock& control, SharedArenas& arenas, int self, bool processes)
      : control_(control),
        arenas_(arenas),
        self_(self),
        sends_(control, self, Lane::kSends, processes),
        receives_(control, self, Lane::kReceives, processes) {}

  // Returns when rank `peer` of this host has copied `bytes`. `fingerprint`: both ends must give the same.
  Status Send(int peer, const std::byte* bytes, uint64_t fingerprint);
  Status Receive(int peer, std::byte* bytes, Bytes size, uint64_t fingerprint);

 private:
  void Ring(int peer, Lane lane);

  const ControlBlock control_;
  SharedArenas& arenas_;
  const int self_;
  PeerWait sends_, receives_;
};

}  // namespace temper
