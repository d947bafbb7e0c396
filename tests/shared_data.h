// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

// Published graphs and golden results that lie beside the repository, not in it.
inline std::string shared_data(const std::string& file) {
  return std::string(REPRISE_SHARED_DATA) + "/" + file;
}

#define SKIP_WITHOUT_SHARED_DATA()                                                      \
  if (!std::filesystem::exists(REPRISE_SHARED_DATA)) {                                  \
    GTEST_SKIP() << "needs the published graphs in ../shared/data, which are not here"; \
  }
