// What a stream of the apart device is to a library that enqueues on it: Stream::handle(). Plain C, for a library that
// stands in for a vendor's.
#pragma once

struct ApartStreamHandle {
  void* stream;
  // `work(argument)` is run when its turn comes; `drop(argument)` always, after it or instead of it. What `work`
  // returns is the stream's error where it is not nullptr: static text.
  void (*enqueue)(void* stream, const char* (*work)(void*), void (*drop)(void*), void* argument);
  // Where the memory behind an address of the device, or of pinned memory, is in truth; nullptr: it is neither.
  void* (*memory_at)(void* stream, const void* address);
};
