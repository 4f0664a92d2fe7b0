// The page that PlanPage fills: HTML, style and script in one, without network access. "DATA" is replaced by the plan.
#pragma once

#include <string_view>

namespace temper {

extern const std::string_view kPageTemplate;

}  // namespace temper
