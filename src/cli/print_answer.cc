#include "cli/print_answer.h"

#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/log.h"
#include "base/utf8.h"

namespace temper {

Result<Answer> PrintAnswer(DecodingModel& model, std::span<const int32_t> prompt, const SamplingOptions& sampling,
                           const std::function<bool()>& stopped) {
  // Escape sequences that a model has learnt could rewrite a terminal's screen, its clipboard, or what is typed next.
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  const auto print = [&](const std::string& text) {
    const std::string shown = terminal ? utf8::Harmless(text) : text;
    std::fwrite(shown.data(), 1, shown.size(), stdout);
    std::fflush(stdout);
  };
  TEMPER_ASSIGN_OR_RETURN(Answer answer, StreamAnswer(model, prompt, sampling, print, stopped));
  print("\n");
  if (!answer.cut_off.empty()) LogWarning(answer.cut_off);
  return answer;
}

}  // namespace temper
