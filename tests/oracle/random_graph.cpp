// SPDX-License-Identifier: Apache-2.0
#include "tests/oracle/random_graph.h"

#include <algorithm>
#include <string>
#include <vector>

namespace reprise::oracle {
namespace {

template <class Ids, class Predicate>
bool any_of(Ids ids, Predicate holds) {
  for (const auto id : ids) {
    if (holds(id)) return true;
  }
  return false;
}

// What this graph draws on; each by the toss of a coin.
struct Taste {
  explicit Taste(Random& random)
      : residents(random.chance(60)),
        several_outputs(random.chance(60)),
        no_outputs(random.chance(50)),
        workspace(random.chance(60)),
        overwriting(random.chance(80)),
        kept(random.chance(60)),
        never_again(random.chance(50)),
        phases(random.chance(50)),
        no_bytes(random.chance(50)) {}

  bool residents, several_outputs, no_outputs, workspace, overwriting, kept, never_again, phases,
      no_bytes;
};

}  // namespace

const std::array<Feature, 9> kFeatures{{
    {"residents",
     [](const Graph& graph) {
       return any_of(graph.values(), [&](ValueId value) { return graph.resident(value); });
     }},
    {"several outputs",
     [](const Graph& graph) {
       return any_of(graph.ops(), [&](OpId op) { return graph.outputs(op).size() > 1; });
     }},
    {"no outputs",
     [](const Graph& graph) {
       return any_of(graph.ops(), [&](OpId op) { return graph.outputs(op).empty(); });
     }},
    {"workspace",
     [](const Graph& graph) {
       return any_of(graph.ops(), [&](OpId op) { return graph.workspace(op) > Bytes{0}; });
     }},
    {"overwriting",
     [](const Graph& graph) {
       return any_of(graph.values(),
                     [&](ValueId value) { return graph.overwritten(value).has_value(); });
     }},
    {"kept values",
     [](const Graph& graph) {
       return any_of(graph.values(), [&](ValueId value) { return graph.kept(value); });
     }},
    {"ops that may not run again",
     [](const Graph& graph) {
       return any_of(graph.ops(), [&](OpId op) { return !graph.recomputable(op); });
     }},
    {"phases", [](const Graph& graph) { return graph.has_phases(); }},
    {"values of no bytes",
     [](const Graph& graph) {
       return any_of(graph.values(), [&](ValueId value) { return graph.bytes(value) == Bytes{0}; });
     }},
}};

Graph random_graph(Random& random, const RandomGraphSize& size) {
  const Taste taste(random);
  GraphBuilder build("random");
  std::vector<ValueId> values;
  std::vector<Bytes> bytes;
  std::vector<bool> resident;
  const auto add = [&](ValueId value, Bytes amount, bool is_resident) {
    values.push_back(value);
    bytes.push_back(amount);
    resident.push_back(is_resident);
  };
  const auto some_bytes = [&] {
    return Bytes{taste.no_bytes && random.chance(20) ? 0 : random.between(1, 9)};
  };
  if (taste.residents) {
    for (std::int64_t i = random.between(1, 2); i > 0; --i) {
      const Bytes amount = some_bytes();
      add(build.resident("r" + std::to_string(i), amount), amount, true);
    }
  }

  const auto ops = static_cast<std::size_t>(random.between(
      static_cast<std::int64_t>(size.fewest_ops), static_cast<std::int64_t>(size.most_ops)));
  std::size_t made = 0;
  for (std::size_t i = 0; i < ops; ++i) {
    auto op = build.op("op" + std::to_string(i));
    op.cost(Cost{random.between(0, 5)});
    if (taste.workspace && random.chance(50)) op.workspace(Bytes{random.between(1, 6)});
    if (taste.never_again && random.chance(25)) op.never_again();
    if (taste.phases) {
      const std::size_t place = random.chance(10) ? random.below(ops) : i;  // now and then astray
      op.phase(place * 2 < ops       ? Phase::forward
               : place * 2 < ops + 2 ? Phase::loss
                                     : Phase::backward);
      if (i * 2 >= ops + 2 && random.chance(50)) op.gradient_of(OpId{random.below(i)});
    }
    std::vector<std::size_t> inputs;
    for (std::int64_t k = values.empty() ? 0 : random.between(i == 0 ? 0 : 1, 3); k > 0; --k) {
      // Late values are likelier, so that chains come about.
      const std::size_t pick = std::max(random.below(values.size()), random.below(values.size()));
      inputs.push_back(pick);
      op.reads({values[pick]});
    }

    std::int64_t outputs = 1;
    if (taste.no_outputs && random.chance(20)) outputs = 0;
    if (taste.several_outputs && random.chance(35)) outputs = random.between(2, 3);
    std::vector<std::size_t> overwritten;
    for (; outputs > 0 && made < size.most_values; --outputs, ++made) {
      const std::string name = "v" + std::to_string(made);
      Bytes amount = some_bytes();
      std::optional<std::size_t> over;
      for (const std::size_t input : inputs) {
        const bool taken = std::count(overwritten.begin(), overwritten.end(), input) > 0;
        if (!taste.overwriting || resident[input] || taken || !random.chance(50)) continue;
        over = input;
        break;
      }
      if (over) amount = bytes[*over];
      auto value = op.makes(name, amount);
      if (over) {
        value.over(values[*over]);
        overwritten.push_back(*over);
      }
      if (taste.kept && random.chance(25)) value.kept();
      add(value, amount, false);
    }
  }
  return build.done();
}

}  // namespace reprise::oracle
