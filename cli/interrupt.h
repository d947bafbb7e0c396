// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <string_view>

namespace reprise::cli {

// While one of these lives, Ctrl-C sets a flag instead of ending the program; a second one ends it.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  const std::atomic<bool>* flag() const;
};

// A line on standard error that is rewritten as work goes on, where that is a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(std::string_view what);
  ~ProgressLine();
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::string_view doing);

 private:
  std::string_view what_;
  bool on_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  double next_ = 0.3;  // seconds: short work shows nothing
};

}  // namespace reprise::cli
