// SPDX-License-Identifier: Apache-2.0
#include "runtime/apart.h"

#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

namespace reprise::runtime {
namespace {

std::thread::id thread_of_apart() {
  std::thread::id id;
  run_apart(at::kCPU, [&] { id = std::this_thread::get_id(); });
  return id;
}

TEST(Apart, IsAlwaysTheSameOtherThread) {
  const std::thread::id here = thread_of_apart();
  std::thread::id elsewhere;
  std::thread([&] { elsewhere = thread_of_apart(); }).join();
  EXPECT_NE(here, std::this_thread::get_id());
  EXPECT_EQ(here, elsewhere);
}

TEST(Apart, HasTheSettingsOfItsCaller) {
  for (const bool grad : {true, false, true}) {
    const c10::AutoGradMode mode(grad);
    run_apart(at::kCPU, [&] { EXPECT_EQ(c10::GradMode::is_enabled(), grad); });
  }
}

TEST(Apart, ThrowsOnWhatIsThrownThere) {
  EXPECT_THROW(run_apart(at::kCPU, [] { throw std::out_of_range("far"); }), std::out_of_range);
  EXPECT_THROW(run_apart(at::kCPU, [] { TORCH_CHECK_WITH(OutOfMemoryError, false, "none left"); }),
               c10::OutOfMemoryError);
  EXPECT_NO_THROW(run_apart(at::kCPU, [] {}));
}

}  // namespace
}  // namespace reprise::runtime
