// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace reprise {

// What a reader reads: the content, and how messages call it.
struct Text {
  std::string name;
  std::string content;
  std::size_t first_line = 1;  // the line that `content` begins on
};

// Reads a file, or standard input where `path` is "-". A byte order mark and leading white space
// are dropped as they come. Throws InputError: no such file, a directory, nothing in it, over 2
// GiB.
Text read_text(const std::string& path);

// Writes a file so that an interrupted run leaves the old content or the new, never half of it: to
// a temporary file beside it, which is then renamed. What is no regular file (a pipe, a device) and
// standard output are written to directly. Throws InputError.
void write_text(const std::string& path, std::string_view content);

// Adds to the end of a file. Throws InputError.
void append_text(const std::string& path, std::string_view content);

// "-" and "/dev/stdout"
bool is_standard_output(const std::string& path);

}  // namespace reprise
