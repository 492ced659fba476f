// SPDX-License-Identifier: Apache-2.0
// Ranks that differ are found before the first step; threads stand for ranks here.
#include "session/ranks/agree.hpp"

#include <catch2/catch.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "core/trace/op.hpp"
#include "engine/ops.h"
#include "tests/cli/harness.hpp"

using namespace eng;
using cli::has;

namespace {

// An exchange between threads.
class Table {
 public:
  explicit Table(size_t ranks) : ranks_(ranks) {}
  Exchange of(size_t rank) {
    return [this, rank](const std::string& mine) {
      std::unique_lock lock(mutex_);
      const size_t round = rounds_;
      texts_.resize(ranks_);
      texts_[rank] = mine;
      if (++here_ == ranks_) {
        all_ = texts_;
        here_ = 0;
        ++rounds_;
        changed_.notify_all();
      } else {
        changed_.wait(lock, [&] { return rounds_ != round; });
      }
      return all_;
    };
  }
  size_t rounds() const { return rounds_; }

 private:
  size_t ranks_, here_ = 0, rounds_ = 0;
  std::vector<std::string> texts_, all_;
  std::mutex mutex_;
  std::condition_variable changed_;
};

// The error that agree throws on each rank; nullopt if none.
std::vector<std::optional<Error>> agreed(const std::vector<std::vector<Item>>& items, size_t* rounds = nullptr) {
  Table table(items.size());
  std::vector<std::optional<Error>> out(items.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < items.size(); ++rank)
    threads.emplace_back([&, rank] {
      try {
        agree(table.of(rank), items[rank]);
      } catch (const Error& e) {
        out[rank].emplace(e);
      }
    });
  for (std::thread& thread : threads) thread.join();
  if (rounds) *rounds = table.rounds();
  return out;
}

// All ranks must say the same.
Error told(const std::vector<std::vector<Item>>& items) {
  const auto errors = agreed(items);
  for (const auto& e : errors) {
    REQUIRE(e);
    CHECK(std::string(e->what()) == errors[0]->what());
    CHECK(e->exit() == errors[0]->exit());
  }
  return *errors[0];
}

Item config(const std::string& text) {
  return {"configuration", Exit::usage, text, {}};
}

// One all-gather after another on `group`.
Plan plan_of(const std::vector<std::pair<int64_t, uint64_t>>& collectives) {
  Plan plan;
  plan.labels = {{Phase::step, "block 0"}, {Phase::step, "block 1"}};
  Segment segment;
  segment.name = "update";
  for (const auto& [group, bytes] : collectives) {
    Call call;
    call.op = &op(ENG_OP_ALL_GATHER);
    call.attrs.list = {{"group", group, 0}};
    eng_desc desc{};
    desc.dtype = ENG_F32;
    desc.ndim = 1;
    desc.dims[0] = static_cast<int64_t>(bytes);
    call.in = {desc};
    desc.dims[0] *= 2;
    call.out = {desc};
    Action action;
    action.call = static_cast<uint32_t>(plan.calls.size());
    plan.calls.push_back(call);
    segment.actions.push_back(action);
  }
  plan.programs.push_back({"train", {segment}});
  return plan;
}

Ranks ranks_of(uint32_t rank) {
  Ranks ranks(World{rank, 4, rank, 4});
  ranks.groups.push_back(rank < 2 ? std::vector<uint32_t>{0, 1} : std::vector<uint32_t>{2, 3});
  return ranks;
}

}  // namespace

TEST_CASE("equal ranks agree with one exchange", "[ranks]") {
  size_t rounds = 0;
  const std::vector<Item> items = {config("a = 1\nb = 2\n"), {"data", Exit::data, "hash", {}}};
  for (const auto& e : agreed({items, items, items}, &rounds)) CHECK_FALSE(e);
  CHECK(rounds == 1);
  agree({}, items);  // alone
}

