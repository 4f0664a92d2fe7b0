// "{:>8}".format(x) as in Python, with its mini-language of widths and precisions.
#pragma once

#include "data/template/value.h"

namespace temper::jinja {

// format.format(...). REQUIRES: format is a string.
Value Format(const Value& format, const Arguments& arguments);

}  // namespace temper::jinja
