// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include "reprise/solvers/milp/milp.h"

#define SKIP_WITHOUT_HIGHS()                                            \
  if (const std::string reason = milp_unavailable(); !reason.empty()) { \
    GTEST_SKIP() << reason;                                             \
  }
