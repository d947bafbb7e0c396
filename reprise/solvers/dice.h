// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace reprise {

// Random numbers that are the same on every machine, and cheap (splitmix64: Steele et al., 2014).
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}

  std::uint64_t roll() {
    std::uint64_t mixed = (state_ += 0x9e3779b97f4a7c15);
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
  }
  // 0 .. count-1; count is below 2^32.
  std::uint32_t below(std::size_t count) {
    return static_cast<std::uint32_t>(((roll() >> 32) * count) >> 32);
  }
  double unit() { return static_cast<double>(roll() >> 11) * 0x1p-53; }  // 0 <= … < 1
  bool chance(double share) { return unit() < share; }

 private:
  std::uint64_t state_;
};

}  // namespace reprise
