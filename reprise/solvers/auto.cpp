// SPDX-License-Identifier: Apache-2.0
#include "reprise/solvers/auto.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "reprise/core/lifetimes.h"
#include "reprise/solvers/best_of_published.h"
#include "reprise/solvers/bounds/proof.h"
#include "reprise/solvers/candidates.h"
#include "reprise/solvers/search/cut_plans.h"
#include "reprise/solvers/search/evicting_plans.h"
#include "reprise/solvers/search/light_order.h"
#include "reprise/solvers/search/search.h"
#include "reprise/solvers/search/sequence.h"
#include "reprise/solvers/search/stitched_plans.h"

namespace reprise {
namespace {

constexpr std::size_t kBestCutPlans = 2;       // that are searched from, for each order
constexpr std::size_t kMostRuns = 8;           // an op, of the plan that keeps nothing
constexpr double kShareOfStarts = 0.05;        // of the time limit, for each kind of start plans
constexpr double kLeastOfStarts = 0.1;         // … and these seconds; …
constexpr double kShareOfSmallStarts = 0.02;   // … where they rarely fit: at the smallest peak
constexpr double kShareOfPublished = 0.15;     // of the time limit
constexpr double kShareOfPeak = 0.4;           // … for the smallest peak, before its cost
constexpr double kShareOfInfeasible = 0.1;     // … to say what can be had instead
constexpr double kShareOfProof = 0.3;          // of the time that has passed …
constexpr double kShareOfVainProof = 0.1;      // … or, where the last look proved no more
constexpr double kLeastProof = 0.02;           // seconds, that each look has in any case
constexpr std::int64_t kProofPolls = 200'000;  // of a look without a clock, by the number of ops;
constexpr std::int64_t kCutPolls = 1'000'000;  // of plans by cuts, likewise
constexpr int kVainProofs = 3;  // looks that proved no more, after which it is given up
constexpr double kNever = std::numeric_limits<double>::infinity();  // seconds
constexpr std::int64_t kAnyNumber = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kDear = 3;               // times the base cost
constexpr std::int64_t kFar = 2;                // times the smallest peak
constexpr std::size_t kMostOpsUntimed = 5'000;  // for published planners, where no clock ends them
constexpr std::int64_t kPatience = 50'000;      // moves without a better plan, for each op

class Auto {
 public:
  Auto(const Problem& problem, const Limits& limits)
      : problem_(problem),
        graph_(problem.graph),
        limits_(limits),
        watch_(limits),
        candidates_(problem),
        floor_(smallest_peak_bound(problem.graph).bytes) {}

  Findings run() {
    if (graph_.ops().size() == 0) {
      candidates_.offer({});
      return std::move(candidates_).best();
    }
    if (!Sequence::can_hold(graph_)) {
      Findings found = best_of_published(problem_, limits_);
      found.stopped = found.too_large = true;
      return found;
    }
    if (problem_.start != nullptr) take(*problem_.start);
    if (!problem_.budget.bytes) {
      const Bytes smallest = search_smallest(kShareOfPeak, floor_);
      const std::optional<PeakBound> bound = bound_below(smallest);
      begun_ = watch_.seconds();
      find_cheapest(smallest);
      peak_bound_ = bound;
    } else if (*problem_.budget.bytes >= floor_) {
      find_cheapest(*problem_.budget.bytes);
    } else {
      search_smallest(kShareOfInfeasible, floor_);
    }
    // Once every start plan was walked from, the time limit is how it ends, not an interruption.
    const bool interrupted = limits_.stop != nullptr && limits_.stop->load();
    const bool proven =
        candidates_.so_far().plan && candidates_.cost() == graph_.base_cost() + extra_;
    if (interrupted || (watch_.must_stop() && !walked_from_all_ && !proven)) candidates_.stopped();
    Findings found = std::move(candidates_).best();
    found.lower_bound = graph_.base_cost() + extra_;
    found.bound_scope = "any";
    found.peak_bound = peak_bound_;
    return found;
  }

 private:
  bool uses(Technique technique) const { return limits_.techniques.has(technique); }

  // Says stop after so many seconds, or after it was asked so often.
  std::function<bool()> stop_after(double seconds, std::int64_t polls = kAnyNumber) const {
    const double end = watch_.seconds() + seconds;
    return [this, end, polls]() mutable {
      return --polls < 0 || watch_.must_stop() || watch_.seconds() > end;
    };
  }

