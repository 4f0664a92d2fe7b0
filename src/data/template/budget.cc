#include "data/template/budget.h"

namespace temper::jinja {

thread_local Budget* Budget::current_ = nullptr;

void Fail(std::string message) {
  throw TemplateError(StatusCode::kInvalidArgument, std::move(message));
}
void FailUnsupported(std::string message) {
  throw TemplateError(StatusCode::kUnsupported, std::move(message));
}

void Budget::OutOfSteps() {
  Fail("the template takes too many steps: it looks like a loop without end");
}
void Budget::OutOfBytes() {
  Fail("the template builds or searches too much text and data: it looks like a loop without end");
}
void Budget::TextTooLong() {
  Fail("the template builds a text that is longer than allowed");
}

}  // namespace temper::jinja
