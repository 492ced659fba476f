// SPDX-License-Identifier: Apache-2.0
// The shipping plugin's choice of who computes attention, on a machine of software (emulated). cuDNN itself is the real
// one, which cannot start there: what it computes is not tested here.
#include <catch2/catch.hpp>

#include "engine/ops_attention.h"
#include "plugin.hpp"

using namespace cuda_test;
using Catch::Contains;

namespace {

struct Words {
  std::map<std::string, std::string> strings;
  int64_t cap;
  eng_options table{};
  Words(std::map<std::string, std::string> s, int64_t bytes) : strings(std::move(s)), cap(bytes) {
    table.struct_size = sizeof table, table.minor = ENG_ABI_MINOR, table.data = this;
    table.get_bool = [](const eng_options*, const char*, int32_t*, eng_error*) -> eng_status { return ENG_NOT_FOUND; };
    table.get_int = [](const eng_options* o, const char* key, int64_t* out, eng_error*) -> eng_status {
      if (std::strcmp(key, "attention_workspace") != 0) return ENG_NOT_FOUND;
      return *out = static_cast<const Words*>(o->data)->cap, ENG_OK;
    };
    table.get_string = [](const eng_options* o, const char* key, const char** out, eng_error*) -> eng_status {
      const auto& own = static_cast<const Words*>(o->data)->strings;
      const auto at = own.find(key);
      return at == own.end() ? ENG_NOT_FOUND : (*out = at->second.c_str(), ENG_OK);
    };
  }
};

const eng_kernel& kernel(const char* op) {
  const auto& all = *static_cast<const eng_kernels*>(plugin().get_interface(ENG_KERNELS_KIND, "cuda"));
  for (uint32_t k = 0; k < all.count; ++k)
    if (!std::strcmp(all.kernels[k]->op, op)) return *all.kernels[k];
  throw std::runtime_error("no kernel");
}

struct Answer {
  eng_status status;
  uint64_t bytes;
  std::string text;
};

// One call of 32 query heads of 128 on 8 key heads. `packed`: with segments; `windowed`: in a window of 64 keys.
struct Attention {
  bool backward, packed = false, windowed = false;
  eng_device_info info{};
  eng_desc in[7] = {}, out[3] = {};
  eng_attr attrs[4] = {{"heads", 32, 0}, {"kv_heads", 8, 0}, {"scale", 0, 0.125}, {"window", 64, 0}};
  Attention(Words& words, int32_t type, int64_t batch, int64_t length, bool grad) : backward(grad) {
    info.struct_size = sizeof info;
    Told told;
    if (table().describe(&words.table, &info, told) != ENG_OK) throw std::runtime_error(told.text);
    const auto tensor = [&](int64_t columns) {
      eng_desc d{};
      d.dtype = type, d.ndim = 3, d.dims[0] = batch, d.dims[1] = length, d.dims[2] = columns;
      return d;
    };
    eng_desc lse = tensor(length), segments = tensor(0);
    lse.dtype = ENG_F32, lse.dims[1] = 32;
    segments.dtype = ENG_I32, segments.ndim = 2;
    const eng_desc q = tensor(4096), k = tensor(1024);
    if (grad) {
      for (const auto& [at, d] : {std::pair{0, q}, {1, q}, {2, k}, {3, k}, {4, q}, {5, lse}}) in[at] = d;
      out[0] = q, out[1] = out[2] = k, in[6] = segments;
    } else {
      in[0] = q, in[1] = in[2] = k, out[0] = q, out[1] = lse, in[3] = segments;
    }
  }
  Attention with_segments() const {
    Attention out = *this;
    out.packed = true;
    return out;
  }
  Attention in_window() const {
    Attention out = *this;
    out.windowed = true;
    return out;
  }
  eng_call call() const {
    const uint32_t inputs = (backward ? 6 : 3) + (packed ? 1 : 0);
    return {sizeof(eng_call), 1, inputs, backward ? 3u : 2u, in, out, attrs, windowed ? 4u : 3u, 0, &info};
  }
  const eng_kernel& served() const {
    if (windowed) return kernel(backward ? ENG_OP_ATTENTION_WINDOW_GRAD : ENG_OP_ATTENTION_WINDOW);
    return kernel(backward ? ENG_OP_ATTENTION_GRAD : ENG_OP_ATTENTION);
  }
  Answer workspace() const {
    const eng_call c = call();
    Told told;
    uint64_t bytes = 0;
    const eng_status status = served().workspace(&c, &bytes, told);
    return {status, bytes, told.text};
  }
  // `choices`: of the run so far; they become those of now.
  Answer prepare(Words& words, std::string* choices = nullptr) const {
    void *self = nullptr, *state = nullptr;
    Told told;
    if (table().create(&words.table, 0, &self, told) != ENG_OK) throw std::runtime_error(told.text);
    if (choices && !choices->empty() && table().choose(self, choices->data(), choices->size(), told) != ENG_OK)
      throw std::runtime_error(told.text);
    const eng_call c = call();
    const eng_status status = served().prepare(self, &c, &state, told);
    if (status == ENG_OK && state) served().drop_state(state);
    uint64_t size = 0;
    if (choices && table().choices(self, nullptr, 0, &size, told) == ENG_OK) {
      choices->resize(size);
      table().choices(self, choices->data(), size, &size, told);
    }
    table().destroy(self);
    return {status, 0, told.text};
  }
};

constexpr int64_t gib = int64_t{1} << 30;

}  // namespace

