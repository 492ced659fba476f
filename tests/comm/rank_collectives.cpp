// SPDX-License-Identifier: Apache-2.0
// Every collective against what it must give.
#include <numeric>
#include <thread>

#include "rank.hpp"

namespace rank {
namespace {

// Element e of what rank r gives in round k: a small whole number, so that sums are exact in any order.
template <class T>
T value(uint32_t r, int64_t e, int k) {
  return static_cast<T>((static_cast<int64_t>(r) * 31 + e * 7 + k * 3) % 61);
}

template <class T>
constexpr int32_t dtype = std::is_same_v<T, float>     ? ENG_F32
                          : std::is_same_v<T, double>  ? ENG_F64
                          : std::is_same_v<T, int64_t> ? ENG_I64
                                                       : ENG_U8;

// All five on one group, twice, with `count` elements per member.
template <class T>
void on_group(eng::Communicator& comm, eng::Id id, const std::vector<uint32_t>& group, int64_t count) {
  const auto n = static_cast<int64_t>(group.size());
  const uint32_t r = comm.world().rank;
  const int64_t self = std::find(group.begin(), group.end(), r) - group.begin();
  if (self == n) return;
  Moved<T> in(static_cast<size_t>(n * count) + 1), out(in.size());
  const auto fill = [&](int k, int64_t elements) {
    for (int64_t e = 0; e < elements; ++e) in[static_cast<size_t>(e)] = value<T>(r, e, k);
    std::fill(out.begin(), out.end(), T(99));
  };
  const auto at = [&](int64_t e) { return out[static_cast<size_t>(e)]; };

  Bound gather(comm, ENG_OP_ALL_GATHER, id, n, dtype<T>, count);
  gather.bind(in.data(), out.data());
  Bound in_place(comm, ENG_OP_ALL_GATHER, id, n, dtype<T>, count);
  in_place.bind(out.data() + self * count, out.data());
  for (int k = 0; k < 3; ++k) {
    fill(k, count);
    if (k % 2) std::copy_n(in.begin(), count, out.begin() + self * count);
    k % 2 ? in_place() : gather();
    for (int64_t m = 0; m < n; ++m)
      for (int64_t e = 0; e < count; ++e) EXPECT(at(m * count + e) == value<T>(group[static_cast<size_t>(m)], e, k));
    EXPECT(at(n * count) == T(99));
  }
  Bound all_to_all(comm, ENG_OP_ALL_TO_ALL, id, n, dtype<T>, n * count);
  all_to_all.bind(in.data(), out.data());
  for (int k = 0; k < 2; ++k) {
    fill(k, n * count);
    all_to_all();
    for (int64_t m = 0; m < n; ++m)
      for (int64_t e = 0; e < count; ++e)
        EXPECT(at(m * count + e) == value<T>(group[static_cast<size_t>(m)], self * count + e, k));
    EXPECT(at(n * count) == T(99));
  }
  for (int64_t root = 0; root < n; ++root) {
    Bound broadcast(comm, ENG_OP_BROADCAST, id, n, dtype<T>, count, root);
    broadcast.bind(in.data(), out.data());
    Bound same(comm, ENG_OP_BROADCAST, id, n, dtype<T>, count, root);
    same.bind(out.data(), out.data());
    for (int k = 0; k < 2; ++k) {
      fill(k, count);
      if (k && self == root) std::copy_n(in.begin(), count, out.begin());
      k ? same() : broadcast();
      for (int64_t e = 0; e < count; ++e) EXPECT(at(e) == value<T>(group[static_cast<size_t>(root)], e, k));
      EXPECT(at(n * count) == T(99));
    }
  }
  if constexpr (std::is_floating_point_v<T>) {
    const auto sum = [&](int64_t e, int k) {
      return std::accumulate(group.begin(), group.end(), T(0), [&](T s, uint32_t m) { return s + value<T>(m, e, k); });
    };
    Bound reduce(comm, ENG_OP_ALL_REDUCE, id, n, dtype<T>, count);
    reduce.bind(in.data(), out.data());
    Bound same(comm, ENG_OP_ALL_REDUCE, id, n, dtype<T>, count);
    same.bind(out.data(), out.data());
    Bound scatter(comm, ENG_OP_REDUCE_SCATTER, id, n, dtype<T>, n * count);
    scatter.bind(in.data(), out.data());
    for (int k = 0; k < 2; ++k) {
      fill(k, n * count);
      if (k) std::copy_n(in.begin(), count, out.begin());
      k ? same() : reduce();
      for (int64_t e = 0; e < count; ++e) EXPECT(at(e) == sum(e, k));
      EXPECT(at(n * count) == T(99));
      fill(k, n * count);
      scatter();
      for (int64_t e = 0; e < count; ++e) EXPECT(at(e) == sum(self * count + e, k));
    }
  }
}

void words(eng::Communicator& comm) {
  const eng::World& w = comm.world();
  for (int k = 0; k < 10; ++k) {
    const auto all =
        comm.exchange(std::string((w.rank + static_cast<uint32_t>(k)) % 5 * 100, static_cast<char>('a' + w.rank)));
    EXPECT(all.size() == w.size);
    for (uint32_t r = 0; r < w.size; ++r)
      EXPECT(all[r] == std::string((r + static_cast<uint32_t>(k)) % 5 * 100, static_cast<char>('a' + r)));
    if (k % 5 == 0) comm.exchange("");
    comm.check();
  }
  EXPECT(comm.exchange("")[0].empty());
}

// Steps gather while the host exchanges.
void beside(eng::Communicator& comm) {
  const uint32_t n = comm.world().size, r = comm.world().rank;
  const int64_t count = 5000;
  Moved<int64_t> mine(count), all(count * n);
  Bound gather(comm, ENG_OP_ALL_GATHER, 1, n, ENG_I64, count);
  gather.bind(mine.data(), all.data());
  std::string wrong;
  std::thread queue([&] {
    try {
      for (int k = 0; k < 15; ++k) {
        for (int64_t e = 0; e < count; ++e) mine[static_cast<size_t>(e)] = value<int64_t>(r, e, k);
        gather();
        for (uint32_t m = 0; m < n; ++m) EXPECT(all[m * count + count - 1] == value<int64_t>(m, count - 1, k));
      }
    } catch (const std::exception& e) {
      wrong = e.what();
    }
  });
  std::string heard;
  try {
    for (int k = 0; k < 15; ++k)
      for (const std::string& one : comm.exchange(std::to_string(k))) EXPECT(one == std::to_string(k));
  } catch (const std::exception& e) {
    heard = e.what();
  }
  queue.join();
  if (!wrong.empty() || !heard.empty()) throw std::runtime_error(wrong + heard);
}

}  // namespace

void collectives(eng::Communicator& comm, bool whole) {
  eng::Ranks ranks(comm.world());
  const uint32_t n = comm.world().size;
  // Overlapping groups, one of them in another order.
  if (n >= 2) ranks.groups.push_back({1, 0});
  if (n >= 3) ranks.groups.push_back({2, 0});
  if (n >= 4) ranks.groups.insert(ranks.groups.end(), {{0, 1}, {2, 3}, {3, 1, 2}});
  comm.make_groups(ranks);
  for (eng::Id id = 1; id <= ranks.groups.size(); ++id) on_group<float>(comm, id, ranks.group(id), 257);
  on_group<uint8_t>(comm, 1, ranks.group(1), 3);
  on_group<double>(comm, 1, ranks.group(1), 1001);
  if (!whole) return;
  on_group<int64_t>(comm, 1, ranks.group(1), 1);
  on_group<float>(comm, 1, ranks.group(1), 300007);  // far beyond what is sent at once
  words(comm);
  beside(comm);
}

}  // namespace rank
