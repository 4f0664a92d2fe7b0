// How the user called this program, for commands that messages show to be pasted.
#pragma once

#include <string>
#include <string_view>

namespace temper {

// `called`: the first word of the command line. Ignored if a shell would not take it as one word. To be called before
// there are other threads.
void SetProgramName(std::string_view called);
const std::string& ProgramName();  // "build/temper"; "temper" if it was not set

}  // namespace temper
