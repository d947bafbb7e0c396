// SPDX-License-Identifier: Apache-2.0
// Reads any bytes as a reprise-plan file, for a graph of three ops.
#include "reprise/formats/plan_json.h"
#include "tests/fuzz/properties.h"

using namespace reprise;

namespace {

Graph three_ops() {
  GraphBuilder build("three");
  const ValueId x = build.resident("x", Bytes{4});
  const ValueId a = build.op("f").cost(Cost{3}).workspace(Bytes{1}).reads({x}).makes("a", Bytes{8});
  auto second = build.op("g");
  second.cost(Cost{2}).reads({a}).never_again();
  const ValueId b = second.makes("b", Bytes{8}).over(a);
  const ValueId c = second.makes("c", Bytes{2});
  build.op("h").reads({a, b, c}).makes("d", Bytes{1}).kept();
  return build.done();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Graph graph = three_ops();
  const Text text = fuzz::as_text(data, size);
  const auto read = [](const Text& from) {
    return fuzz::unless_refused([&] { return resolve(read_plan_json(from), graph, from.name); });
  };
  const auto plan = read(text);
  if (!plan) return 0;
  fuzz::require_agreement(graph, *plan);
  const std::string written = write_plan_json(graph, *plan, "none", Bytes{0}, Cost{0});
  fuzz::require(read({"written", written, 1}) == plan, "a plan reads back as it was written");
  return 0;
}
