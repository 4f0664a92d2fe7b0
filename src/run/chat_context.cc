#include "run/chat_context.h"

#include <fmt/core.h>

#include <ctime>

namespace temper {

Result<ChatContext> ChatContext::Create(const std::string& date, const JsonObject& kwargs) {
  ChatContext out;
  out.today_ = {};
  const char* const end = strptime(date.c_str(), "%Y-%m-%d", &out.today_);
  if (end == nullptr || *end != 0) {
    return InvalidArgument(fmt::format("template_date '{}' is not a date: write YYYY-MM-DD", date));
  }
  out.today_.tm_isdst = -1;
  timegm(&out.today_);  // fills in the weekday
  if (kwargs.text.empty()) return out;
  TEMPER_ASSIGN_OR_RETURN(out.variables_, ParseOrderedJson(kwargs.text, "chat_template_kwargs"));
  TEMPER_RETURN_IF_ERROR(CheckVariables(out.variables_, "chat_template_kwargs"));
  return out;
}

}  // namespace temper
