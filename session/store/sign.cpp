// SPDX-License-Identifier: Apache-2.0
#include "session/store/sign.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace eng::store {
namespace {

void check(int good) {
  if (good != 1) throw Error(Exit::environment, "libcrypto cannot compute SHA-256 or MD5");
}

std::string hex(std::string_view bytes) {
  std::string out;
  for (const unsigned char c : bytes) out += fmt::format("{:02x}", c);
  return out;
}

// Raw bytes.
std::string hmac(std::string_view key, std::string_view text) {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  check(::HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
               reinterpret_cast<const unsigned char*>(text.data()), text.size(), out, &length) != nullptr);
  return {reinterpret_cast<const char*>(out), length};
}

}  // namespace

Digest::Digest(Kind kind) : context_(EVP_MD_CTX_new()) {
  check(
      EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_), kind == Kind::sha256 ? EVP_sha256() : EVP_md5(), nullptr));
}

Digest::~Digest() {
  EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context_));
}

void Digest::add(const void* data, uint64_t bytes) {
  check(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_), data, bytes));
}

std::string Digest::hex() {
  unsigned char out[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  check(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_), out, &length));
  return store::hex({reinterpret_cast<const char*>(out), length});
}

std::string sha256_hex(std::string_view text) {
  Digest digest(Digest::Kind::sha256);
  digest.add(text.data(), text.size());
  return digest.hex();
}

std::string query_text(Pairs query) {
  for (auto& [name, value] : query) name = escaped(name, false), value = escaped(value, false);
  std::sort(query.begin(), query.end());
  std::string out;
  for (const auto& [name, value] : query) out += fmt::format("{}{}={}", out.empty() ? "" : "&", name, value);
  return out;
}

Pairs signed_headers(const ToSign& request, const Credentials& who, const std::string& region, std::time_t now) {
  std::tm at{};
  ::gmtime_r(&now, &at);
  char date[9], time[17];
  std::strftime(date, sizeof(date), "%Y%m%d", &at);
  std::strftime(time, sizeof(time), "%Y%m%dT%H%M%SZ", &at);
  Pairs headers = request.headers;
  headers.emplace_back("x-amz-content-sha256", request.payload_sha256);
  headers.emplace_back("x-amz-date", time);
  if (!who.session_token.empty()) headers.emplace_back("x-amz-security-token", who.session_token);
  Pairs all = headers;
  all.emplace_back("host", request.host);
  std::sort(all.begin(), all.end());
  std::string lines, names;
  for (const auto& [name, value] : all) {
    lines += fmt::format("{}:{}\n", name, value);
    names += fmt::format("{}{}", names.empty() ? "" : ";", name);
  }
  const std::string canonical = fmt::format("{}\n{}\n{}\n{}\n{}\n{}", request.method, request.path,
                                            query_text(request.query), lines, names, request.payload_sha256);
  const std::string scope = fmt::format("{}/{}/s3/aws4_request", date, region);
  const std::string text = fmt::format("AWS4-HMAC-SHA256\n{}\n{}\n{}", time, scope, sha256_hex(canonical));
  std::string key = "AWS4" + who.secret_key;
  for (const std::string& part : {std::string(date), region, std::string("s3"), std::string("aws4_request")})
    key = hmac(key, part);
  headers.emplace_back("Authorization", fmt::format("AWS4-HMAC-SHA256 Credential={}/{}, SignedHeaders={}, Signature={}",
                                                    who.access_key, scope, names, hex(hmac(key, text))));
  return headers;
}

}  // namespace eng::store
