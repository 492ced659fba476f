// SPDX-License-Identifier: Apache-2.0
// Signed requests to a store, and tries of them.
#pragma once

#include <functional>
#include <memory>

#include "session/hub/transport.hpp"
#include "session/store/sign.hpp"

namespace eng::store {

struct Asked {
  std::string method;
  const std::string* key = nullptr;  // below the place; null: the bucket
  Pairs query = {};
  Pairs headers = {};  // names in small letters
  std::string text = {};
  hub::Source source = {};  // in place of `text`
  uint64_t source_bytes = 0;
  std::string source_sha256 = {};
};

struct Answered {
  std::string body, etag;
};

class Requests {
 public:
  static constexpr int most = 6;               // tries that bring nothing
  static constexpr double first_pause = 0.5;   // seconds; they double
  static constexpr double longest_wait = 300;  // seconds that a store may ask for

  Requests(Place place, Credentials who, double stall);
  const Place& place() const { return place_; }
  void stop_when(std::function<bool()> stop) { stop_ = std::move(stop); }

  // Throws Error(Exit::data) for a body longer than `limit`, and for an object or upload that is not there, but for
  // DELETE; Error(Exit::environment) for an answer to PUT that no store gives.
  Answered ask(const Asked& asked, uint64_t limit = 1 << 16);
  // One try: the bytes of an object from `from` on. Throws hub::Broken as well.
  void receive(const std::string& key, uint64_t from, const std::function<void(std::string_view)>& take);
  // Tries it again after hub::Broken. Throws Error(Exit::communication) after the last try, Error(Exit::stopped).
  void again(const std::function<void()>& work);
  // Throws Error(Exit::environment): something answers 200, but not as a store does.
  [[noreturn]] void no_store(const std::string& what) const;

 private:
  hub::Answer send(const Asked& asked, uint64_t from, const hub::Body& body);
  [[noreturn]] void refuse(const hub::Answer& answer, const Asked& asked) const;
  void wait(double seconds) const;
  const Place place_;
  const Credentials who_;
  std::function<bool()> stop_;
  std::unique_ptr<hub::Transport> transport_;
  uint64_t received_ = 0;  // bytes of objects
};

}  // namespace eng::store
