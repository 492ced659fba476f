// SPDX-License-Identifier: Apache-2.0
#include <curl/curl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <exception>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/hub/transport.hpp"
#include "session/ranks/signals.hpp"
#include "session/version.hpp"

namespace eng::hub {
namespace {

// libcurl's functions. Debian has it with OpenSSL, and with GnuTLS under another name; either will do.
struct Curl {
  decltype(&::curl_global_init) global_init;
  decltype(&::curl_easy_init) init;
  decltype(&::curl_easy_cleanup) cleanup;
  decltype(&::curl_easy_reset) reset;
  decltype(&::curl_easy_setopt) setopt;
  decltype(&::curl_easy_perform) perform;
  decltype(&::curl_easy_getinfo) getinfo;
  decltype(&::curl_easy_strerror) strerror;
  decltype(&::curl_slist_append) append;
  decltype(&::curl_slist_free_all) free_list;
  decltype(&::curl_url) url;
  decltype(&::curl_url_set) url_set;
  decltype(&::curl_url_get) url_get;
  decltype(&::curl_url_cleanup) url_cleanup;
  decltype(&::curl_free) free;

  Curl() {
    std::string why;
    void* library = nullptr;
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
      library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library) break;
      why += fmt::format("{}{}", why.empty() ? "" : "; ", printable(::dlerror(), 300));
    }
    if (!library)
      throw Error(Exit::environment, "downloads and stores on s3:// need libcurl, which cannot be loaded: " + why,
                  "apt-get install libcurl4 (or libcurl3-gnutls); or use `hf download` of the package huggingface_hub");
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      if (!function) throw Error(Exit::environment, fmt::format("libcurl has no {}: it is older than 7.62", name));
    };
    find(global_init, "curl_global_init");
    find(init, "curl_easy_init");
    find(cleanup, "curl_easy_cleanup");
    find(reset, "curl_easy_reset");
    find(setopt, "curl_easy_setopt");
    find(perform, "curl_easy_perform");
    find(getinfo, "curl_easy_getinfo");
    find(strerror, "curl_easy_strerror");
    find(append, "curl_slist_append");
    find(free_list, "curl_slist_free_all");
    find(url, "curl_url");
    find(url_set, "curl_url_set");
    find(url_get, "curl_url_get");
    find(url_cleanup, "curl_url_cleanup");
    find(free, "curl_free");
    if (global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) throw Error(Exit::environment, "libcurl cannot be initialised");
  }
};

// A failure that no other try mends.
bool is_final(CURLcode code) {
  switch (code) {
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_URL_MALFORMAT:
    case CURLE_OUT_OF_MEMORY:
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_CERTPROBLEM:
    case CURLE_SSL_CIPHER:
    case CURLE_SSL_ENGINE_NOTFOUND:
      return true;
    default:
      return false;
  }
}

// One transfer, as the callbacks see it.
struct Transfer {
  const Request& request;
  const Body& body;
  const std::function<bool()>& stop;
  Answer answer = {};
  std::exception_ptr thrown = {};
  uint64_t sent = 0;
};
constexpr size_t longest_error = size_t{64} << 10;

void trim(std::string& text) {
  const auto blank = [](unsigned char c) { return std::isspace(c) != 0; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), blank));
}

size_t take_header(char* data, size_t, size_t bytes, void* self) noexcept {
  Answer& answer = static_cast<Transfer*>(self)->answer;
  const std::string line(data, bytes);
  if (line.starts_with("HTTP/")) {  // the next answer: after 100, or after a proxy's
    answer = {};
    const size_t blank = line.find(' ');
    if (blank != line.npos) answer.status = std::atoi(line.c_str() + blank);
    return bytes;
  }
  const size_t colon = line.find(':');
  if (colon == line.npos) return bytes;
  std::string name = line.substr(0, colon), value = line.substr(colon + 1);
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  trim(value);
  for (const auto& [known, to] : {std::pair{"etag", &answer.etag},
                                  {"content-range", &answer.content_range},
                                  {"retry-after", &answer.retry_after},
                                  {"x-error-code", &answer.error_code},
                                  {"x-error-message", &answer.error_message},
                                  {"x-amz-bucket-region", &answer.region}})
    if (name == known) *to = value.substr(0, 1000);
  return bytes;
}

