// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace reprise {

// A position in one of a graph's tables. Ids of different tables do not mix.
template <class Tag>
struct Id {
  std::uint32_t index = 0;
  friend constexpr auto operator<=>(Id, Id) = default;
};

using OpId = Id<struct OpTag>;
using ValueId = Id<struct ValueTag>;

// The ids 0 .. count-1, to loop over.
template <class IdType>
class IdRange {
 public:
  class Iterator {
   public:
    constexpr explicit Iterator(std::uint32_t index) : index_(index) {}
    constexpr IdType operator*() const { return IdType{index_}; }
    constexpr Iterator& operator++() {
      ++index_;
      return *this;
    }
    friend constexpr bool operator==(Iterator, Iterator) = default;

   private:
    std::uint32_t index_;
  };

  constexpr explicit IdRange(std::size_t count) : count_(static_cast<std::uint32_t>(count)) {}
  constexpr Iterator begin() const { return Iterator(0); }
  constexpr Iterator end() const { return Iterator(count_); }
  constexpr std::size_t size() const { return count_; }

 private:
  std::uint32_t count_;
};

// A vector with one entry an id.
template <class IdType, class T>
class IdVector {
 public:
  IdVector() = default;
  explicit IdVector(std::size_t count, T initial = T{}) : entries_(count, initial) {}

  decltype(auto) operator[](IdType id) { return entries_[id.index]; }
  decltype(auto) operator[](IdType id) const { return entries_[id.index]; }
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  IdRange<IdType> ids() const { return IdRange<IdType>(entries_.size()); }
  void push_back(T entry) { entries_.push_back(std::move(entry)); }

 private:
  std::vector<T> entries_;
};

using OpSet = IdVector<OpId, bool>;
using ValueSet = IdVector<ValueId, bool>;

}  // namespace reprise
