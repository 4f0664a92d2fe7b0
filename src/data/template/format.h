// "{:>8}".format(x), as Python formats it, with its language of widths and precisions.
#pragma once

#include "data/template/value.h"

namespace temper::jinja {

// format.format(...). REQUIRES: format is a string.
Value Format(const Value& format, const Arguments& arguments);

}  // namespace temper::jinja
