// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/version.h"

#include <fmt/core.h>

#include "reprise/core/error.h"

namespace reprise {

void check_version(JsonValue root, std::string_view format) {
  const JsonValue said = root.at("format");
  if (said.string() != format) {
    said.fail(fmt::format("{} is not {}", in_quotes(said.string()), in_quotes(format)));
  }
  const JsonValue version = root.at("version");
  if (version.amount() > 1) {
    version.fail(fmt::format("version {} is newer than this program, which reads version 1",
                             version.amount()));
  }
  if (version.amount() < 1) version.fail("versions begin at 1");
}

}  // namespace reprise
