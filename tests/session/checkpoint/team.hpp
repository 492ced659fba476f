// SPDX-License-Identifier: Apache-2.0
// Threads that stand for ranks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "scratch.hpp"
#include "session/checkpoint/share.hpp"

namespace eng::test {

class Team {
 public:
  // `timeout`: seconds that a rank waits for the others.
  explicit Team(uint32_t size, double timeout = 30) : said_(size), timeout_(timeout) {}

  Peers peers(uint32_t rank) {
    Peers p{rank, uint32_t(said_.size())};
    p.timeout = timeout_;
    p.exchange = [this, rank, own = std::this_thread::get_id()](const std::string& mine) {
      if (std::this_thread::get_id() != own) throw Error(Exit::bug, "an exchange on another thread");
      return exchange(rank, mine);
    };
    return p;
  }

 private:
  std::vector<std::string> exchange(uint32_t rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    said_[rank] = mine;
    const int round = round_;
    if (++here_ == said_.size()) {
      all_ = said_;
      here_ = 0;
      ++round_;
      changed_.notify_all();
    } else if (!changed_.wait_for(lock, std::chrono::duration<double>(timeout_), [&] { return round_ != round; })) {
      throw Error(Exit::communication, "not all ranks came");
    }
    return all_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> said_, all_;
  double timeout_;
  size_t here_ = 0;
  int round_ = 0;
};

// Runs `work` on every rank; what each was refused with, "accepted" if it was not.
template <class Work>
std::vector<std::string> ranks(uint32_t size, Exit exit, Work work) {
  Team team(size);
  std::vector<std::string> out(size);
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      try {
        out[r] = refusal(exit, [&] { work(size == 1 ? Peers{} : team.peers(r)); });
      } catch (const std::exception& e) {
        out[r] = std::string("not an Error: ") + e.what();
      }
    });
  for (auto& t : threads) t.join();
  return out;
}

inline std::vector<std::string> same_text(uint32_t size, const std::string& text) {
  return std::vector<std::string>(size, text);
}

}  // namespace eng::test
