#include "base/status.h"

namespace temper {

const std::string& Status::message() const {
  static const std::string* const kEmpty = new std::string();
  return rep_ ? rep_->message : *kEmpty;
}

Status Status::WithContext(const std::string& context) const {
  return ok() ? Status() : Status(rep_->code, context + ": " + rep_->message);
}

Status InvalidArgument(std::string m) {
  return {StatusCode::kInvalidArgument, std::move(m)};
}
Status NotFound(std::string m) {
  return {StatusCode::kNotFound, std::move(m)};
}
Status Corrupt(std::string m) {
  return {StatusCode::kCorrupt, std::move(m)};
}
Status Unsupported(std::string m) {
  return {StatusCode::kUnsupported, std::move(m)};
}
Status OutOfMemory(std::string m) {
  return {StatusCode::kOutOfMemory, std::move(m)};
}
Status IoError(std::string m) {
  return {StatusCode::kIo, std::move(m)};
}
Status Numerical(std::string m) {
  return {StatusCode::kNumerical, std::move(m)};
}
Status Interrupted(std::string m) {
  return {StatusCode::kInterrupted, std::move(m)};
}
Status InUse(std::string m) {
  return {StatusCode::kInUse, std::move(m)};
}

}  // namespace temper
