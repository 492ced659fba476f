// SPDX-License-Identifier: Apache-2.0
// Tables and structs of an older engine: what ENG_HAS says of them, and that the helpers of the headers read nothing
// behind their ends.
#include <catch2/catch.hpp>

#include <cstddef>
#include <cstring>
#include <memory>

#include "engine/ops.h"
#include "engine/optimizer.h"

namespace {

struct Calls {
  int emitted = 0, offered = 0, terms = 0;
};
Calls calls;

eng_build_api whole_api() {
  eng_build_api api{};
  api.struct_size = sizeof(api);
  api.batch = [](eng_build*, const char*, eng_id* out, eng_error*) -> eng_status {
    *out = 5;
    return ENG_OK;
  };
  api.emit = [](eng_build*, const char*, const eng_id*, uint32_t, eng_id* out, uint32_t n_out, const eng_attr*,
                uint32_t, eng_error*) -> eng_status {
    ++calls.emitted;
    for (uint32_t k = 0; k < n_out; ++k) out[k] = 7 + k;
    return ENG_OK;
  };
  api.term = [](eng_build*, eng_id, const char*, double, eng_error*) -> eng_status {
    ++calls.terms;
    return ENG_OK;
  };
  api.loss = [](eng_build*, eng_id, eng_id, eng_id* out, eng_error*) -> eng_status {
    *out = 9;
    return ENG_OK;
  };
  api.offers = [](eng_build*, const char*, int32_t* out, eng_error*) -> eng_status {
    ++calls.offered;
    *out = 1;
    return ENG_OK;
  };
  return api;
}

// The first `end` bytes of a struct, on the heap: a sanitizer sees who reads further.
template <class Struct>
class First {
 public:
  First(const Struct& whole, std::size_t end) {
    volatile std::size_t unknown = end;  // else the compiler sees how short it is, and warns
    const std::size_t size = unknown;
    bytes_.reset(new char[size]);
    std::memcpy(bytes_.get(), &whole, size);
    const auto stated = static_cast<uint32_t>(size);
    std::memcpy(bytes_.get(), &stated, sizeof(stated));
  }
  const Struct* get() const { return reinterpret_cast<const Struct*>(bytes_.get()); }

 private:
  std::unique_ptr<char[]> bytes_;
};

using Api = First<eng_build_api>;

}  // namespace

TEST_CASE("ENG_HAS goes by the size that a struct states") {
  const eng_build_api whole = whole_api();
  CHECK(ENG_HAS(&whole, status));
  CHECK(ENG_HAS(&whole, offers));
  const Api no_offers(whole, offsetof(eng_build_api, offers));
  CHECK(!ENG_HAS(no_offers.get(), offers));
  CHECK(ENG_HAS(no_offers.get(), term));
  const Api half_a_pointer(whole, offsetof(eng_build_api, offers) + 4);
  CHECK(!ENG_HAS(half_a_pointer.get(), offers));
  const Api no_terms(whole, offsetof(eng_build_api, term));
  CHECK(!ENG_HAS(no_terms.get(), term));
  CHECK(ENG_HAS(no_terms.get(), slice));
  // A struct that the host passes, and a field that is no pointer.
  eng_update run{};
  run.struct_size = sizeof(run);
  CHECK(ENG_HAS(&run, seed));
  const First<eng_update> older(run, offsetof(eng_update, counters));
  CHECK(ENG_HAS(older.get(), n_ranges));
  CHECK(!ENG_HAS(older.get(), counters));
  CHECK(!ENG_HAS(older.get(), seed));
}

TEST_CASE("helpers of the headers do without what an older engine lacks") {
  const eng_build_api whole = whole_api();
  const Api no_offers(whole, offsetof(eng_build_api, offers)), no_terms(whole, offsetof(eng_build_api, term));
  eng_build now{&whole}, old{no_offers.get()}, older{no_terms.get()};
  calls = {};
  CHECK(eng_offered(&now, "segments") == 5);
  CHECK(calls.offered == 1);
  CHECK(eng_offered(&old, "segments") == 0);
  CHECK(eng_offered(&older, "segments") == 0);
  CHECK(calls.offered == 1);
  CHECK(eng_language_loss(&now, 1, 2, 3, 0, 1e-4) == 7);
  CHECK(calls.terms == 2);
  CHECK(eng_language_loss(&old, 1, 2, 3, 0, 1e-4) == 7);
  CHECK(calls.terms == 4);
  calls = {};
  CHECK(eng_language_loss(&older, 1, 2, 3, 0, 0.0) == 7);
  CHECK(calls.emitted == 1);
  CHECK(eng_language_loss(&older, 1, 2, 3, 0, 1e-4) == 0);
  CHECK(calls.emitted == 1);
  CHECK(calls.terms == 0);
  const Api no_loss(whole, offsetof(eng_build_api, loss));
  eng_build plain{no_loss.get()};
  CHECK(eng_head_loss(&now, 1, 2) == 9);
  CHECK(calls.emitted == 1);
  CHECK(eng_head_loss(&plain, 1, 2) == 7);
  CHECK(calls.emitted == 2);
}
