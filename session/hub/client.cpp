// SPDX-License-Identifier: Apache-2.0
#include "session/hub/client.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <thread>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/file.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/progress.hpp"

namespace eng::hub {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

fs::path token_file() {
  if (const std::string path = variable("HF_TOKEN_PATH"); !path.empty()) return path;
  if (const std::string home = variable("HF_HOME"); !home.empty()) return fs::path(home) / "token";
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "huggingface/token";
  const std::string home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache/huggingface/token";
}

bool is_local(const std::string& origin) {
  return origin.starts_with("http://127.0.0.1:") || origin.starts_with("http://localhost:") ||
         origin.starts_with("http://[::1]:");
}

std::string said(const Answer& answer) {
  return answer.error_message.empty() ? "" : fmt::format(": {}", printable(answer.error_message, 300));
}

// Throws Error(128 + signal) if a signal comes.
void wait(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (const int signal = Signals::pending()) throw Error(static_cast<Exit>(128 + signal), "stopped");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

std::string endpoint_of_environment() {
  std::string out = variable("HF_ENDPOINT");
  if (out.empty()) return "https://huggingface.co";
  while (out.ends_with('/')) out.pop_back();
  const bool good = (out.starts_with("https://") || out.starts_with("http://")) &&
                    out.find_first_of("?#@\\ ") == out.npos &&
                    std::all_of(out.begin(), out.end(), [](unsigned char c) { return c > 32 && c < 127; });
  if (!good)
    throw Error(Exit::usage, fmt::format("HF_ENDPOINT is no address of a hub: `{}`", printable(out)),
                "for example HF_ENDPOINT=https://hf-mirror.com");
  return out;
}

std::string token_of_environment() {
  std::string token = variable("HF_TOKEN"), from = "HF_TOKEN";
  if (token.empty() && variable("HF_HUB_DISABLE_IMPLICIT_TOKEN").empty()) {
    const fs::path path = token_file();
    std::error_code none;
    if (path.empty() || !fs::is_regular_file(path, none)) return "";
    token = read_text(path, 4096, Exit::usage);
    from = path.string();
  }
  const auto blank = [](unsigned char c) { return std::isspace(c) != 0; };
  while (!token.empty() && blank(token.back())) token.pop_back();
  token.erase(token.begin(), std::find_if_not(token.begin(), token.end(), blank));
  if (!std::all_of(token.begin(), token.end(), [](unsigned char c) { return c > 32 && c < 127; }))
    throw Error(Exit::usage, from + " holds no token: it has blanks or other characters that no token has",
                "copy the token again: it begins with hf_");
  return token;
}

std::optional<double> retry_seconds(const std::string& header) {
  if (!header.empty() && header.size() < 10 &&
      std::all_of(header.begin(), header.end(), [](unsigned char c) { return std::isdigit(c) != 0; }))
    return std::stod(header);
  std::tm at{};
  if (const char* end = ::strptime(header.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &at); end && !*end)
    return std::max(0.0, std::difftime(::timegm(&at), std::time(nullptr)));
  return std::nullopt;
}

Client::Client(Transport& transport, Place place, std::string token, std::function<void(const std::string&)> note)
    : transport_(transport),
      place_(std::move(place)),
      token_(std::move(token)),
      home_(transport.origin(place_.endpoint)) {
  if (token_.empty() || home_.starts_with("https:") || is_local(home_)) return;
  note(fmt::format("the token is not sent to {}, where others could read it: only https hides it", place_.endpoint));
  token_.clear();
}

Answer Client::get(Request request, const Body& body) {
  const std::string asked = request.url;
  for (int redirects = 0;; ++redirects) {
    const std::string origin = transport_.origin(request.url);
    if (home_.starts_with("https:") && !origin.starts_with("https:"))
      throw Error(Exit::communication,
                  fmt::format("{} leads to {}, without encryption; it is not followed", asked, origin));
    request.token = origin == home_ ? token_ : "";
    Answer answer = transport_.get(request, body);
    if (answer.status == 200 || answer.status == 206 || answer.status == 416) return answer;
    if (answer.status < 300 || answer.status > 399 || answer.location.empty())
      refuse(answer, request.url, !request.token.empty());
    if (redirects == most_redirects)
      throw Error(Exit::communication,
                  fmt::format("{} leads to another address more than {} times", asked, most_redirects),
                  "HF_ENDPOINT or a proxy is set up wrongly");
    request.url = answer.location;
  }
}

void Client::refuse(const Answer& answer, const std::string& url, bool with_token) const {
  const std::string what = place_.kind == Kind::model ? "model" : "data set";
  const std::string status = fmt::format("HTTP {}{}", answer.status, said(answer));
  const std::string tokens = place_.endpoint + "/settings/tokens";
  const std::string gated = fmt::format("accept its licence on {} with the account of the token", place_.page());
  switch (answer.status) {
    case 401:
      if (with_token)
        throw Error(Exit::environment, fmt::format("{} does not accept the token ({})", place_.endpoint, status),
                    fmt::format("make a new one at {} and set HF_TOKEN, or unset it", tokens));
      throw Error(Exit::environment,
                  fmt::format("{} shows {} {} only with a token, or has none of this name ({})", place_.endpoint, what,
                              place_.repository, status),
                  fmt::format("check the name. If it is gated or private, {}, make a token at {} and set HF_TOKEN",
                              gated, tokens));
    case 403:
      throw Error(Exit::environment,
                  fmt::format("{} refuses {} {} ({})", place_.endpoint, what, place_.repository, status),
                  gated + (with_token ? "; a token that is limited to some repositories must name this one"
                                      : ", and set HF_TOKEN"));
    case 404:
      throw Error(
          Exit::usage,
          fmt::format("{} has no {} {} with the revision `{}` and {} ({})", place_.endpoint, what, place_.repository,
                      printable(place_.revision), printable(url, 400), status),
          fmt::format("look at {}; a data set is downloaded by `engine data get`, a model by `engine model get`",
                      place_.page()));
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504: {
      const auto seconds = retry_seconds(answer.retry_after);
      const std::string why = fmt::format("{} answers {}", transport_.origin(url), status);
      if (seconds && *seconds > Tries::longest_wait)
        throw Error(Exit::communication, fmt::format("{}, and asks to wait for {}", why, duration_text(*seconds)),
                    fmt::format("try again then: `{}` goes on where it stopped{}", place_.command(),
                                with_token ? "" : ". With a token (HF_TOKEN) the hub allows more requests"));
      throw Broken(why, seconds);
    }
    default:
      throw Error(Exit::communication, fmt::format("{}: {}", printable(url, 400), status));
  }
}

void Tries::again(const Broken& why, uint64_t bytes, const std::string& command) {
  if (bytes >= uint64_t{1} << 20) failed_ = 0;
  if (++failed_ == most)
    throw Error(Exit::communication, fmt::format("{}; given up after {} tries", why.what(), most),
                fmt::format("try again later: `{}` goes on where it stopped. Where the hub cannot be reached, "
                            "HF_ENDPOINT names a mirror, for example https://hf-mirror.com",
                            command));
  const double seconds = std::max(std::ldexp(pause_, failed_ - 1), std::min(why.wait.value_or(0), longest_wait));
  note_(fmt::format("{}; next try in {}", why.what(), duration_text(seconds)));
  wait(seconds);
}

}  // namespace eng::hub
