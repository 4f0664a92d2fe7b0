// The chat templates that --chat_template takes: those of examples/templates/*.jinja, by name, and files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "base/units.h"

namespace temper {

inline constexpr Bytes kMaxChatTemplate = MiB(4);

struct KnownTemplate {
  std::string_view name, source;
};

// Compiled into the program by cmake/embedded_files.cmake, sorted by name.
const std::vector<KnownTemplate>& KnownTemplates();

// "alpaca, chatml, ...".
std::string KnownTemplateNames();

// The source of a template, and what it is called in messages.
struct TemplateSource {
  std::string text, where;
};

// A known name goes before a file: "./chatml" is a file. Error: neither.
Result<TemplateSource> FindTemplate(Env& env, const std::string& name_or_file);

}  // namespace temper
