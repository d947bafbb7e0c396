// SPDX-License-Identifier: Apache-2.0
#include "cli/interrupt.h"

#include <fmt/core.h>

#include <csignal>
#include <cstdio>

#include "cli/words.h"

namespace reprise::cli {
namespace {

std::atomic<bool> interrupted{false};

void on_interrupt(int) { interrupted.store(true, std::memory_order_relaxed); }

}  // namespace

Interrupt::Interrupt() {
  interrupted = false;
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
}

Interrupt::~Interrupt() { (void)std::signal(SIGINT, SIG_DFL); }

const std::atomic<bool>* Interrupt::flag() const { return &interrupted; }

ProgressLine::ProgressLine(std::string_view what) : what_(what), on_(is_terminal(stderr)) {}

ProgressLine::~ProgressLine() {
  if (shown_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressLine::show(std::string_view doing) {
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  if (!on_ || seconds < next_) return;
  next_ = seconds + 0.1;
  shown_ = true;
  fmt::print(stderr, "\r\x1b[K{}: {}, {:.1f} s (Ctrl-C ends with the best so far)", what_, doing,
             seconds);
  (void)std::fflush(stderr);
}

}  // namespace reprise::cli
