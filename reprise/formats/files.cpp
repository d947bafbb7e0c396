// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/files.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "reprise/core/error.h"

namespace reprise {
namespace {

constexpr std::size_t kLargestInput = std::size_t{2} << 30;

struct CloseFile {
  void operator()(std::FILE* file) const { (void)std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

[[noreturn]] void refuse(const std::string& name, std::string_view why) {
  throw InputError(fmt::format("{}: {}", name, why));
}

[[noreturn]] void refuse_errno(const std::string& name, std::string_view doing) {
  refuse(name, fmt::format("can't {}: {}", doing, std::strerror(errno)));
}

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

Text read_all(std::FILE* file, std::string name) {
  Text text{std::move(name), {}, 1};
  std::vector<char> chunk(std::size_t{1} << 20);
  bool at_start = true;
  while (true) {
    const std::size_t count = std::fread(chunk.data(), 1, chunk.size(), file);
    if (std::ferror(file) != 0) refuse_errno(text.name, "read");
    if (count == 0) break;
    std::string_view piece(chunk.data(), count);
    if (at_start && piece.substr(0, 3) == "\xEF\xBB\xBF") piece.remove_prefix(3);
    at_start = false;
    if (text.content.empty()) {
      const auto first = std::find_if_not(piece.begin(), piece.end(), is_blank);
      text.first_line += static_cast<std::size_t>(std::count(piece.begin(), first, '\n'));
      piece.remove_prefix(static_cast<std::size_t>(first - piece.begin()));
    }
    if (text.content.size() + piece.size() > kLargestInput) refuse(text.name, "over 2 GiB");
    text.content += piece;
  }
  if (text.content.empty()) refuse(text.name, "the input is empty");
  return text;
}

void write_all(std::FILE* file, const std::string& path, std::string_view content) {
  const bool written = std::fwrite(content.data(), 1, content.size(), file) == content.size() &&
                       std::fflush(file) == 0;
  if (!written) refuse_errno(path, "write");
}

// While one of these lives, signals that end the program wait.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&held, signal);
    pthread_sigmask(SIG_BLOCK, &held, &before_);
  }
  ~SignalsHeld() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;

 private:
  sigset_t before_{};
};

// Writes a file beside `target` and renames it. `name` is what messages call it.
void replace_file(const std::filesystem::path& target, const std::string& name,
                  std::string_view content, mode_t mode) {
  const SignalsHeld held;
  std::string temporary = (target.parent_path() / ".reprise-XXXXXX").string();
  const int descriptor = ::mkstemp(temporary.data());
  if (descriptor < 0) refuse_errno(name, "write");
  try {
    (void)::fchmod(descriptor, mode);
    File file(::fdopen(descriptor, "wb"));
    if (!file) refuse_errno(name, "write");
    write_all(file.get(), name, content);
    file.reset();
    if (std::rename(temporary.c_str(), target.c_str()) != 0) refuse_errno(name, "write");
  } catch (...) {
    (void)std::remove(temporary.c_str());
    throw;
  }
}

}  // namespace

Text read_text(const std::string& path) {
  if (path == "-") return read_all(stdin, "<stdin>");
  if (std::error_code ignored; std::filesystem::is_directory(path, ignored)) {
    refuse(path, "is a directory");
  }
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) refuse_errno(path, "open");
  return read_all(file.get(), path);
}

bool is_standard_output(const std::string& path) {
  return path == "-" || path == "/dev/stdout" || path == "/dev/fd/1" || path == "/proc/self/fd/1";
}

void write_text(const std::string& path, std::string_view content) {
  if (is_standard_output(path)) return write_all(stdout, "<stdout>", content);

  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);  // of what a link leads to
  if (std::filesystem::is_directory(status)) refuse(path, "is a directory");
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    const File file(std::fopen(path.c_str(), "wb"));
    if (!file) refuse_errno(path, "open");
    return write_all(file.get(), path, content);
  }
  std::filesystem::path target = path;
  if (std::filesystem::is_symlink(target, ignored)) {
    target = std::filesystem::canonical(target, ignored);
  }
  if (target.empty()) refuse(path, "is a link to nothing");
  const mode_t mask = ::umask(0);
  ::umask(mask);
  replace_file(
      target, path, content,
      std::filesystem::exists(status) ? static_cast<mode_t>(status.permissions()) : 0666 & ~mask);
}

void append_text(const std::string& path, std::string_view content) {
  const SignalsHeld held;
  const File file(std::fopen(path.c_str(), "ab"));
  if (!file) refuse_errno(path, "open");
  write_all(file.get(), path, content);
}

}  // namespace reprise