  double seconds_of_starts() const {
    if (!limits_.time || problem_.budget.bytes) return seconds_of_evictions();
    return kShareOfSmallStarts * limits_.time->count();
  }

  double seconds_of_evictions() const {
    if (!limits_.time) return kNever;
    return kShareOfStarts * limits_.time->count() + kLeastOfStarts;
  }

  void take(const Plan& plan) {
    candidates_.offer(plan);
    starts_.push_back(plan_order(graph_, plan));
  }

  void take(PlanOrder start) {
    candidates_.offer(with_earliest_frees(graph_, start.order));
    starts_.push_back(std::move(start));
  }

  void take_cut_plans(const std::vector<OpId>& first_runs, Bytes budget) {
    auto plans = cut_plans(graph_, first_runs, budget,
                           stop_after(seconds_of_starts(), polls_without_a_clock(kCutPolls)));
    plans.resize(std::min(plans.size(), kBestCutPlans));
    for (PlanOrder& plan : plans) take(std::move(plan));
  }

  void take_start_plans(Bytes budget) {
    const std::vector<OpId> program = program_order(graph_);
    take(plan_order(graph_, program));
    take_unless_too_dear(Technique::cuts, [&] { take_cut_plans(program, budget); });
    take_unless_too_dear(Technique::light, [&] { take_light_plans(program, budget); });
    take_unless_too_dear(Technique::blocks, [&] { take_stitched_plan(budget); });
  }

  // A plan whose cost is past 64 bits is none.
  void take_unless_too_dear(Technique technique, const std::function<void()>& take_plans) {
    try {
      if (uses(technique)) take_plans();
    } catch (const OverflowError&) {  // NOLINT(bugprone-empty-catch): the others will do
    }
  }

  void take_nothing_kept() {
    take_unless_too_dear(Technique::nothing, [&] {
      auto nothing = keep_nothing(graph_, program_order(graph_), kMostRuns * graph_.ops().size(),
                                  [&] { return watch_.must_stop(); });
      if (nothing) take(*std::move(nothing));
    });
  }

  void take_evicting_plans(Bytes budget) {
    for (const std::vector<OpId>& first_runs : orders()) {
      auto plans = evicting_plans(graph_, first_runs, budget, stop_after(seconds_of_evictions()));
      if (!plans.empty()) take(std::move(plans.front()));
    }
  }

  // Where the best plan recomputes nearly everything, a cheap one that has its peak.
  void add_cheap_plan(Search& search) {
    if (!search.best() || !is_dear(*search.best())) return;
    take_unless_too_dear(Technique::evictions, [&] {
      const Bytes room = search.best()->peak;
      for (const std::vector<OpId>& first_runs : orders()) {
        auto plan = evicting_plan(graph_, first_runs, room, stop_after(seconds_of_evictions()));
        if (plan) take(*std::move(plan));
      }
    });
    hand_over(search);
  }

  // The program's and, where that is another one, one that holds little.
  std::vector<std::vector<OpId>> orders() const {
    std::vector<std::vector<OpId>> orders{program_order(graph_)};
    std::vector<OpId> light = light_order(graph_);
    if (uses(Technique::light) && light != orders[0]) orders.push_back(std::move(light));
    return orders;
  }

  void take_stitched_plan(Bytes budget) {
    auto plans = stitched_plans(graph_, budget, stop_after(seconds_of_starts()));
    if (!plans.empty()) take(std::move(plans.front()));
  }

  void take_light_plans(const std::vector<OpId>& program, Bytes budget) {
    std::vector<OpId> light = light_order(graph_);
    if (light == program) return;
    if (uses(Technique::cuts)) take_cut_plans(light, budget);
    take(plan_order(graph_, std::move(light)));
  }

  void take_published(const Budget& budget) {
    if (!uses(Technique::published)) return;
    if (!limits_.time && graph_.ops().size() > kMostOpsUntimed) return;
    const Problem part{graph_, budget};
    Limits some = limits_;
    if (limits_.time) some.time = std::min(*watch_.left(), *limits_.time * kShareOfPublished);
    Findings found = best_of_published(part, some);
    if (found.plan) starts_.push_back(plan_order(graph_, *found.plan));
    candidates_.take(std::move(found));
  }

