// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

#include "reprise/core/graph.h"
#include "reprise/core/plan.h"
#include "reprise/core/plan_from_kept.h"

// The graphs that the benchmarks run on: made here, the same each time, each built once.
namespace reprise::bench {

// A chain of `ops` ops, one value each; every fourth op also reads what was made four ops before.
const Graph& chain(std::size_t ops);

// Such a chain with its loss and backward pass, `ops` ops in all and one more.
const Graph& training_chain(std::size_t ops);

// Keeps every value that stands at a multiple of the square root of the number of forward ops.
KeptValues keep_square_root(const Graph& graph);

// The plan that follows: nearly every forward op runs twice.
const Plan& recomputing_plan(std::size_t ops);

}  // namespace reprise::bench
