// CLocale: the locale of C, for functions that take one (strtod_l, strftime_l): what a program has set as its own must
// not change what texts mean.
#pragma once

#include <locale.h>
#include <stdlib.h>
#include <time.h>

namespace temper {

// Any thread. Lives as long as the process.
inline locale_t CLocale() {
  static const locale_t locale = newlocale(LC_ALL_MASK, "C", nullptr);
  return locale;
}

}  // namespace temper
