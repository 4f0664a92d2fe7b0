#include "compile/residency/eviction.h"

#include <algorithm>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/check.h"

namespace temper {
namespace {

// A gap, in numbers of the steps where not all gaps fit: it takes room at steps [first, last).
struct Contender {
  size_t gap = 0;
  int first = 0, last = 0;
  Bytes size;
  double reload = 0;
};

// The steps at which not all contenders fit; others do not constrain the choice and are left out.
struct Contest {
  std::vector<Contender> contenders;  // by first step
  std::vector<Bytes> room;            // per step
};

// Reduces each run of steps with the same contenders to its tightest step.
Contest Shortened(const Contest& contest) {
  std::vector<int> borders;
  for (const Contender& c : contest.contenders) borders.insert(borders.end(), {c.first, c.last});
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  Contest shorter{.contenders = contest.contenders};
  for (size_t k = 0; k + 1 < borders.size(); ++k) {
    shorter.room.push_back(*std::min_element(contest.room.begin() + borders[k], contest.room.begin() + borders[k + 1]));
  }
  const auto number = [&](int step) {
    return static_cast<int>(std::lower_bound(borders.begin(), borders.end(), step) - borders.begin());
  };
  for (Contender& c : shorter.contenders) {
    c.first = number(c.first);
    c.last = number(c.last);
  }
  return shorter;
}

// Room left at every step: minimum over a range and subtraction from a range in O(log steps).
class Headroom {
 public:
  explicit Headroom(const std::vector<Bytes>& room) {
    while (leaves_ < room.size()) leaves_ *= 2;
    least_.assign(2 * leaves_, kUnbounded);
    taken_.assign(2 * leaves_, 0);
    for (size_t i = 0; i < room.size(); ++i) least_[leaves_ + i] = room[i].v;
    for (size_t i = leaves_ - 1; i > 0; --i) least_[i] = std::min(least_[2 * i], least_[2 * i + 1]);
  }
  Bytes Least(int first, int last) const {
    return {Least(1, 0, leaves_, static_cast<size_t>(first), static_cast<size_t>(last))};
  }
  void Take(int first, int last, Bytes size) {
    Take(1, 0, leaves_, static_cast<size_t>(first), static_cast<size_t>(last), size.v);
  }

 private:
  static constexpr int64_t kUnbounded = INT64_MAX / 2;

  int64_t Least(size_t node, size_t begin, size_t end, size_t first, size_t last) const {
    if (last <= begin || end <= first) return kUnbounded;
    if (first <= begin && end <= last) return least_[node];
    const size_t middle = (begin + end) / 2;
    return std::min(Least(2 * node, begin, middle, first, last), Least(2 * node + 1, middle, end, first, last)) -
           taken_[node];
  }
  void Take(size_t node, size_t begin, size_t end, size_t first, size_t last, int64_t size) {
    if (last <= begin || end <= first) return;
    if (first <= begin && end <= last) {
      least_[node] -= size;
      taken_[node] += size;
      return;
    }
    const size_t middle = (begin + end) / 2;
    Take(2 * node, begin, middle, first, last, size);
    Take(2 * node + 1, middle, end, first, last, size);
    least_[node] = std::min(least_[2 * node], least_[2 * node + 1]) - taken_[node];
  }

  size_t leaves_ = 1;
  std::vector<int64_t> least_, taken_;  // taken_: from all steps of a node; not included in its children's least_
};

// Which contenders stay, and the seconds of reload of the others.
struct Choice {
  std::vector<bool> kept;
  double paid = 0;
};

// Prefix sums of the price of a byte: a contender's room costs size * (price[last] - price[first]).
using PriceUntil = std::vector<double>;

// Prices, and the lower bound on the cost of any choice that they imply.
struct Market {
  PriceUntil until;
  double least = 0;
};

class Chooser {
 public:
  explicit Chooser(const Contest& contest) : room_(contest.room), all_(contest.contenders) {
    leave_.resize(room_.size() + 1);
    for (size_t i = 0; i < all_.size(); ++i) leave_[static_cast<size_t>(all_[i].last)].push_back(i);
  }

