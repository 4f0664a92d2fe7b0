// Python's three ways to format text: "%s" % x, "{}".format(x), and the width and precision language they share.
#pragma once

#include "data/template/value.h"

namespace temper::jinja {

// "text" % values. REQUIRES: format is a string.
Value FormatPercent(const Value& format, const Value& values);
// "text".format(...). REQUIRES: format is a string.
Value FormatBraces(const Value& format, const Arguments& arguments);

}  // namespace temper::jinja
