#include "cli/line_editor.h"

namespace temper {

std::unique_ptr<LineEditor> LineEditor::Create(int) {
  return nullptr;
}

}  // namespace temper
