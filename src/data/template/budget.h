// The limits of a template's work, and its errors. A template and the data it renders are untrusted: every loop, every
// search and every new string is charged to the budget of the render that runs on this thread, so no template can hang
// the program or exhaust its memory.
//
// Inside this folder an error is thrown as a TemplateError (an interpreter of expressions would otherwise be mostly
// plumbing); Template::Parse and Template::Render catch it and return a Status. It never leaves the folder.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include "base/status.h"

namespace temper::jinja {

class TemplateError final : public std::exception {
 public:
  TemplateError(StatusCode code, std::string message, int line = 0)
      : code_(code), message_(std::move(message)), line_(line) {}
  const char* what() const noexcept override { return message_.c_str(); }
  StatusCode code() const { return code_; }
  int line() const { return line_; }  // of the template, from 1; 0 while not known
  void set_line(int line) { line_ = line; }

 private:
  StatusCode code_;
  std::string message_;
  int line_;
};

[[noreturn]] void Fail(std::string message);             // an error in the template, or in data that it cannot handle
[[noreturn]] void FailUnsupported(std::string message);  // valid Jinja or Python that this interpreter lacks

// What it does not cover is an error of code kOutOfMemory.
class Budget {
 public:
  Budget(int64_t steps, int64_t bytes, int64_t text_bytes) : steps_(steps), bytes_(bytes), text_bytes_(text_bytes) {}

  // Charges `n` elementary steps (one AST node, one element of a sequence) to this thread's render, if there is one.
  static void Step(int64_t n = 1) {
    if (current_ && (current_->steps_ -= n) < 0) OutOfSteps();
  }
  // Charges bytes that are created or searched.
  static void Charge(int64_t bytes) {
    if (current_ && (current_->bytes_ -= bytes) < 0) OutOfBytes();
  }
  // Fails if one string would be longer than allowed: call this before building it.
  static void CheckText(int64_t bytes) {
    if (current_ && bytes > current_->text_bytes_) TextTooLong();
  }

  // Makes `budget` this thread's for the life of the object.
  class Scope {
   public:
    explicit Scope(Budget& budget) : previous_(current_) { current_ = &budget; }
    ~Scope() { current_ = previous_; }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Budget* previous_;
  };

 private:
  [[noreturn]] static void OutOfSteps();
  [[noreturn]] static void OutOfBytes();
  [[noreturn]] static void TextTooLong();

  static thread_local Budget* current_;
  int64_t steps_;
  int64_t bytes_;
  const int64_t text_bytes_;
};

}  // namespace temper::jinja