size_t take_body(char* data, size_t, size_t bytes, void* self) noexcept {
  Transfer& transfer = *static_cast<Transfer*>(self);
  if (transfer.answer.status != 200 && transfer.answer.status != 206) {  // a page for people, or an error of a store
    std::string& error = transfer.answer.error;
    error.append(data, std::min(bytes, longest_error - std::min(longest_error, error.size())));
    return bytes;
  }
  try {
    transfer.body(transfer.answer, {data, bytes});
    return bytes;
  } catch (...) {
    transfer.thrown = std::current_exception();
    return bytes + 1;  // ends the transfer
  }
}

size_t give_body(char* to, size_t, size_t bytes, void* self) noexcept {
  Transfer& transfer = *static_cast<Transfer*>(self);
  try {
    const uint64_t left = transfer.request.body_bytes - transfer.sent;
    const size_t n = left ? transfer.request.body(transfer.sent, to, std::min<uint64_t>(bytes, left)) : 0;
    transfer.sent += n;
    return n;
  } catch (...) {
    transfer.thrown = std::current_exception();
    return CURL_READFUNC_ABORT;
  }
}

// A connection that was kept, and was closed meanwhile, has taken some of it.
int seek_body(void* self, curl_off_t to, int from) noexcept {
  if (from != SEEK_SET || to < 0) return CURL_SEEKFUNC_CANTSEEK;
  static_cast<Transfer*>(self)->sent = static_cast<uint64_t>(to);
  return CURL_SEEKFUNC_OK;
}

int look_up(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) noexcept {
  const Transfer& transfer = *static_cast<Transfer*>(self);
  return transfer.stop ? transfer.stop() : Signals::pending() != 0;
}

class CurlTransport final : public Transport {
 public:
  CurlTransport(double stall, std::function<bool()> stop)
      : stall_(std::max(1.0, std::ceil(stall))), stop_(std::move(stop)), handle_(curl_.init()) {
    if (!handle_) throw Error(Exit::environment, "libcurl cannot be initialised");
  }
  ~CurlTransport() override { curl_.cleanup(handle_); }
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;

