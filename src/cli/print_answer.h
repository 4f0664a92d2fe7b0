// PrintAnswer: a model's answer on stdout, as it comes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "run/decoding.h"

namespace temper {

// As StreamAnswer, to stdout. Ends the line, and warns if the answer is cut off.
Result<Answer> PrintAnswer(DecodingModel& model, std::span<const int32_t> prompt, const SamplingOptions& sampling,
                           const std::function<bool()>& stopped = nullptr);

}  // namespace temper
