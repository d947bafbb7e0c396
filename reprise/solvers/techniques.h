// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace reprise {

// What `auto` is made of. Each can be left out, to see what it earns.
enum class Technique : std::uint8_t {
  cuts,       // starts: what a cut keeps at the peak, again and again
  light,      // … the same from an order that holds little
  blocks,     // … blocks of the network, each kind solved once, stitched
  evictions,  // … what lets go wherever an op has no room
  nothing,    // … what keeps nothing, and computes all again for each op
  published,  // … every quick planner from the literature
  drop,       // moves: let a value go at the peak, run its op again later
  chain,      // … and the ops that it needs
  pull,       // run the reader of a value before the peak
  push,       // make a value after the peak
  slide,      // run an op at another time
  stop,       // leave out a run of an op that has several
  unwind,     // … and those that were for it alone
  exchange,   // leave out a run and relieve the peak in other ways
  restarts,   // walk on from the best plans, not only from the start plans
  cut_bound,  // bounds: the cut at one moment
  whole,      // … solved in integers
  moments,    // … at several moments at once
};

struct TechniqueWords {
  Technique technique;
  std::string_view name;
  std::string_view what;
};

inline constexpr std::array kTechniques{
    TechniqueWords{Technique::cuts, "cuts", "start plans that keep what a smallest cut keeps"},
    TechniqueWords{Technique::light, "light", "start plans in an order that holds little"},
    TechniqueWords{Technique::blocks, "blocks",
                   "start plans of blocks that repeat, solved once and stitched"},
    TechniqueWords{Technique::evictions, "evictions",
                   "start plans that let go of what is cheap wherever an op has no room"},
    TechniqueWords{Technique::nothing, "nothing", "a start plan that keeps nothing"},
    TechniqueWords{Technique::published, "published", "start plans of the published planners"},
    TechniqueWords{Technique::drop, "drop", "let a value go at the peak and run its op again"},
    TechniqueWords{Technique::chain, "chain", "run again what the op that drop runs again needs"},
    TechniqueWords{Technique::pull, "pull", "run the last reader of a value before the peak"},
    TechniqueWords{Technique::push, "push", "make a value only after the peak"},
    TechniqueWords{Technique::slide, "slide", "run an op at another time"},
    TechniqueWords{Technique::stop, "stop", "leave out a run of an op that has several"},
    TechniqueWords{Technique::unwind, "unwind",
                   "with a run that is left out, those that were for it alone"},
    TechniqueWords{Technique::exchange, "exchange", "save a run and relieve the peak elsewhere"},
    TechniqueWords{Technique::restarts, "restarts",
                   "walk on from the best plans that all walks found"},
    TechniqueWords{Technique::cut_bound, "cut-bound",
                   "the bound by a cut at one moment; the others build on it"},
    TechniqueWords{Technique::whole, "whole", "that bound in whole values, none kept in part"},
    TechniqueWords{Technique::moments, "moments", "the bound at several moments at once"},
};

// Some of them; all, to begin with.
class Techniques {
 public:
  bool has(Technique technique) const { return (in_use_ >> static_cast<unsigned>(technique)) & 1U; }
  void leave_out(Technique technique) { in_use_ &= ~(1U << static_cast<unsigned>(technique)); }

 private:
  std::uint32_t in_use_ = UINT32_MAX;
};

}  // namespace reprise
