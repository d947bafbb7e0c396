// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as lower-set text, under every option.
#include "reprise/formats/lower_set_text.h"
#include "tests/fuzz/properties.h"

using namespace reprise;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Text text = fuzz::as_text(data, size);
  for (const auto reads : {LowerSetOptions::Reads::listed, LowerSetOptions::Reads::retained}) {
    for (const bool source_gradients : {false, true}) {
      const LowerSetOptions options{reads, source_gradients};
      const auto read = [&](const Text& from) { return read_lower_set_text(from, options); };
      const auto graph = fuzz::unless_refused([&] { return read(text); });
      if (!graph) continue;
      fuzz::require_sound(*graph);
      fuzz::require_fixed_point(*graph, write_lower_set_text, read);
    }
  }
  return 0;
}