  Choice Run() {
    double density = 0, steps = 0;
    for (const Contender& c : all_) {
      density += c.reload / Weight(c);
      steps += c.last - c.first;
    }
    // The same price at every step. With price zero, the cheapest reload
    // per byte is dropped; with a high price, the farthest next use.
    for (const double scale : {0.0, 1.0, 1e6}) {
      PriceUntil price(room_.size() + 1);
      for (size_t t = 0; t < price.size(); ++t) price[t] = static_cast<double>(t) * scale * density / steps;
      Consider(Sweep(price));
    }
    const Market market = FindPrices();
    Consider(Sweep(market.until));
    if (market.least >= best_.paid) return best_;
    if (all_.size() <= kMostSearched) {
      Consider(Search(market.until));
    } else if (all_.size() <= kMostImproved) {
      Improve();
    }
    return best_;
  }

 private:
  static constexpr size_t kMostSearched = 64;  // bits of a set
  static constexpr size_t kMostImproved =
      1024;  // some 0.1 s; with more, each matters less and sweeps are closer to optimal
  static double Weight(const Contender& c) { return static_cast<double>(c.size.v); }
  static size_t At(int step) { return static_cast<size_t>(step); }

  void Consider(Choice choice) {
    if (best_.kept.empty() || choice.paid < best_.paid) best_ = std::move(choice);
  }

  // Goes step by step: if the present contenders do not fit, drops the one worth least per byte: its reload minus the
  // price of its room from here on. The price up to here is the same for all, so the order does not change.
  Choice Sweep(const PriceUntil& price) const {
    Choice choice{std::vector<bool>(all_.size(), true), 0};
    std::vector<double> worth(all_.size());
    for (size_t i = 0; i < all_.size(); ++i) worth[i] = all_[i].reload / Weight(all_[i]) - price[At(all_[i].last)];
    const auto goes_later = [&](size_t a, size_t b) {
      if (worth[a] != worth[b]) return worth[a] > worth[b];
      return all_[a].last != all_[b].last ? all_[a].last < all_[b].last : a < b;
    };
    std::priority_queue<size_t, std::vector<size_t>, decltype(goes_later)> there(goes_later);
    std::vector<size_t> dropped;
    Bytes taken{};
    size_t next = 0;
    for (size_t t = 0; t < room_.size(); ++t) {
      for (const size_t i : leave_[t]) {
        if (choice.kept[i]) taken = taken - all_[i].size;
      }
      for (; next < all_.size() && At(all_[next].first) == t; ++next) {
        there.push(next);
        taken += all_[next].size;
      }
      while (taken > room_[t]) {
        const size_t i = there.top();
        there.pop();
        if (At(all_[i].last) <= t) continue;  // has ended
        choice.kept[i] = false;
        taken = taken - all_[i].size;
        dropped.push_back(i);
      }
    }
    Fill(std::move(dropped), &choice);
    return choice;
  }

  // Keeps dropped gaps that fit into room that others left later: most expensive reloads first.
  void Fill(std::vector<size_t> dropped, Choice* choice) const {
    Headroom headroom(RoomBeside(*choice, 0, 0));
    std::stable_sort(dropped.begin(), dropped.end(),
                     [&](size_t a, size_t b) { return all_[a].reload > all_[b].reload; });
    for (const size_t i : dropped) {
      const Contender& c = all_[i];
      if (headroom.Least(c.first, c.last) >= c.size) {
        headroom.Take(c.first, c.last, c.size);
        choice->kept[i] = true;
      } else {
        choice->paid += c.reload;
      }
    }
  }

  // The room that the kept contenders of `choice` leave, not counting contenders [begin, end).
  std::vector<Bytes> RoomBeside(const Choice& choice, size_t begin, size_t end) const {
    std::vector<Bytes> room(room_.size() + 1);  // first: by how much it changes
    for (size_t i = 0; i < all_.size(); ++i) {
      if (!choice.kept[i] || (begin <= i && i < end)) continue;
      room[At(all_[i].first)] = room[At(all_[i].first)] - all_[i].size;
      room[At(all_[i].last)] += all_[i].size;
    }
    Bytes taken{};
    for (size_t t = 0; t < room_.size(); ++t) {
      taken += room[t];
      room[t] = room_[t] + taken;
    }
    room.pop_back();
    return room;
  }

