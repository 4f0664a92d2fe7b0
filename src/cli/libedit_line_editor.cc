#include <histedit.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/utf8.h"
#include "cli/line_editor.h"

namespace temper {
namespace {

constexpr int kHistory = 1000;  // lines

// Terminals put pasted text between these, once asked to ("bracketed paste").
constexpr char kAskForPastes[] = "\x1b[?2004h", kNoPastes[] = "\x1b[?2004l";
constexpr wchar_t kPasteBegins[] = L"\x1b[200~";
constexpr std::wstring_view kPasteEnds = L"\x1b[201~";

std::string ToUtf8(std::wstring_view text) {
  std::string utf8;
  for (const wchar_t c : text) utf8::Append(utf8, static_cast<char32_t>(c));
  return utf8;
}

void Tell(const char* terminal) {
  std::fputs(terminal, stderr);
  std::fflush(stderr);
}

class LibeditLineEditor final : public LineEditor {
 public:
  explicit LibeditLineEditor(int wake) : wake_(wake), edit_(el_init("temper", stdin, stderr, stderr)) {
    if (edit_ == nullptr) return;
    history_ = history_winit();
    HistEventW event;
    history_w(history_, &event, H_SETSIZE, kHistory);
    history_w(history_, &event, H_SETUNIQUE, 1);
    el_wset(edit_, EL_CLIENTDATA, this);
    el_wset(edit_, EL_EDITOR, L"emacs");
    el_wset(edit_, EL_SIGNAL, 0);
    el_wset(edit_, EL_PROMPT, &LibeditLineEditor::PromptOf);
    el_wset(edit_, EL_GETCFN, &LibeditLineEditor::NextCharacterOf);
    el_wset(edit_, EL_HIST, history_w, history_);
    el_wset(edit_, EL_ADDFN, L"temper-paste", L"inserts pasted text", &LibeditLineEditor::PasteInto);
    el_wset(edit_, EL_BIND, kPasteBegins, L"temper-paste", nullptr);
    el_wset(edit_, EL_BIND, L"^R", L"em-inc-search-prev", nullptr);
  }
  ~LibeditLineEditor() override {
    if (history_ != nullptr) history_wend(history_);
    if (edit_ != nullptr) el_end(edit_);
  }
  bool ok() const { return edit_ != nullptr && history_ != nullptr; }

  Read ReadLine(const std::string& prompt, std::string* line) override {
    prompt_.assign(prompt.begin(), prompt.end());
    interrupted_ = false;
    el_resize(edit_);
    // Before the prompt is shown: a Ctrl-D that is typed at it would end nothing in the terminal's own mode, and would
    // reach libedit as a NUL, which quotes the next key.
    el_wset(edit_, EL_PREP_TERM, 1);
    Tell(kAskForPastes);
    int count = 0;
    const wchar_t* const typed = el_wgets(edit_, &count);
    Tell(kNoPastes);
    if (typed == nullptr || count <= 0) {
      if (!interrupted_) return Read::kEnd;
      bytes_.clear();
      el_wset(edit_, EL_EDITMODE, 1);  // as it was: what was typed is gone
      return Read::kInterrupted;
    }
    std::wstring_view text(typed, static_cast<size_t>(count));
    if (text.ends_with(L'\n')) text.remove_suffix(1);
    if (!text.empty()) {
      HistEventW event;
      history_w(history_, &event, H_ENTER, std::wstring(text).c_str());
    }
    *line = ToUtf8(text);
    return Read::kLine;
  }

 private:
  static LibeditLineEditor& Of(EditLine* edit) {
    void* self = nullptr;
    el_wget(edit, EL_CLIENTDATA, &self);
    return *static_cast<LibeditLineEditor*>(self);
  }
  static wchar_t* PromptOf(EditLine* edit) { return Of(edit).prompt_.data(); }
  static int NextCharacterOf(EditLine* edit, wchar_t* c) { return Of(edit).NextCharacter(c); }

  static unsigned char PasteInto(EditLine* edit, wint_t) {
    std::wstring text;
    wchar_t c = 0;
    while (!text.ends_with(kPasteEnds)) {
      if (el_wgetc(edit, &c) != 1) return CC_EOF;
      text += c == L'\r' ? L'\n' : c;
    }
    text.resize(text.size() - kPasteEnds.size());
    while (text.ends_with(L'\n')) text.pop_back();
    return !text.empty() && el_winsertstr(edit, text.c_str()) != 0 ? CC_ERROR : CC_REFRESH;
  }

  // As el_rfunc_t: 1, or 0 at the end, or -1 if interrupted.
  int NextCharacter(wchar_t* c) {
    while (true) {
      if (const size_t length = LengthOfFirst()) {
        *c = utf8::IsValid(std::string_view(bytes_).substr(0, length)) ? static_cast<wchar_t>(utf8::At(bytes_, 0))
                                                                       : static_cast<wchar_t>(0xFFFD);
        bytes_.erase(0, length);
        return 1;
      }
      pollfd files[] = {{STDIN_FILENO, POLLIN, 0}, {wake_, POLLIN, 0}};
      if (poll(files, 2, -1) < 0 && errno != EINTR) return 0;
      if (files[1].revents != 0) {
        interrupted_ = true;
        return -1;
      }
      if (files[0].revents == 0) continue;
      char some[4096];
      const ssize_t n = read(STDIN_FILENO, some, sizeof some);
      if (n > 0) {
        bytes_.append(some, static_cast<size_t>(n));
      } else if (n == 0 || errno != EINTR) {
        return 0;
      }
    }
  }
  // Bytes of the first character that was read; 0: it is not whole. Ill-formed bytes are characters of their own.
  size_t LengthOfFirst() const {
    if (bytes_.empty()) return 0;
    const auto lead = static_cast<unsigned char>(bytes_[0]);
    if (lead < 0xC2 || lead > 0xF4) return 1;
    const size_t length = utf8::Length(bytes_[0]);
    for (size_t i = 1; i < length && i < bytes_.size(); ++i) {
      if ((static_cast<unsigned char>(bytes_[i]) & 0xC0) != 0x80) return 1;
    }
    return bytes_.size() < length ? 0 : length;
  }

  const int wake_;
  EditLine* const edit_;
  HistoryW* history_ = nullptr;
  std::wstring prompt_;
  std::string bytes_;  // typed, and not yet given to libedit
  bool interrupted_ = false;
};

}  // namespace

std::unique_ptr<LineEditor> LineEditor::Create(int wake) {
  const char* const terminal = std::getenv("TERM");
  if (terminal == nullptr || *terminal == '\0' || std::strcmp(terminal, "dumb") == 0) return nullptr;
  // libedit prints characters by the locale; any of UTF-8 will do.
  const char* const locale = std::setlocale(LC_CTYPE, "");
  if (locale == nullptr || MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
  auto editor = std::make_unique<LibeditLineEditor>(wake);
  if (!editor->ok()) return nullptr;
  return editor;
}

}  // namespace temper
