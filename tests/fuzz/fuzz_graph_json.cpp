// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a reprise-graph file.
#include "tests/fuzz/properties.h"

using namespace reprise;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Text text = fuzz::as_text(data, size);
  const auto graph = fuzz::unless_refused([&] { return read_graph_json(JsonDocument(text)); });
  if (graph) fuzz::require_sound(*graph);
  return 0;
}
