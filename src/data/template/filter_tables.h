// The tables that FindFilter (filters.h) searches; each is defined beside its filters.
#pragma once

#include <string_view>
#include <unordered_map>

#include "data/template/ast.h"

namespace temper::jinja {

using FilterTable = std::unordered_map<std::string_view, FilterFunction>;

const FilterTable& TextFilters();
const FilterTable& SequenceFilters();

}  // namespace temper::jinja
