// "%s" % x as in Python.
#pragma once

#include "data/template/value.h"

namespace temper::jinja {

// format % values. REQUIRES: format is a string.
Value FormatPercent(const Value& format, const Value& values);

}  // namespace temper::jinja
