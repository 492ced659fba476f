// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/exchange.hpp"

#include <catch2/catch.hpp>

#include "tests/session/checkpoint/scratch.hpp"

using namespace eng;
using Catch::Matchers::Contains;

namespace {

struct Said {
  int64_t count;
  double sum;
};

}  // namespace

TEST_CASE("session: records of all ranks come back bit for bit, by rank", "[session]") {
  const double sums[] = {-0.0, 0x1.8p-1074, 1e308};
  const Exchange exchange = [&](const std::string& mine) {
    std::vector<std::string> all;
    for (int64_t r = 0; r < 3; ++r) {
      const Said said{r, sums[r]};
      all.emplace_back(reinterpret_cast<const char*>(&said), sizeof(said));
    }
    CHECK(mine == all[1]);
    return all;
  };
  const auto all = exchange_records(exchange, Said{1, sums[1]}, "a test");
  REQUIRE(all.size() == 3);
  for (int64_t r = 0; r < 3; ++r) {
    CHECK(all[size_t(r)].count == r);
    CHECK(std::memcmp(&all[size_t(r)].sum, &sums[r], sizeof(double)) == 0);
  }
}

TEST_CASE("session: a record of another length is refused with the rank that gave it", "[session]") {
  for (const std::string& odd : {std::string(), std::string(15, '1'), std::string(17, '1'), std::string("12 0")}) {
    const Exchange exchange = [&](const std::string& mine) { return std::vector<std::string>{mine, mine, odd}; };
    const std::string text = test::refusal(Exit::communication, [&] {
      exchange_records(exchange, Said{1, 2}, "a test");
    });
    CHECK_THAT(text, Contains("a test: rank 2 gave " + std::to_string(odd.size()) + " bytes, not 16"));
  }
}
