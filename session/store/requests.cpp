// SPDX-License-Identifier: Apache-2.0
#include "session/store/requests.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/clock.hpp"
#include "session/hub/client.hpp"
#include "session/ranks/signals.hpp"
#include "session/store/xml.hpp"

namespace eng::store {
namespace {

// True for a failure that another try may mend.
bool is_passing(int status, const std::string& code) {
  static const std::set<std::string> codes = {"SlowDown",
                                              "InternalError",
                                              "RequestTimeout",
                                              "ServiceUnavailable",
                                              "OperationAborted",
                                              "BadDigest",
                                              "XAmzContentSHA256Mismatch",
                                              "IncompleteBody"};
  return status == 408 || status == 429 || (status >= 500 && status != 501 && status != 505) || codes.count(code);
}

// True for a refusal that other keys may mend.
bool is_about_keys(int status, const std::string& code) {
  return status == 401 || status == 403 || code == "ExpiredToken" || code == "InvalidToken" ||
         code == "AuthorizationHeaderMalformed";
}

std::string word_of(const std::string& error, const char* name) try {
  return printable(text_of(error, name), 300);
} catch (const Error&) {
  return "";
}

}  // namespace

Requests::Requests(Place place, Credentials who, double stall)
    : place_(std::move(place)),
      who_(std::move(who)),
      stop_([] { return Signals::pending() != 0; }),
      transport_(hub::open_transport(stall, [this] { return stop_(); })) {
  transport_->origin(place_.origin());  // throws for what is no address
}

void Requests::wait(double seconds) const {
  const auto began = SteadyClock::now();
  while (since(began) < seconds) {
    if (stop_()) throw Error(Exit::stopped, "stopped");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void Requests::again(const std::function<void()>& work) {
  constexpr uint64_t enough = 1 << 20;  // bytes; a try that brings so many is none that brings nothing
  uint64_t before = received_;
  for (int failed = 0;; before = received_) try {
      return work();
    } catch (const hub::Broken& why) {
      if (received_ - before >= enough) failed = 0;
      if (++failed == most)
        throw Error(Exit::communication,
                    fmt::format("{}: {}; given up after {} tries", place_.address(), why.what(), most));
      wait(std::max(std::ldexp(first_pause, failed - 1), std::min(why.wait.value_or(0), longest_wait)));
    }
}

hub::Answer Requests::send(const Asked& asked, uint64_t from, const hub::Body& body) {
  const std::string sum = asked.source ? asked.source_sha256 : sha256_hex(asked.text);
  const std::string path = place_.path(asked.key);
  const Pairs headers = signed_headers({asked.method, place_.host(), path, asked.query, asked.headers, sum}, who_,
                                       place_.region, std::time(nullptr));
  hub::Request request;
  const std::string query = query_text(asked.query);
  request.url = place_.origin() + path + (query.empty() ? "" : "?" + query);
  request.from = from;
  request.method = asked.method;
  request.headers.push_back("Host: " + place_.host());
  for (const auto& [name, value] : headers) request.headers.push_back(name + ": " + value);
  if (asked.source) {
    request.body = asked.source, request.body_bytes = asked.source_bytes;
  } else if (asked.method == "PUT" || asked.method == "POST") {
    request.body_bytes = asked.text.size();
    request.body = [&](uint64_t at, char* to, size_t n) { return asked.text.copy(to, n, at); };
  }
  hub::Answer answer = transport_->get(request, body);
  if (answer.status == 200 || answer.status == 204 || answer.status == 206) return answer;
  if (answer.status == 404 && asked.method == "DELETE") return answer;
  refuse(answer, asked);
}

Answered Requests::ask(const Asked& asked, uint64_t limit) {
  Answered out;
  again([&] {
    out = {};
    const hub::Answer answer = send(asked, 0, [&](const hub::Answer&, std::string_view piece) {
      out.body += piece;
      if (out.body.size() > limit)
        throw Error(Exit::data, fmt::format("{}: an answer of more than {} bytes", place_.address(), limit));
    });
    out.etag = answer.etag;
  });
  if (asked.method == "PUT" && out.etag.empty()) no_store("no ETag in the answer to PUT");
  return out;
}

void Requests::no_store(const std::string& what) const {
  throw Error(Exit::environment, fmt::format("{}: what answers is no store: {}", place_.address(), what),
              "AWS_ENDPOINT_URL may name something else, or a proxy answers in the place of the store");
}

void Requests::receive(const std::string& key, uint64_t from, const std::function<void(std::string_view)>& take) {
  const std::string begins = fmt::format("bytes {}-", from);
  send({"GET", &key}, from, [&](const hub::Answer& answer, std::string_view piece) {
    const bool rest = answer.status == 206 && answer.content_range.starts_with(begins);
    if (from && !rest)
      throw Error(Exit::communication,
                  fmt::format("{}/{}: the store does not send the rest of an object", place_.address(), key),
                  "a proxy on the way may remove the header Range");
    received_ += piece.size();
    take(piece);
  });
}

void Requests::refuse(const hub::Answer& answer, const Asked& asked) const {
  const std::string code = word_of(answer.error, "Code"), message = word_of(answer.error, "Message");
  const std::string said = fmt::format("HTTP {}{}{}{}{}", answer.status, code.empty() ? "" : " ", code,
                                       message.empty() ? "" : ": ", message);
  const std::string what = asked.key ? fmt::format("{}/{}", place_.address(), *asked.key) : place_.address();
  if (is_passing(answer.status, code))
    throw hub::Broken(fmt::format("{} {}", asked.method, said), hub::retry_seconds(answer.retry_after));
  if (code == "NoSuchBucket" || (answer.status == 404 && !asked.key))
    throw Error(Exit::environment, fmt::format("{}: there is no bucket {} ({})", what, place_.bucket, said),
                "make it, or correct the address or AWS_ENDPOINT_URL");
  if (answer.status == 404) throw Error(Exit::data, fmt::format("{}: there is no such object ({})", what, said));
  if (code == "RequestTimeTooSkewed")
    throw Error(Exit::environment, fmt::format("{}: {}", what, said), "set the clock of this machine");
  const std::string region = answer.region.empty() ? word_of(answer.error, "Region") : printable(answer.region, 40);
  if (!region.empty() && region != place_.region)
    throw Error(Exit::environment,
                fmt::format("{}: the bucket is in the region {}, not in {} ({})", what, region, place_.region, said),
                "set AWS_REGION=" + region);
  if (answer.status >= 300 && answer.status < 400)
    throw Error(Exit::environment,
                fmt::format("{}: it is elsewhere: {} ({})", what, printable(answer.location, 300), said),
                "correct AWS_ENDPOINT_URL or AWS_REGION");
  if ((answer.status >= 400 && answer.status < 500) || answer.status == 501)
    throw Error(Exit::environment, fmt::format("{}: the store refuses {} ({})", what, asked.method, said),
                code == "AccessDenied" ? "the key may lack the right to list, read, write or delete here"
                : is_about_keys(answer.status, code)
                    ? "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, and AWS_SESSION_TOKEN, which expires"
                    : "AWS_ENDPOINT_URL may name something else, or the store lacks this request");
  throw Error(Exit::communication, fmt::format("{}: {} fails ({})", what, asked.method, said));
}

}  // namespace eng::store