  // The cheapest plan inside `budget`.
  void find_cheapest(Bytes budget) {
    const Problem part{graph_, Budget{budget}};
    Limits limits = limits_;
    if (limits_.iterations) {
      limits.iterations = std::max<std::int64_t>(*limits_.iterations - moves_spent_, 1);
    }
    Search search(part, limits, floor_);
    Proof proof(graph_, budget, limits_.techniques);
    take_start_plans(budget);
    if (!problem_.budget.bytes) leave_out_far_starts(budget);
    take_nothing_kept();
    hand_over(search);
    const bool fits = search.fits();  // else the published planners are asked at once
    if (!fits) take_published(part.budget);
    hand_over(search);
    if (search.fits()) add_cheap_plan(search);
    if (problem_.budget.bytes && (!search.fits() || is_dear(*search.best()))) {
      search_smallest(kShareOfPeak, budget, /*from_dear=*/!search.fits());
      search.charge(moves_spent_);
      hand_over(search);
    }
    prove(proof, search);
    search.round(watch_, enough(proof));
    walked_from_all_ = !watch_.must_stop();
    prove(proof, search);
    const bool were_asked = !fits || !problem_.budget.bytes;
    if (!were_asked && !is_done(proof, search)) take_published(part.budget);
    hand_over(search);
    search_while_there_is_hope(search, proof);
    prove(proof, search);
    prove_with_what_is_left(proof, search);
    candidates_.offer(with_earliest_frees(graph_, search.best()->order));
  }

  void search_while_there_is_hope(Search& search, Proof& proof) {
    std::int64_t better_at = search.moves();
    while (!is_done(proof, search)) {
      const Cost before = search.best()->cost;
      if (!search.round(watch_, enough(proof))) return;
      if (search.best()->cost < before) better_at = search.moves();
      prove(proof, search);
      if (search.moves() - better_at > patience() && vain_proofs_ >= kVainProofs) return;
    }
  }

  // Half of the time that is left, each time.
  void prove_with_what_is_left(Proof& proof, const Search& search) {
    if (!limits_.time || limits_.iterations) return;
    vain_proofs_ = 0;
    while (vain_proofs_ < kVainProofs && !is_done(proof, search)) {
      prove_for(0.5 * watch_.left()->count(), proof, search);
    }
  }

  // Is it one that recomputes nearly everything, from which cheap ones are far?
  bool is_dear(const PlanOrder& plan) const {
    return plan.cost.count() / kDear > graph_.base_cost().count();
  }

  // The smallest peak found in this share of the limits, or one of at most `goal`. Its plan is a
  // start plan from now on, and so are cheaper ones that were walked to. from_dear: plans that
  // recompute nearly everything are start plans, too.
  Bytes search_smallest(double share, Bytes goal, bool from_dear = true) {
    const Problem part{graph_, Budget{}};
    Limits limits = limits_;
    limits.found = nullptr;  // its plans need not fit
    if (limits_.time) limits.time = std::min(*watch_.left(), *limits_.time * share);
    if (limits_.iterations) {
      const double moves = share * static_cast<double>(*limits_.iterations);
      limits.iterations = static_cast<std::int64_t>(std::ceil(moves));
    }
    const Stopwatch watch(limits);
    Search search(part, limits, floor_);
    take_unless_too_dear(Technique::evictions, [&] { take_evicting_plans(goal); });
    take_start_plans(from_dear ? floor_ : goal);
    if (from_dear) take_nothing_kept();
    hand_over(search);
    std::int64_t better_at = 0;
    bool more = true;
    for (int rounds = 1; more && search.best()->peak > goal; ++rounds) {
      const Bytes before = search.best()->peak;
      report(*search.best(), Cost{0});
      more = search.round(watch, {});
      if (rounds == 1 && from_dear && !watch.must_stop()) add_cheap_plan(search);
      if (search.best()->peak < before) better_at = search.moves();
      if (search.moves() - better_at > patience()) break;
    }
    if (!problem_.budget.bytes) {
      take_published(Budget{});
      hand_over(search);
      add_cheap_plan(search);
    }
    if (search.far_cheaper()) take(*search.far_cheaper());
    if (search.one_of_the_best(0).cost < search.best()->cost) take(search.one_of_the_best(0));
    take(*search.best());
    moves_spent_ = search.moves();
    return search.best()->peak;
  }