  // Optimizes a few consecutive contenders at a time, with all others fixed.
  void Improve() {
    constexpr size_t kFew = 16;
    for (size_t begin = 0; begin < all_.size(); begin += kFew / 2) {
      const size_t end = std::min(all_.size(), begin + kFew);
      double paid = 0;
      for (size_t i = begin; i < end; ++i) paid += best_.kept[i] ? 0 : all_[i].reload;
      if (paid == 0) continue;
      const auto at = [&](size_t i) { return all_.begin() + static_cast<ptrdiff_t>(i); };
      const Contest few = Shortened({{at(begin), at(end)}, RoomBeside(best_, begin, end)});
      const Choice chosen = Chooser(few).Run();
      if (chosen.paid >= paid) continue;
      best_.paid -= paid - chosen.paid;
      std::copy(chosen.kept.begin(), chosen.kept.end(), best_.kept.begin() + static_cast<ptrdiff_t>(begin));
    }
  }

  // Finds prices by subgradient steps on the dual of the relaxed problem, whose value is a lower bound on the cost of
  // any choice. The step size follows from the distance to the best choice so far (Polyak's rule).
  Market FindPrices() const {
    constexpr int kRounds = 40;  // of O(contenders + steps): beyond, choices improved by less than 0.1 %
    std::vector<double> price(room_.size(), 0.0), excess(room_.size() + 1);
    PriceUntil until(room_.size() + 1, 0.0);
    Market best{until, -1};
    double step = 1;
    for (int round = 0; round < kRounds; ++round) {
      std::fill(excess.begin(), excess.end(), 0.0);
      double value = 0;  // of the dual: cost of reloads and room, minus the price of all room
      for (const Contender& c : all_) {
        const double rent = Weight(c) * (until[At(c.last)] - until[At(c.first)]);
        value += std::min(rent, c.reload);
        if (rent > c.reload) continue;
        excess[At(c.first)] += Weight(c);
        excess[At(c.last)] -= Weight(c);
      }
      double norm = 0, wanted = 0;
      for (size_t t = 0; t < room_.size(); ++t) {
        const double room = static_cast<double>(room_[t].v);
        value -= price[t] * room;
        wanted += excess[t];
        excess[t] = wanted;
        const double over = wanted - room;
        if (over > 0 || price[t] > 0) norm += over * over;
      }
      if (value > best.least) {
        best = {until, value};
      } else {
        step *= 0.9;
      }
      if (norm == 0 || value >= best_.paid) break;
      const double length = step * (best_.paid - value) / norm;
      for (size_t t = 0; t < room_.size(); ++t) {
        price[t] = std::max(0.0, price[t] + length * (excess[t] - static_cast<double>(room_[t].v)));
        until[t + 1] = until[t] + price[t];
      }
    }
    return best;
  }