TEST_CASE("what only some ranks have must be the same on these", "[ranks]") {
  const auto opened = [](const std::string& hash) { return Item{"kernels of x", Exit::environment, hash, {}, true}; };
  const std::vector<Item> none = {config("a = 1\n")}, one = {config("a = 1\n"), opened("x = version 1\n")};
  for (const auto& e : agreed({none, one, none, one})) CHECK_FALSE(e);
  const Error e = told({none, one, none, {config("a = 1\n"), opened("x = version 2\n")}});
  CHECK(e.exit() == Exit::environment);
  CHECK(has(e.what(), "kernels of x: rank 3 has x = version 2"));
}

TEST_CASE("the first key that differs is named with its ranks", "[ranks]") {
  const std::string low = "optimizer.beta1 = 0.9\noptimizer.learning_rate = 2e-4\ntrain.steps = 8\n",
                    high = "optimizer.beta1 = 0.9\noptimizer.learning_rate = 3e-4\ntrain.steps = 9\n";
  Error e = told({{config(high)}, {config(low)}, {config(high)}});
  CHECK(e.exit() == Exit::usage);
  CHECK(std::string(e.what()) ==
        "the ranks do not have the same configuration: rank 1 has optimizer.learning_rate = 2e-4, ranks 0, 2 have "
        "optimizer.learning_rate = 3e-4");
  // A key that only some have; a text that ends early.
  e = told({{config("a = 1\nc = 3\n")}, {config("a = 1\nb = 2\nc = 3\n")}});
  CHECK(has(e.what(), "rank 1 has b = 2, rank 0 has no b"));
  e = told({{config("a = 1\nb = 2\n")}, {config("a = 1\n")}});
  CHECK(has(e.what(), "rank 1 has no b, rank 0 has b = 2"));
}

TEST_CASE("the first item that differs is reported, with its own exit code", "[ranks]") {
  const Error e = told(
      {{config("a = 1\n"), {"data", Exit::data, "one", {}}}, {config("a = 1\n"), {"data", Exit::data, "two", {}}}});
  CHECK(e.exit() == Exit::data);
  CHECK(has(e.what(), "same data: rank 1 has two, rank 0 has one"));
}

TEST_CASE("an item that a rank does not have at all", "[ranks]") {
  const Error e = told({{config("a = 1\n"), {"plugins", Exit::environment, "x = 1\n", {}}}, {config("a = 1\n")}});
  CHECK(has(e.what(), "same plugins"));
  CHECK(e.exit() == Exit::environment);
  // Even one with an empty text.
  CHECK(has(told({{{"plugins", Exit::environment, "", {}}}, {}}).what(), "same plugins"));
}

TEST_CASE("groups of ranks have separate sequences", "[ranks]") {
  const auto of = [](uint32_t rank, Plan plan) {
    plan.ranks = ranks_of(rank);
    return plan;
  };
  const auto items = [&](uint32_t rank, const Plan& plan) { return collective_items(of(rank, plan)); };
  const auto hash = [&](const Plan& plan) { return collective_hash(of(0, plan)); };
  // Group 2 is {0, 1} for some and {2, 3} for the others, with different sequences: that is as it should be.
  const Plan a = plan_of({{1, 64}, {2, 8}}), b = plan_of({{1, 64}, {2, 16}, {2, 16}});
  for (const auto& e : agreed({items(0, a), items(1, a), items(2, b), items(3, b)})) CHECK_FALSE(e);
  // One member of a group goes another way.
  const Error e = told({items(0, a), items(1, a), items(2, b), items(3, a)});
  CHECK(e.exit() == Exit::environment);
  CHECK(has(e.what(),
            "same collectives: rank 3 has train update x1: eng.all_gather/1 f32 (8) -> f32 (16) block 0, rank 2 has"));
  // And one leaves a collective of all ranks out.
  const Plan c = plan_of({{2, 8}});
  CHECK(has(told({items(0, a), items(1, a), items(2, b), items(3, plan_of({{2, 16}, {2, 16}}))}).what(),
            "same collectives"));
  CHECK(hash(a) == collective_hash(of(1, a)));
  CHECK(hash(a) != hash(c));
  CHECK(hash(plan_of({{1, 64}, {1, 32}})) != hash(plan_of({{1, 32}, {1, 64}})));
}