  // Is there no plan below `peak`? Only ops that may not run again can see to that.
  std::optional<PeakBound> bound_below(Bytes peak) const {
    bool all_again = true;
    for (const OpId op : graph_.ops()) all_again = all_again && graph_.recomputable(op);
    if (all_again || peak <= floor_) return std::nullopt;
    Proof proof(graph_, peak - Bytes{1}, limits_.techniques);
    const double seconds = limits_.time ? kShareOfProof * watch_.seconds() : kNever;
    proof.go_on(nullptr, nullptr, stop_after(seconds, polls_without_a_clock(kProofPolls)));
    return proof.peak();
  }

  // How often work that takes longer with more ops may ask whether to stop: where no clock ends
  // it, this does.
  std::int64_t polls_without_a_clock(std::int64_t polls) const {
    if (limits_.time) return kAnyNumber;
    return std::max<std::int64_t>(polls / static_cast<std::int64_t>(graph_.ops().size()), 10);
  }

  std::int64_t patience() const {
    return kPatience * static_cast<std::int64_t>(graph_.ops().size());
  }

  // At the smallest peak there are plans near it already: those far above it are not worth a walk.
  void leave_out_far_starts(Bytes smallest) {
    std::erase_if(starts_, [&](const PlanOrder& start) {
      return start.peak.count() / kFar > smallest.count();
    });
  }

  void hand_over(Search& search) {
    for (PlanOrder& start : starts_) search.add(std::move(start), watch_);
    starts_.clear();
  }

  // A cost that is near enough to the best there can be.
  Cost enough(const Proof& proof) const {
    const Cost proven = graph_.base_cost() + proof.extra();
    const double slack = std::min(limits_.gap * static_cast<double>(proven.count()), 0x1p60);
    return proven + Cost{static_cast<std::int64_t>(slack)};
  }

  bool is_done(const Proof& proof, const Search& search) const {
    if (proof.peak() || watch_.must_stop()) return true;
    return search.fits() && search.best()->cost <= enough(proof);
  }

  // In its share of the time that has passed since a cheap plan is looked for.
  void prove(Proof& proof, const Search& search) {
    const double share = vain_proofs_ > 0 ? kShareOfVainProof : kShareOfProof;
    const double seconds = share * (watch_.seconds() - begun_) + kLeastProof - proving_;
    prove_for(limits_.time ? seconds : double{kNever}, proof, search);
  }

  void prove_for(double seconds, Proof& proof, const Search& search) {
    const double begun = watch_.seconds();
    const PlanOrder* const known = search.fits() ? &*search.best() : nullptr;
    const PlanOrder* const other = known != nullptr ? &search.one_of_the_best(looks_++) : nullptr;
    proof.go_on(known, other, stop_after(seconds, polls_without_a_clock(kProofPolls)));
    proving_ += watch_.seconds() - begun;
    vain_proofs_ = proof.extra() > extra_ ? 0 : vain_proofs_ + 1;
    extra_ = proof.extra();
    peak_bound_ = proof.peak();
    report(*search.best(), extra_);
  }

  void report(const PlanOrder& best, Cost extra) const {
    const auto base = static_cast<double>(std::max<std::int64_t>(1, graph_.base_cost().count()));
    const double proven = 100 * static_cast<double>(extra.count()) / base;
    const double paid = 100 * static_cast<double>((best.cost - graph_.base_cost()).count()) / base;
    const bool fits = !problem_.budget.bytes || best.peak <= *problem_.budget.bytes;
    watch_.report(
        fits ? fmt::format("+{:.3f} %, proven +{:.3f} %, gap {:.3f}", paid, proven, paid - proven)
             : fmt::format("none fits yet, proven +{:.3f} %", proven));
  }

  const Problem& problem_;
  const Graph& graph_;
  const Limits& limits_;
  const Stopwatch watch_;
  Candidates candidates_;
  const Bytes floor_;
  std::vector<PlanOrder> starts_;  // not handed over yet
  std::int64_t moves_spent_ = 0;   // on the smallest peak
  bool walked_from_all_ = false;   // start plans
  double begun_ = 0;               // seconds: when it began to look for a cheap plan
  double proving_ = 0;             // seconds
  int looks_ = 0;                  // at what can be proven
  int vain_proofs_ = 0;            // of these, since one proved more
  Cost extra_;                     // proven
  std::optional<PeakBound> peak_bound_;
};

}  // namespace

Findings search_and_prove(const Problem& problem, const Limits& limits) {
  return Auto(problem, limits).run();
}

}  // namespace reprise
