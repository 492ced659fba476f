// SPDX-License-Identifier: Apache-2.0
#include "core/checkpoint/peers.hpp"

#include <nlohmann/json.hpp>

#include "core/base/common_error.hpp"

namespace eng {
namespace {

using Json = nlohmann::json;

std::string failure(Exit exit, const char* what, const std::string& help) {
  return "-" + Json{exit, what, help}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::vector<std::string> Peers::agree(const std::function<std::string()>& work) const {
  if (size == 1) return {work()};
  std::string mine;
  try {
    mine = "+" + work();
  } catch (const Error& e) {
    mine = failure(e.exit(), e.what(), e.help());
  } catch (const std::exception& e) {
    mine = failure(Exit::bug, e.what(), "");
  }
  std::vector<std::string> all = exchange(mine);
  for (size_t r = 0; r < all.size(); ++r) {
    if (!all[r].starts_with('-')) {
      all[r].erase(0, 1);
      continue;
    }
    const Json e = Json::parse(all[r].substr(1));
    throw CommonError(e[0].get<Exit>(), fmt::format("rank {}: {}", r, e[1].get<std::string>()), e[2]);
  }
  return all;
}

std::string Peers::lead(const std::function<std::string()>& work) const {
  return agree([&] { return rank == 0 ? work() : std::string(); })[0];
}

}  // namespace eng
