// What every call through temper.h does around its work: its own log, and no exception out.
#pragma once

#include <cxxabi.h>

#include <exception>
#include <new>
#include <stop_token>
#include <string>
#include <system_error>
#include <utility>

#include "api/observer_log.h"
#include "api/stop_control.h"
#include "base/log.h"
#include "base/status.h"

namespace temper {

// Calls `work`, whose result is a Status or a Result; what it says goes to `log`. What the library or the system throws
// (no memory, no threads) becomes an error.
template <class Work>
auto ThroughDoor(ObserverLog& log, Work work) -> decltype(work()) {
  const LogScope scope(log);
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return OutOfMemory("the system refused an allocation; free some memory, or raise the process's limit");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      return Unsupported("the system refused a thread: this user or cgroup has too many; use fewer (threads)");
    }
    return IoError(error.what());
  } catch (const std::exception& error) {
    return Unsupported(std::string("an exception that neither temper nor the observer handled: ") + error.what());
  } catch (const abi::__forced_unwind&) {  // the thread is being cancelled
    throw;
  } catch (...) {
    return Unsupported("an exception that neither temper nor the observer handled");
  }
}

class StopByToken final : public StopControl {
 public:
  explicit StopByToken(std::stop_token token) : token_(std::move(token)) {}
  bool Asked() const override { return token_.stop_requested(); }

 private:
  const std::stop_token token_;
};

}  // namespace temper
