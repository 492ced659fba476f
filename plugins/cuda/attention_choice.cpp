// SPDX-License-Identifier: Apache-2.0
#include "attention_choice.hpp"

#include <algorithm>
#include <cmath>

namespace cuda {
namespace {

using common::Call;
using common::Error;
using sdpa::Shape;

// Places in eng_device_info.settings.
constexpr size_t who_setting = library::attention_setting, cap_setting = 2;

AttentionOptions planned_options(const eng_device_info& info) {
  AttentionOptions out;
  out.who = info.settings[who_setting] % 4, out.version = info.settings[who_setting] / 4;
  out.cap = info.settings[cap_setting];
  return out;
}

// q is input 0 of the op, 1 of its gradient, and k follows. All zeros if the call is not one of cuDNN's: the plugin's
// own kernels then say what is wrong with it.
Shape shape_of(const Call& c, bool backward) {
  const size_t first = backward ? 1 : 0;
  if (c.in.size() < first + 3 || c.in[first].ndim != 3 || c.in[first + 1].ndim != 3) return {};
  const eng_desc &q = c.in[first], &k = c.in[first + 1];
  const int64_t heads = c.integer_or("heads", 0), kv_heads = c.integer_or("kv_heads", 0);
  if (heads <= 0 || kv_heads <= 0 || heads % kv_heads != 0 || q.dims[2] % heads != 0 || k.dims[1] != q.dims[1] ||
      k.dims[2] != q.dims[2] / heads * kv_heads || k.dtype != q.dtype || c.in[first + 2].dtype != q.dtype)
    return {};
  return {q.dims[0], q.dims[1], heads, kv_heads, q.dims[2] / heads, q.dtype, backward};
}

std::string bytes_text(uint64_t n) {
  std::string text = std::to_string(n);
  for (size_t k = text.size(); k > 3;) text.insert(k -= 3, 1, ',');
  return text + " bytes";
}

// "attention backward B T heads kv_heads D bf16"
std::string name_of(const Shape& s) {
  std::string text = s.backward ? "attention backward" : "attention forward";
  for (const int64_t n : {s.batch, s.length, s.heads, s.kv_heads, s.size}) text += " " + std::to_string(n);
  return text + (s.type == ENG_BF16 ? " bf16" : " f16");
}

// Changes that would bring the scratch below the cap.
std::string remedies(const Shape& s, uint32_t arch, const AttentionOptions& o, uint64_t need) {
  std::string text;
  Shape part = s;
  while (part.batch > 1 && sdpa::answer(part, arch, o.version).bytes > o.cap) part.batch /= 2;
  if (sdpa::answer(part, arch, o.version).bytes <= o.cap)
    text += "train.micro_batch = " + std::to_string(part.batch) + " fits; ";
  for (const uint64_t v : sdpa::known_versions) {
    if (!sdpa::linear(s, arch, v) || sdpa::linear(s, arch, o.version)) continue;
    const uint64_t less = sdpa::answer(s, arch, v).bytes;
    text += "with cuDNN " + sdpa::version_text(v) + " installed, [device] cudnn = \"" + sdpa::version_text(v) +
            "\" needs " + bytes_text(less) + (less <= o.cap ? "" : ", still too many") + "; ";
  }
  return text + "[device] attention_workspace = " + std::to_string(need) +
         " allows it; attention = \"auto\" lets the plugin's own kernel compute it";
}

}  // namespace

void put(const AttentionOptions& options, eng_device_info& info) {
  info.settings[who_setting] = options.version * 4 + options.who;
  info.settings[cap_setting] = options.cap;
}

AttentionChoice choose_attention(const Call& call, bool backward) {
  const AttentionOptions o = planned_options(call.device);
  const Shape s = shape_of(call, backward);
  const bool packed = call.has(backward ? 6 : 3);  // segments are the last input of both
  const AttentionChoice own{name_of(s) + (packed || call.integer_or("window", 0) ? " bounded" : "")};
  if (o.who >= AttentionOptions::own || o.version == 0 || s.heads == 0) return own;
  const std::string name = "cuDNN " + sdpa::version_text(o.version),
                    other = "; [device] attention = \"auto\" lets the plugin's own kernel compute it";
  const sdpa::Answer answer = sdpa::answer(s, call.device.arch, o.version);
  std::string why;
  if (call.integer_or("window", 0) != 0 || call.real_or("softcap", 0) != 0)
    why = "cuDNN is not asked for attention within a window or with capped scores" + other;
  else if (packed)
    why = "samples are packed, and cuDNN does not compute attention that ends where a document does" + other +
          ", [data] pack = false needs none";
  else if (!(call.real_or("scale", 0) > 0))
    why = name + " gives NaN for a scale that is not above 0" + other;
  else if (!answer.refused.empty())
    why = name + " cannot compute it: " + answer.refused + other;
  else if (answer.bytes > o.cap)
    why = name + " needs " + bytes_text(answer.bytes) + " of scratch, and [device] attention_workspace allows " +
          bytes_text(o.cap) + ": " + remedies(s, call.device.arch, o, answer.bytes);
  else
    return {own.name, true, o.who == AttentionOptions::cudnn, answer.bytes, o.version, s};
  if (o.who == AttentionOptions::cudnn) throw Error{ENG_UNSUPPORTED, why};
  return own;
}

double distance(const common::Reals& got, const common::Reals& right, size_t n) {
  double most = 0, apart = 0;
  for (int64_t k = 0; k < static_cast<int64_t>(n); ++k) {
    most = std::max(most, std::abs(right[k]));
    if (const double by = std::abs(got[k] - right[k]); !(by <= apart)) apart = std::isnan(apart) ? apart : by;
  }
  return apart == 0 ? 0 : apart / most;
}

std::string refusal(const AttentionChoice& choice, uint64_t installed, const std::string& what) {
  return "the plan counts on cuDNN " + sdpa::version_text(choice.version) + " and " + bytes_text(choice.bytes) +
         " of scratch, and the installed cuDNN " + sdpa::version_text(installed) + " " + what;
}

bool made_by_cudnn(const AttentionChoice& choice, bool own_can, Served& run, const std::function<std::string()>& make,
                   void (*tell)(const std::string&)) {
  std::string& by = run[choice.name];
  const std::string own = "own", before = by, planned = sdpa::version_text(choice.version);
  if (before.starts_with(own) && !choice.strict) return false;
  try {
    by = make();
    if (!before.empty() && before != by)
      tell("attention was computed by " + before + " so far, now it is by " + by + ": the last bits may change");
    return true;
  } catch (const Error& e) {
    if (e.status != ENG_UNAVAILABLE) throw;
    const bool had = !before.empty() && !before.starts_with(own);
    const std::string install = "install cuDNN " + planned + " (pip install nvidia-cudnn-cu13==" + planned +
                                ".*; LD_LIBRARY_PATH names its folder if it lies elsewhere)";
    if (choice.strict || had || !own_can)
      throw Error{ENG_UNAVAILABLE, (had ? before + " computes this on the first rank or did so far, and here " : "") +
                                       e.text + ": " + install + ", or set [device] attention = \"own\"" +
                                       (had ? ", which changes the last bits" : "")};
    by = own;
    tell("the plugin's own kernels compute attention where cuDNN does not, and will in all of this run: " + e.text +
         "; for another run with cuDNN, " + install);
    return false;
  }
}

}  // namespace cuda
