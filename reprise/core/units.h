// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

#include "reprise/core/error.h"

namespace reprise {

// Holds any product of two 64-bit numbers, and sums of many.
__extension__ using Wide = __int128;

// A sum or product that 64 bits can't hold.
class OverflowError : public InputError {
 public:
  using InputError::InputError;
};

// A 64-bit amount of one unit. Arithmetic that overflows throws OverflowError: never a wrong
// number.
template <class Unit>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t count) : count_(count) {}

  constexpr std::int64_t count() const { return count_; }

  constexpr Quantity& operator+=(Quantity other) {
    if (__builtin_add_overflow(count_, other.count_, &count_)) throw_overflow();
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    if (__builtin_sub_overflow(count_, other.count_, &count_)) throw_overflow();
    return *this;
  }
  constexpr Quantity& operator*=(std::int64_t factor) {
    if (__builtin_mul_overflow(count_, factor, &count_)) throw_overflow();
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t factor) { return a *= factor; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  [[noreturn]] static void throw_overflow() {
    throw OverflowError(std::string(Unit::kWhat) + " add up to more than 9223372036854775807");
  }

  std::int64_t count_ = 0;
};

struct BytesUnit {
  static constexpr const char* kWhat = "bytes";
};
struct CostsUnit {
  static constexpr const char* kWhat = "costs";
};

using Bytes = Quantity<BytesUnit>;
using Cost = Quantity<CostsUnit>;

}  // namespace reprise
