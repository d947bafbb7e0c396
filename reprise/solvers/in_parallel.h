// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

namespace reprise {

// Calls `body` with 0 .. count-1, each once, on `threads` threads, the caller's among them. Where a
// call throws, no more are begun, and the first exception is thrown on.
void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& body);

}  // namespace reprise
