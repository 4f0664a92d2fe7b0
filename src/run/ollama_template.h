// Translates a chat template to the language of Ollama's Modelfiles (Go's text/template), by what it prints: a template
// that puts fixed texts around messages, by their role, and perhaps a system message where there is none.
#pragma once

#include <optional>
#include <string>

#include "data/template/chat_template.h"

namespace temper {

// nullopt: the template does something else with some conversation of those tried (trims, numbers, joins messages), or
// holds what a Modelfile cannot quote. `adds_bos`: the tokenizer puts the BOS token before a text, as Ollama then does,
// so that the text leaves it out.
std::optional<std::string> OllamaTemplate(const ChatTemplate& chat_template, bool adds_bos);

}  // namespace temper
