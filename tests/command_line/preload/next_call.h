// For libraries loaded before the C library (LD_PRELOAD) that replace its calls.
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

// The call that this one stands before.
template <class F>
F Next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

// A variable of the environment; "" if it is not set.
inline const char* Setting(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}
