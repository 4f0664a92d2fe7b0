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
  throw TemplateError(StatusCode::kOutOfMemory, "the template takes too many steps: it seems to loop forever");
}
void Budget::OutOfBytes() {
  throw TemplateError(StatusCode::kOutOfMemory,
                      "the template builds or searches too much text and data: it seems to loop forever");
}
void Budget::TextTooLong() {
  throw TemplateError(StatusCode::kOutOfMemory, "the template builds a text that is too long");
}

}  // namespace temper::jinja