  // Exact search for up to 64 contenders: all choices that could be best, as bit sets, step by step. Where the present
  // contenders do not fit, it tries dropping every minimal set of them. Contenders that have ended are forgotten: among
  // choices that kept the same present contenders, only the cheapest continues, unless by the prices' lower bound it
  // cannot beat the best known choice. If there are too many states, those with the lowest bound continue.
  Choice Search(const PriceUntil& price) const {
    constexpr size_t kMostStates = 1024;
    int64_t sets = 100'000;  // tried in total, some 10 ms; after that, the result of the sweeps stands
    struct State {
      uint64_t dropped = 0;
      double paid = 0;
      double least = 0;  // lower bound on its final cost
    };
    const std::vector<double> later = LeastOfLater(price);
    std::unordered_map<uint64_t, State> states = {{0, {}}}, next_states;  // by set of present contenders
    std::vector<double> dearer(all_.size());  // increase of the lower bound when a contender is dropped now
    size_t next = 0;
    for (size_t t = 0; t < room_.size(); ++t) {
      uint64_t stay = ~uint64_t{0}, come = 0;
      for (const size_t i : leave_[t]) stay &= ~(uint64_t{1} << i);
      for (; next < all_.size() && At(all_[next].first) == t; ++next) come |= uint64_t{1} << next;
      for (size_t i = 0; i < next; ++i) dearer[i] = std::max(0.0, all_[i].reload - RentFrom(t, all_[i], price));
      next_states.clear();
      for (const auto& [before, state] : states) {
        const uint64_t there = (before & stay) | come;
        State now = state;
        now.least = now.paid + later[t];
        for (uint64_t rest = there; rest != 0; rest &= rest - 1) {
          const Contender& c = all_[Lowest(rest)];
          now.least += std::min(c.reload, RentFrom(t, c, price));
        }
        if (now.least >= best_.paid) continue;
        DropMinimal(there, 0, SizeOf(there) - room_[t], now.least, dearer, &sets, [&](uint64_t gone, double least) {
          State after = now;
          after.least = least;
          after.dropped |= gone;
          for (uint64_t rest = gone; rest != 0; rest &= rest - 1) after.paid += all_[Lowest(rest)].reload;
          if (after.paid >= best_.paid) return;
          const auto [it, fresh] = next_states.try_emplace(there & ~gone, after);
          if (!fresh && after.paid < it->second.paid) it->second = after;
        });
      }
      if (sets <= 0 || next_states.empty()) return best_;  // gave up, or none is better
      if (next_states.size() > kMostStates) {
        std::vector<std::tuple<double, uint64_t, State>> ranked;
        for (const auto& [there, state] : next_states) ranked.push_back({state.least, there, state});
        std::nth_element(ranked.begin(), ranked.begin() + kMostStates, ranked.end(), [](const auto& a, const auto& b) {
          return std::tie(std::get<0>(a), std::get<1>(a)) < std::tie(std::get<0>(b), std::get<1>(b));
        });
        ranked.resize(kMostStates);
        next_states.clear();
        for (const auto& [least, there, state] : ranked) next_states.emplace(there, state);
      }
      std::swap(states, next_states);
    }
    const auto cheapest = std::min_element(states.begin(), states.end(), [](const auto& a, const auto& b) {
      return std::tie(a.second.paid, a.second.dropped) < std::tie(b.second.paid, b.second.dropped);
    });
    Choice choice{std::vector<bool>(all_.size()), cheapest->second.paid};
    for (size_t i = 0; i < all_.size(); ++i) choice.kept[i] = (cheapest->second.dropped >> i & 1) == 0;
    return choice;
  }

  // The price of a contender's room from step t on.
  static double RentFrom(size_t t, const Contender& c, const PriceUntil& price) {
    return Weight(c) * (price[At(c.last)] - price[std::max(t, At(c.first))]);
  }

  // Per step: lower bound on the cost of later contenders, minus the price of all room from the step on.
  std::vector<double> LeastOfLater(const PriceUntil& price) const {
    std::vector<double> later(room_.size(), 0.0);
    for (const Contender& c : all_) later[At(c.first)] += std::min(c.reload, RentFrom(0, c, price));
    double sum = 0;
    for (size_t t = room_.size(); t-- > 0;) {
      sum -= (price[t + 1] - price[t]) * static_cast<double>(room_[t].v);
      sum += std::exchange(later[t], sum);
    }
    return later;
  }

  static size_t Lowest(uint64_t bits) { return static_cast<size_t>(__builtin_ctzll(bits)); }
  Bytes SizeOf(uint64_t set) const {
    Bytes size{};
    for (; set != 0; set &= set - 1) size += all_[Lowest(set)].size;
    return size;
  }