  Answer get(const Request& request, const Body& body) override {
    Transfer transfer{request, body, stop_};
    char text[CURL_ERROR_SIZE] = "";
    curl_.reset(handle_);  // connections stay open
    set(CURLOPT_URL, request.url.c_str());
    set(CURLOPT_PATH_AS_IS, 1L);  // keys may have dots, and signatures are of the path as it is
    set(CURLOPT_ERRORBUFFER, text);
    set(CURLOPT_USERAGENT, user_agent.c_str());
    set(CURLOPT_NOSIGNAL, 1L);
    // One that is ended does not wait for the look-up of a name. Before 7.87 libcurl does not have it.
    curl_.setopt(handle_, static_cast<CURLoption>(CURLOPTTYPE_LONG + 322), 1L);  // CURLOPT_QUICK_EXIT
    set(CURLOPT_FOLLOWLOCATION, 0L);
    set(CURLOPT_CONNECTTIMEOUT, static_cast<long>(std::min(stall_, 30.0)));
    set(CURLOPT_LOW_SPEED_LIMIT, 100L);  // bytes a second
    set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(stall_));
    set(CURLOPT_HEADERFUNCTION, take_header);
    set(CURLOPT_HEADERDATA, &transfer);
    set(CURLOPT_WRITEFUNCTION, take_body);
    set(CURLOPT_WRITEDATA, &transfer);
    set(CURLOPT_NOPROGRESS, 0L);
    set(CURLOPT_XFERINFOFUNCTION, look_up);
    set(CURLOPT_XFERINFODATA, &transfer);
    if (request.method == "HEAD") set(CURLOPT_NOBODY, 1L);
    if (request.body) {
      set(CURLOPT_UPLOAD, 1L);
      set(CURLOPT_INFILESIZE_LARGE, static_cast<curl_off_t>(request.body_bytes));
      set(CURLOPT_READFUNCTION, give_body);
      set(CURLOPT_READDATA, &transfer);
      set(CURLOPT_SEEKFUNCTION, seek_body);
      set(CURLOPT_SEEKDATA, &transfer);
    }
    if (request.method != "GET") set(CURLOPT_CUSTOMREQUEST, request.method.c_str());
    const std::unique_ptr<curl_slist, decltype(curl_.free_list)> headers(header_lines(request), curl_.free_list);
    set(CURLOPT_HTTPHEADER, headers.get());
    const CURLcode code = curl_.perform(handle_);
    if (transfer.thrown) std::rethrow_exception(transfer.thrown);
    if (stop_ && stop_()) throw Error(Exit::stopped, "stopped");
    if (const int signal = Signals::pending(); !stop_ && signal)
      throw Error(static_cast<Exit>(128 + signal), "stopped");
    if (code != CURLE_OK) {
      const std::string why =
          fmt::format("{}: {}", origin(request.url), printable(*text ? text : curl_.strerror(code), 300));
      if (is_final(code)) throw Error(Exit::communication, why);
      throw Broken(why);
    }
    char* to = nullptr;
    if (curl_.getinfo(handle_, CURLINFO_REDIRECT_URL, &to) == CURLE_OK && to) transfer.answer.location = to;
    return transfer.answer;
  }

  std::string origin(const std::string& url) override {
    const std::unique_ptr<CURLU, decltype(curl_.url_cleanup)> parsed(curl_.url(), curl_.url_cleanup);
    const auto part = [&](CURLUPart which) {
      char* text = nullptr;
      std::string out;
      if (curl_.url_get(parsed.get(), which, &text, CURLU_DEFAULT_PORT) == CURLUE_OK && text) out = text;
      curl_.free(text);
      std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
      return out;
    };
    const bool read = parsed && curl_.url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) == CURLUE_OK;
    const std::string scheme = read ? part(CURLUPART_SCHEME) : "";
    if ((scheme != "http" && scheme != "https") || part(CURLUPART_HOST).empty() || !part(CURLUPART_USER).empty() ||
        !part(CURLUPART_PASSWORD).empty())
      throw Error(Exit::communication,
                  fmt::format("`{}` is no address of http or https without a user's name", printable(url)));
    return fmt::format("{}://{}:{}", scheme, part(CURLUPART_HOST), part(CURLUPART_PORT));
  }

 private:
  template <class T>
  void set(CURLoption option, T value) {
    if (const CURLcode code = curl_.setopt(handle_, option, value); code != CURLE_OK)
      throw Error(Exit::environment, fmt::format("libcurl refuses an option: {}", curl_.strerror(code)));
  }

  curl_slist* header_lines(const Request& request) {
    curl_slist* list = nullptr;
    const auto add = [&](const std::string& line) {
      if (curl_slist* longer = curl_.append(list, line.c_str())) list = longer;
    };
    add("Accept-Encoding: identity");
    for (const std::string& line : request.headers) add(line);
    if (request.body) add("Expect:");  // sent at once
    if (!request.token.empty()) add("Authorization: Bearer " + request.token);
    if (request.from) add(fmt::format("Range: bytes={}-", request.from));
    if (request.from && !request.if_range.empty()) add("If-Range: " + request.if_range);
    return list;
  }

  const Curl curl_;
  const std::string user_agent = std::string("engine/") + version;
  double stall_;
  const std::function<bool()> stop_;
  CURL* handle_;
};

}  // namespace

std::unique_ptr<Transport> open_transport(double stall, std::function<bool()> stop) {
  return std::make_unique<CurlTransport>(stall, std::move(stop));
}

}  // namespace eng::hub
