// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as node-link JSON.
#include "reprise/formats/node_link.h"
#include "tests/fuzz/properties.h"

using namespace reprise;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto read = [](const Text& text) { return read_node_link(JsonDocument(text)); };
  const auto graph = fuzz::unless_refused([&] { return read(fuzz::as_text(data, size)); });
  if (!graph) return 0;
  fuzz::require_sound(*graph);
  const auto again = fuzz::require_fixed_point(*graph, write_node_link, read);
  if (!again) return 0;
  const Verdict before = check(*graph, base_run(*graph));
  const Verdict after = check(*again, base_run(*again));
  fuzz::require(before.peak == after.peak && before.cost == after.cost,
                "peak and cost survive being written as node-link JSON");
  return 0;
}
