// SPDX-License-Identifier: Apache-2.0
#include "session/hub/proof.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <vector>

#include "core/base/error.hpp"
#include "session/file.hpp"
#include "session/ranks/signals.hpp"

namespace eng::hub {

struct Proof::Hash {
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context{EVP_MD_CTX_new(), EVP_MD_CTX_free};
  void check(int good) const {
    if (good != 1) throw Error(Exit::environment, "libcrypto cannot compute SHA-256 or SHA-1");
  }
};

Proof::Proof(const File& file) : file_(file), hash_(std::make_unique<Hash>()) {
  restart();
}

Proof::~Proof() = default;

void Proof::restart() {
  bytes_ = 0;
  if (file_.content().empty()) return;
  const bool lfs = !file_.sha256.empty();
  hash_->check(EVP_DigestInit_ex(hash_->context.get(), lfs ? EVP_sha256() : EVP_sha1(), nullptr));
  if (lfs) return;
  const std::string head = fmt::format("blob {}", *file_.size);
  hash_->check(EVP_DigestUpdate(hash_->context.get(), head.c_str(), head.size() + 1));  // with the NUL
}

void Proof::add(const void* data, uint64_t bytes) {
  bytes_ += bytes;
  if (!file_.content().empty()) hash_->check(EVP_DigestUpdate(hash_->context.get(), data, bytes));
}

void Proof::add_file(const std::filesystem::path& path, uint64_t bytes) {
  const FileReader reader(path, Exit::disk);
  std::vector<char> piece(size_t{1} << 20);
  for (uint64_t done = 0; done < bytes;) {
    if (const int signal = Signals::pending()) throw Error(static_cast<Exit>(128 + signal), "stopped");
    const uint64_t n = std::min<uint64_t>(piece.size(), bytes - done);
    reader.read(piece.data(), done, n);
    add(piece.data(), n);
    done += n;
  }
}

std::string Proof::problem() {
  if (file_.size && bytes_ != *file_.size)
    return fmt::format("has {} bytes, and the hub lists {}", bytes_, *file_.size);
  if (file_.content().empty()) return "";
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  hash_->check(EVP_DigestFinal_ex(hash_->context.get(), digest, &length));
  std::string hex;
  for (unsigned k = 0; k < length; ++k) hex += fmt::format("{:02x}", digest[k]);
  const bool lfs = !file_.sha256.empty();
  const std::string& listed = lfs ? file_.sha256 : file_.git_sha1;
  return hex == listed ? ""
                       : fmt::format("has the {} {}, and the hub lists {}", lfs ? "SHA-256" : "git SHA-1", hex, listed);
}

}  // namespace eng::hub
