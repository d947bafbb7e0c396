// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "reprise/core/units.h"

namespace reprise {

// How much memory a plan may take.
struct Budget {
  std::optional<Bytes> bytes;  // bounds the peak; none: the smallest peak, then the smallest cost

  bool allows(Bytes peak) const { return !bytes || peak <= *bytes; }
  friend bool operator==(const Budget&, const Budget&) = default;
};

// Reads "4096", "1.5GB", "6 GiB" (kB, MB, GB, TB are decimal, KiB, MiB, GiB, TiB binary), "37.5%"
// of `base_peak`, or "min". A fraction of a byte is dropped, but a bare number has to be whole.
// Exact. Throws InputError.
Budget parse_budget(std::string_view text, Bytes base_peak);

// `share` hundredths of `bytes`, rounded down. Throws OverflowError.
Bytes hundredths(Bytes bytes, std::int64_t share);

// "1.34 GiB", "512 B": three digits that count, for people.
std::string to_words(Bytes bytes);

}  // namespace reprise
