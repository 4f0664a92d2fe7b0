// Status and Result<T>: how Temper reports errors of the outside world (files, configuration, peers, memory).
// Bugs are not errors: they end in TEMPER_CHECK (base/check.h).
//
// A message says what is wrong, where (file, line, tensor, rank) and the remedy. Success allocates nothing.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace temper {

enum class StatusCode : unsigned char {
  kOk,
  kInvalidArgument,  // the user's configuration or command line
  kNotFound,         // a file, folder or tensor that should be there
  kCorrupt,          // a file whose content contradicts itself
  kUnsupported,      // valid, but not something Temper can do
  kOutOfMemory,      // a plan does not fit, or an allocation was refused
  kIo,               // the operating system failed a read or write
  kNumerical,        // NaN or Inf where a number is needed
  kInterrupted,      // asked to stop (signal)
  kInUse,            // held by another process; the same may work later
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message)
      : rep_(code == StatusCode::kOk ? nullptr : std::make_unique<Rep>(Rep{code, std::move(message)})) {}
  Status(const Status& o) : rep_(o.rep_ ? std::make_unique<Rep>(*o.rep_) : nullptr) {}
  Status& operator=(const Status& o) {
    if (this != &o) rep_ = o.rep_ ? std::make_unique<Rep>(*o.rep_) : nullptr;
    return *this;
  }
  Status(Status&&) noexcept = default;
  Status& operator=(Status&&) noexcept = default;

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return rep_ ? rep_->code : StatusCode::kOk; }
  const std::string& message() const;

  // The same error with `context` in front: "while loading X: ...". OK stays OK.
  Status WithContext(const std::string& context) const;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  std::unique_ptr<Rep> rep_;
};

inline Status OkStatus() {
  return {};
}
Status InvalidArgument(std::string message);
Status NotFound(std::string message);
Status Corrupt(std::string message);
Status Unsupported(std::string message);
Status OutOfMemory(std::string message);
Status IoError(std::string message);
Status Numerical(std::string message);
Status Interrupted(std::string message);
Status InUse(std::string message);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Status error) : state_(std::in_place_index<1>, std::move(error)) {
    TEMPER_CHECK(!std::get<1>(state_).ok()) << "a Result made from an OK status has no value";
  }

  bool ok() const { return state_.index() == 0; }
  Status status() const { return ok() ? Status() : std::get<1>(state_); }

  // REQUIRES: ok().
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(value()); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& value() {
    TEMPER_CHECK(ok()) << std::get<1>(state_).message();
    return std::get<0>(state_);
  }
  const T& value() const { return const_cast<Result*>(this)->value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace temper

#define TEMPER_CONCAT_INNER(a, b) a##b
#define TEMPER_CONCAT(a, b) TEMPER_CONCAT_INNER(a, b)

// Returns the error of `expr` (a Status) to the caller.
#define TEMPER_RETURN_IF_ERROR(expr)                 \
  do {                                               \
    ::temper::Status temper_status_ = (expr);        \
    if (!temper_status_.ok()) return temper_status_; \
  } while (false)

// TEMPER_ASSIGN_OR_RETURN(auto file, OpenFile(path));
#define TEMPER_ASSIGN_OR_RETURN(lhs, expr) \
  TEMPER_ASSIGN_OR_RETURN_IMPL(TEMPER_CONCAT(temper_result_, __LINE__), lhs, expr)
#define TEMPER_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) return tmp.status();                \
  lhs = std::move(*tmp)  // NOLINT(bugprone-macro-parentheses): it may declare a variable
