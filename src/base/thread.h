// StartThread: how Temper starts a thread, so that what it says goes where what its starter says goes (base/log.h).
// tools/check_threads.py finds threads that are started otherwise.
#pragma once

#include <thread>
#include <utility>

#include "base/log.h"

namespace temper {

// Throws std::system_error if the system refuses a thread, as std::thread does.
template <class F>
std::thread StartThread(F work) {
  return std::thread([log = &CurrentLog(), work = std::move(work)]() mutable {
    const LogScope scope(*log);
    work();
  });
}

// The same for `work(stop_token)`, which the result's destructor asks to stop and waits for.
template <class F>
std::jthread StartStoppableThread(F work) {
  return std::jthread([log = &CurrentLog(), work = std::move(work)](const std::stop_token& stop) mutable {
    const LogScope scope(*log);
    work(stop);
  });
}

}  // namespace temper
