// StartThread: how Temper starts a thread, so that what it says goes where what its starter says goes (base/log.h).
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

}  // namespace temper
