// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>

namespace reprise::oracle {

// Random choices that are the same on every machine: the standard's distributions are not.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  std::uint32_t below(std::size_t count) {
    return static_cast<std::uint32_t>(engine_() % static_cast<std::uint64_t>(count));
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + below(static_cast<std::size_t>(high - low + 1));
  }
  bool chance(std::uint32_t percent) { return below(100) < percent; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace reprise::oracle
