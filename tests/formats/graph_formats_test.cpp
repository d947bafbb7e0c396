// SPDX-License-Identifier: Apache-2.0
#include "reprise/formats/graph_formats.h"

#include <gtest/gtest.h>

#include "tests/core/graphs.h"

namespace reprise {
namespace {

TEST(ReadGraph, TellsTheFormatFromTheContent) {
  const Graph graph = unit_chain(3);
  for (const GraphFormat format :
       {GraphFormat::reprise_graph, GraphFormat::node_link, GraphFormat::lower_set}) {
    const Text text{"net", write_graph(graph, format)};
    EXPECT_GE(read_graph(text).ops().size(), 7U) << to_string(format);
    EXPECT_EQ(read_graph(text, format).fingerprint(), read_graph(text).fingerprint());
  }
}

TEST(ReadGraph, DoesNotGuess) {
  const auto message_of = [](const std::string& content, std::optional<GraphFormat> format) {
    try {
      read_graph(Text{"net", content}, format);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message_of("digraph {}", {}), "net:1: neither JSON nor lower-set text");
  EXPECT_EQ(message_of("{}", {}),
            "net: JSON without \"format\" (reprise-graph) and without \"nodes\" (node-link)");
  EXPECT_EQ(message_of(R"({"format": "reprise-plan", "version": 1, "steps": []})", {}),
            "net: format: 'reprise-plan' is not 'reprise-graph'");
  EXPECT_EQ(message_of(R"({"format": "reprise-graph", "version": 2})", {}),
            "net: version: version 2 is newer than this program, which reads version 1");
  EXPECT_EQ(message_of("{}", GraphFormat::dot), "net: dot is written only");
  EXPECT_EQ(message_of("{}", GraphFormat::node_link), "net: the field 'nodes' is missing");
}

}  // namespace
}  // namespace reprise