  // Calls `take` with every minimal set of `candidates`, beside those already `gone`,
  // that frees `over` bytes and could be part of a better choice, and with that choice's
  // lower bound. Candidates are added in ascending order, so that each set comes once.
  template <class Take>
  void DropMinimal(uint64_t candidates, uint64_t gone, Bytes over, double least, const std::vector<double>& dearer,
                   int64_t* sets, const Take& take) const {
    if (--*sets <= 0) return;
    if (over.v <= 0) {
      // Minimal: none of them could have stayed.
      for (uint64_t rest = gone; rest != 0; rest &= rest - 1) {
        if (all_[Lowest(rest)].size + over <= Bytes{0}) return;
      }
      take(gone, least);
      return;
    }
    Bytes left = SizeOf(candidates);
    for (uint64_t rest = candidates; rest != 0 && left >= over; rest &= rest - 1) {
      const size_t i = Lowest(rest);
      left = left - all_[i].size;
      if (least + dearer[i] >= best_.paid) continue;
      DropMinimal(rest & (rest - 1), gone | (rest & -rest), over - all_[i].size, least + dearer[i], dearer, sets, take);
    }
  }

  const std::vector<Bytes>& room_;
  const std::vector<Contender>& all_;
  std::vector<std::vector<size_t>> leave_;  // per step: contenders that end here
  Choice best_;
};

// Per step: its number among the steps where not all gaps fit; for other steps, the number of the next such step.
struct ScarceSteps {
  std::vector<int> number;  // per step, and for the end
  std::vector<Bytes> room;
};

ScarceSteps FindScarceSteps(std::span<const Gap> gaps, std::span<const Bytes> used, Bytes capacity) {
  std::vector<int64_t> change(used.size() + 1, 0);
  for (const Gap& g : gaps) {
    TEMPER_CHECK(0 <= g.begin && g.begin < g.end && static_cast<size_t>(g.end) <= used.size())
        << "a gap between steps " << g.begin << " and " << g.end << " of " << used.size();
    change[static_cast<size_t>(g.begin) + 1] += g.size.v;
    change[static_cast<size_t>(g.end)] -= g.size.v;
  }
  ScarceSteps binding;
  binding.number.reserve(used.size() + 1);
  Bytes wanted{};
  for (size_t t = 0; t < used.size(); ++t) {
    wanted += Bytes{change[t]};
    binding.number.push_back(static_cast<int>(binding.room.size()));
    const Bytes room = std::max(Bytes{}, capacity - used[t]);
    if (wanted > room) binding.room.push_back(room);
  }
  binding.number.push_back(static_cast<int>(binding.room.size()));
  return binding;
}

}  // namespace

std::vector<bool> ChooseKept(std::span<const Gap> gaps, std::span<const Bytes> used, Bytes capacity) {
  const ScarceSteps binding = FindScarceSteps(gaps, used, capacity);
  std::vector<Contender> contenders;
  for (size_t i = 0; i < gaps.size(); ++i) {
    const Gap& g = gaps[i];
    const Contender c{i, binding.number[static_cast<size_t>(g.begin) + 1], binding.number[static_cast<size_t>(g.end)],
                      g.size, g.reload.v};
    if (c.first < c.last && c.size > Bytes{}) contenders.push_back(c);
  }
  std::stable_sort(contenders.begin(), contenders.end(),
                   [](const Contender& a, const Contender& b) { return a.first < b.first; });
  std::vector<bool> kept(gaps.size(), true);
  // Contenders that share no step, even through others, do not compete.
  for (size_t begin = 0, end = 0; begin < contenders.size(); begin = end) {
    int last = 0;
    for (end = begin; end < contenders.size() && (end == begin || contenders[end].first < last); ++end) {
      last = std::max(last, contenders[end].last);
    }
    const int first = contenders[begin].first;
    Contest contest;
    contest.room.assign(binding.room.begin() + first, binding.room.begin() + last);
    for (size_t i = begin; i < end; ++i) {
      contest.contenders.push_back(contenders[i]);
      contest.contenders.back().first -= first;
      contest.contenders.back().last -= first;
    }
    const Choice choice = Chooser(contest).Run();
    for (size_t i = begin; i < end; ++i) kept[contenders[i].gap] = choice.kept[i - begin];
  }
  return kept;
}

}  // namespace temper
