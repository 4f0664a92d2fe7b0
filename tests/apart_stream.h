// The handle of a stream of the apart device (Stream::handle()), for libraries that enqueue on it. Plain C, for a
// library that replaces a vendor's.
#pragma once

struct ApartStreamHandle {
  void* stream;
  // Runs `work(argument)` in order on the stream, and then, or instead, always `drop(argument)`. If `work` returns
  // static text, not nullptr, that is the stream's error.
  void (*enqueue)(void* stream, const char* (*work)(void*), void (*drop)(void*), void* argument);
  // The host's address of device or pinned memory; nullptr for any other address.
  void* (*memory_at)(void* stream, const void* address);
  // Called by `work`: later events of the stream say that this much more time has passed. nullptr: no events have other
  // times than the host's clock.
  void (*pass_time)(void* stream, double seconds) = nullptr;
};
