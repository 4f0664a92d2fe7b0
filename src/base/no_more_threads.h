// For tests: while one lives, no thread can be started in this process, as when a limit on processes is reached
// (RLIMIT_NPROC itself does not bind root). New threads ask for a stack that no address space can hold.
#pragma once

#include <pthread.h>

#include "base/check.h"

namespace temper {

class NoMoreThreads {
 public:
  NoMoreThreads() {
    TEMPER_CHECK(pthread_getattr_default_np(&before_) == 0) << "no default attributes";
    pthread_attr_t huge;
    TEMPER_CHECK(pthread_getattr_default_np(&huge) == 0 && pthread_attr_setstacksize(&huge, size_t{1} << 47) == 0 &&
                 pthread_setattr_default_np(&huge) == 0)
        << "the default stack size cannot be set";
    pthread_attr_destroy(&huge);
  }
  ~NoMoreThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace temper
