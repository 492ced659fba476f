// SPDX-License-Identifier: Apache-2.0
// The functions of eng_job_api; what fails is thrown. Tensors are read in pieces.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "job.hpp"

namespace curvature {

class Host {
 public:
  Host(eng_job_host* host, eng_error* error) : host_(host), error_(error) {
    const eng_parameter* const* list = nullptr;
    uint32_t n = 0;
    check(api().parameters(host_, &list, &n, error_));
    for (uint32_t k = 0; k < n; ++k) parameters.push_back(list[k]);
    const eng_job_site* const* places = nullptr;
    check(api().sites(host_, &places, &n, error_));
    for (uint32_t k = 0; k < n; ++k) sites.push_back(places[k]);
  }

  std::vector<const eng_parameter*> parameters;
  std::vector<const eng_job_site*> sites;

  uint64_t windows(uint32_t split, int64_t* length = nullptr) {
    uint64_t n = 0;
    int64_t each = 0;
    check(api().windows(host_, split, &n, &each, error_));
    if (length) *length = each;
    return n;
  }
  double gradient(uint64_t first) {
    double loss = 0;
    check(api().gradient(host_, ENG_JOB_TRAIN, first, &loss, error_));
    return loss;
  }
  void losses(uint32_t split, uint64_t first, bool sites, std::span<double> sums, std::span<int64_t> labels) {
    check(api().losses(host_, split, first, static_cast<uint32_t>(sums.size()), sites, sums.data(), labels.data(),
                       error_));
  }
  void program(Program k, std::initializer_list<float> numbers = {}, int64_t counter = 0) {
    check(api().program(host_, k, numbers.begin(), static_cast<uint32_t>(numbers.size()), counter, error_));
  }
  template <class T>
  void read(uint32_t what, uint32_t state, uint32_t index, uint64_t first, std::span<T> out) {
    if (!out.empty()) check(api().read(host_, what, state, index, first, out.size(), out.data(), error_));
  }
  template <class T>
  void write(uint32_t what, uint32_t state, uint32_t index, uint64_t first, std::span<const T> data) {
    if (!data.empty()) check(api().write(host_, what, state, index, first, data.size(), data.data(), error_));
  }
  // Calls f(first, elements) for the pieces of a parameter of n elements, in order.
  template <class F>
  void each_piece(uint32_t index, uint64_t n, F&& f) {
    std::vector<float> room(std::min(n, piece));
    for (uint64_t first = 0; first < n; first += piece) {
      const std::span<float> part(room.data(), std::min(piece, n - first));
      read(ENG_JOB_PARAMETER, 0, index, first, part);
      f(first, std::span<const float>(part));
    }
  }
  void save() { check(api().save(host_, error_)); }
  void progress(const char* phase, uint64_t done, uint64_t all, const std::string& note = {}) {
    check(api().progress(host_, phase, done, all, note.empty() ? nullptr : note.c_str(), error_));
  }
  void file(const std::string& name, const std::string& bytes) {
    check(api().file(host_, name.c_str(), bytes.data(), bytes.size(), error_));
  }
  // The file that an earlier part wrote.
  std::string earlier(uint32_t part, const char* name) {
    const void* data = nullptr;
    uint64_t size = 0;
    check(api().earlier(host_, part, name, &data, &size, error_));
    return {static_cast<const char*>(data), size};
  }
  std::string facts() {
    const char* json = nullptr;
    uint64_t length = 0;
    check(api().facts(host_, &json, &length, error_));
    return {json, length};
  }

 private:
  const eng_job_api& api() const { return *host_->api; }
  static void check(eng_status status) {
    if (status != ENG_OK) throw Error{status, ""};  // the host has the text
  }
  eng_job_host* host_;
  eng_error* error_;
};

}  // namespace curvature
