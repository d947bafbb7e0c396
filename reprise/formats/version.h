// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "reprise/formats/json.h"

namespace reprise {

// Throws InputError unless `root` is an object that says it is `format`, version 1.
void check_version(JsonValue root, std::string_view format);

}  // namespace reprise