TEST_CASE("attention: the workspace is cuDNN's where it serves, else the plugin's own") {
  const Machine machine(Variables{{"SOFTCUDA_CARD", "h200"}});
  Words automatic({}, gib / 2), wide({}, 4 * gib), own({{"attention", "own"}}, 4 * gib);
  CHECK(Attention(automatic, ENG_BF16, 8, 2048, false).workspace().bytes == 256);
  CHECK(Attention(own, ENG_BF16, 8, 2048, false).workspace().bytes != 256);
  const uint64_t ours = Attention(own, ENG_BF16, 8, 2048, true).workspace().bytes;
  CHECK(Attention(automatic, ENG_BF16, 8, 2048, true).workspace().bytes == ours);  // 2 GiB are above the cap
  CHECK(Attention(wide, ENG_BF16, 8, 2048, true).workspace().bytes == 2418016512);
  CHECK(Attention(wide, ENG_F32, 8, 2048, true).workspace().bytes ==
        Attention(own, ENG_F32, 8, 2048, true).workspace().bytes);
}

TEST_CASE("attention: what cuDNN cannot serve is refused if it is demanded, and served otherwise") {
  const Machine machine(Variables{{"SOFTCUDA_CARD", "h200"}});
  Words demanded({{"attention", "cudnn"}}, gib / 2), automatic({}, gib / 2);
  const Answer answer = Attention(demanded, ENG_BF16, 8, 2048, true).workspace();
  CHECK(answer.status == ENG_UNSUPPORTED);
  CHECK_THAT(answer.text, Contains("[in bf16") && Contains("needs 2,418,016,512 bytes of scratch") &&
                              Contains("train.micro_batch = 1 fits") && Contains("[device] cudnn = \"9.27.0\""));
  CHECK(Attention(automatic, ENG_F32, 1, 32, true).prepare(automatic).status == ENG_OK);
}

