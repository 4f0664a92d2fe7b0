// Pickle: what a pickle of protocol 2 to 5 describes, as data. Nothing in it runs: a call is a value that names what
// would be called and with what, and only names on the caller's list may occur. So no pickle, whatever it says, does
// more than take memory, of which a value has 16 bytes.
//
// Values may be shared and, in a hostile pickle, contain themselves: who walks them bounds the depth. The opcodes:
// Lib/pickletools.py of CPython.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

// A name that a pickle may refer to.
struct PickleGlobal {
  std::string_view module, name;
  bool makes_dict = false;  // called, it is a dict, to which items are added
};

class Pickle {
 public:
  // A checkpoint of 40,000 tensors has a million values. Larger pickles are refused.
  static constexpr int64_t kMostValues = 1'000'000;

  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInt,
    kFloat,  // its number is not kept
    kText,   // also bytes, and integers of more than 64 bits
    kTuple,  // also frozen sets
    kList,   // also sets
    kDict,
    kGlobal,
    kCall,
    kPersistent,  // an object that lies outside of the pickle
  };
  using Ref = uint32_t;  // of a value

  // Reads one pickle from the front of `bytes`, which must outlive it. Errors, which begin with `path`: kCorrupt (it
  // ends early, or no pickler writes it), kUnsupported (a name that is not in `allowed`; protocols 0 and 1; too large).
  static Result<Pickle> Read(std::string_view bytes, std::span<const PickleGlobal> allowed, const std::string& path);

  int64_t size() const { return size_; }  // bytes that the pickle has
  Ref root() const { return root_; }

  Kind kind(Ref v) const { return values_[v].kind; }
  // REQUIRES, of these: a value of that kind.
  int64_t Int(Ref v) const { return values_[v].at; }     // kInt, kBool
  std::string_view Text(Ref v) const;                    // not checked to be UTF-8
  std::span<const Ref> Items(Ref v) const;               // kTuple, kList; kDict: key, value, key, value, ...
  int64_t Global(Ref v) const { return values_[v].at; }  // an index of `allowed`
  Ref Callee(Ref v) const { return values_[v].n; }       // kCall: a kGlobal
  Ref Argument(Ref v) const { return static_cast<Ref>(values_[v].at); }  // kCall: a kTuple; kPersistent: its id

 private:
  friend class PickleReader;
  struct Value {
    Kind kind = Kind::kNone;
    uint32_t n = 0;  // kText: bytes. kTuple: items. kCall: the callee
    int64_t at = 0;  // kText: an offset in text_. kTuple: of tuples_. kList, kDict: of containers_
  };

  std::string_view text_;
  std::vector<Value> values_;
  std::vector<Ref> tuples_;                   // the items of all tuples
  std::vector<std::vector<Ref>> containers_;  // of lists and dicts
  Ref root_ = 0;
  int64_t size_ = 0;
};

}  // namespace temper