TEST_CASE("attention: packed samples and windows are the plugin's own, and refused if cuDNN is demanded") {
  const Machine machine(Variables{{"SOFTCUDA_CARD", "h200"}});
  Words demanded({{"attention", "cudnn"}}, 4 * gib), automatic({}, 4 * gib), own({{"attention", "own"}}, 4 * gib);
  for (const bool grad : {false, true}) {
    const Attention plain(automatic, ENG_BF16, 8, 2048, grad), must(demanded, ENG_BF16, 8, 2048, grad);
    const Attention ours(own, ENG_BF16, 8, 2048, grad);
    // The starts of the documents; for the gradient, their ends too.
    const uint64_t more = (grad ? 2 : 1) * 8 * 2048 * sizeof(int32_t);
    CHECK(plain.with_segments().workspace().bytes == ours.workspace().bytes + more);
    CHECK(plain.with_segments().prepare(automatic).status == ENG_OK);
    CHECK(plain.in_window().workspace().bytes == ours.workspace().bytes + more);
    CHECK(plain.in_window().prepare(automatic).status == ENG_OK);
    CHECK(must.workspace().status == ENG_OK);
    const Answer refused = must.in_window().workspace();
    CHECK(refused.status == ENG_UNSUPPORTED);
    CHECK_THAT(refused.text, Contains("within a window") && Contains("[device] attention = \"auto\""));
    const Answer answer = must.with_segments().workspace();
    CHECK(answer.status == ENG_UNSUPPORTED);
    CHECK_THAT(answer.text, Contains("samples are packed") && Contains("[device] attention = \"auto\"") &&
                                Contains("[data] pack = false"));
  }
}

TEST_CASE("attention: an installed cuDNN that is not the plan's, or does not start, ends with what to change") {
  const Machine machine(Variables{{"SOFTCUDA_CARD", "h200"}});
  Words newer({{"attention", "cudnn"}, {"cudnn", "9.27.0"}}, 4 * gib), demanded({{"attention", "cudnn"}}, 4 * gib);
  const Attention linear(newer, ENG_BF16, 8, 2048, true);
  CHECK(linear.workspace().bytes == 539033856);
  const Answer other = linear.prepare(newer);
  CHECK(other.status == ENG_UNAVAILABLE);
  CHECK_THAT(other.text, Contains("the plan counts on cuDNN 9.27.0 and 539,033,856 bytes of scratch, and the installed "
                                  "cuDNN 9.19.0 has no engine") &&
                             Contains("or set [device] attention = \"own\""));
  const Answer none = Attention(demanded, ENG_BF16, 8, 2048, false).prepare(demanded);
  CHECK(none.status == ENG_UNAVAILABLE);
  CHECK_THAT(none.text, Contains("cuDNN") &&
                            Contains("install cuDNN 9.19.0 (pip install nvidia-cudnn-cu13==9.19.0.*") &&
                            Contains("attention = \"own\""));
}

TEST_CASE("attention: where the installed cuDNN does not serve, the own kernel does, unless cuDNN did so far") {
  const Machine machine(Variables{{"SOFTCUDA_CARD", "h200"}});
  Words automatic({}, gib / 2), demanded({{"attention", "cudnn"}}, gib / 2);
  const Attention forward(automatic, ENG_BF16, 8, 2048, false);
  CHECK(forward.workspace().bytes == 256);  // cuDNN's: the plan does not depend on what is installed
  const std::string name = "attention forward 8 2048 32 8 128 bf16 = ", own = name + "own\n";
  std::string choices;
  CHECK(forward.prepare(automatic, &choices).status == ENG_OK);
  CHECK(choices == own);
  CHECK(forward.prepare(automatic, &choices).status == ENG_OK);
  CHECK(choices == own);
  CHECK(Attention(demanded, ENG_BF16, 8, 2048, false).prepare(demanded, &choices).status == ENG_UNAVAILABLE);
  choices = name + "cuDNN 9.18.1\n";
  const Answer changed = forward.prepare(automatic, &choices);
  CHECK(changed.status == ENG_UNAVAILABLE);
  CHECK_THAT(changed.text, Contains("cuDNN 9.18.1 computes this on the first rank or did so far, and here ") &&
                               Contains("install cuDNN 9.19.0") && Contains("which changes the last bits"));
  choices = "attention forward 1 2048 32 8 128 bf16 = cuDNN 9.18.1\n";  // another call
  CHECK(forward.prepare(automatic, &choices).status == ENG_OK);
  CHECK_THAT(choices, Contains(own) && Contains("9.18.1"));
}
