// SPDX-License-Identifier: Apache-2.0
#include "session/embed/incoming.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "core/base/error.hpp"
#include "session/config/spelling.hpp"

namespace eng {
namespace {

void give_back(const eng_tensor_in& given) noexcept {
  if (given.versioned && given.versioned->deleter) given.versioned->deleter(given.versioned);
  if (given.legacy && given.legacy->deleter) given.legacy->deleter(given.legacy);
}

const char* kind_of(uint8_t code) {
  switch (code) {
    case kDLInt:
      return "int";
    case kDLUInt:
      return "uint";
    case kDLFloat:
      return "float";
    case kDLBfloat:
      return "bfloat";
    case kDLComplex:
      return "complex";
    case kDLBool:
      return "bool";
    default:
      return "type-code-";
  }
}

std::string type_text(const DLDataType& type) {
  const std::string kind = kind_of(type.code);
  return fmt::format("{}{}{}{}", kind, kind.ends_with('-') ? fmt::format("{}-", +type.code) : "", +type.bits,
                     type.lanes == 1 ? "" : fmt::format("x{}", +type.lanes));
}

template <class T>
void ids_of(const std::string& what, const std::vector<char>& bytes, std::vector<int32_t>& out) {
  const auto* from = reinterpret_cast<const T*>(bytes.data());
  for (size_t k = 0; k < out.size(); ++k) {
    if (!std::in_range<int32_t>(from[k]))
      throw Error(Exit::data, fmt::format("{}: element {} is {}, no id", what, k, from[k]));
    out[k] = static_cast<int32_t>(from[k]);
  }
}

}  // namespace

Incoming::Incoming(const eng_tensor_in& given, std::string what) : what_(std::move(what)), given_(given) {
  try {
    check();
  } catch (...) {
    give_back(given_);
    throw;
  }
}

Incoming::~Incoming() {
  give_back(given_);
}

std::string Incoming::text() const {
  return fmt::format("{} ({})", type_text(type()), fmt::join(shape_, ", "));
}

void Incoming::check() {
  const auto refuse = [&](const std::string& why) { throw Error(Exit::usage, what_ + ": " + why); };
  if (!!given_.versioned + !!given_.legacy + !!given_.borrowed != 1)
    refuse("exactly one of versioned, legacy and borrowed must be given");
  if (given_.versioned && given_.versioned->version.major != DLPACK_MAJOR_VERSION)
    throw Unsupported(fmt::format("{}: it is laid out by DLPack {}.{}, this engine reads {}.x", what_,
                                  +given_.versioned->version.major, +given_.versioned->version.minor,
                                  DLPACK_MAJOR_VERSION));
  tensor_ = given_.versioned ? &given_.versioned->dl_tensor
            : given_.legacy  ? &given_.legacy->dl_tensor
                             : given_.borrowed;
  const DLTensor& t = *tensor_;
  const bool known = t.dtype.code <= kDLComplex && t.dtype.code != kDLOpaqueHandle && t.dtype.code != kDLComplex;
  if (!known || t.dtype.lanes != 1 ||
      (t.dtype.bits != 8 && t.dtype.bits != 16 && t.dtype.bits != 32 && t.dtype.bits != 64))
    throw Unsupported(fmt::format("{}: its element type is {}", what_, type_text(t.dtype)),
                      "integers and floats of 8 to 64 bits are read, and bfloat16");
  if (t.ndim < 0 || t.ndim > ENG_MAX_DIMS)
    throw Unsupported(fmt::format("{}: it has {} dimensions; 0 to {} are read", what_, +t.ndim, ENG_MAX_DIMS));
  if (t.ndim && !t.shape) refuse("its shape is NULL");
  if (t.ndim) shape_.assign(t.shape, t.shape + t.ndim);
  strides_.resize(shape_.size());
  int64_t step = 1;
  for (size_t k = shape_.size(); k-- > 0;) {
    if (shape_[k] < 0) refuse(fmt::format("dimension {} is {}", k, shape_[k]));
    if (__builtin_mul_overflow(count_, static_cast<uint64_t>(shape_[k]), &count_) || count_ >> 60)
      refuse("its shape is larger than memory");
    strides_[k] = t.strides ? t.strides[k] : step;
    dense_ = dense_ && (shape_[k] == 1 || strides_[k] == step);
    step *= std::max<int64_t>(shape_[k], 1);
  }
  dense_ = dense_ || !count_;
  if (count_ && !t.data) refuse("it has elements, but no data");
}

void Incoming::read(uint64_t first, uint64_t n, void* to, const DLDevice& device, const FromDevice& from_device) const {
  if (!n) return;
  const DLTensor& t = *tensor_;
  const auto* base = static_cast<const char*>(t.data) + t.byte_offset;
  const bool host = t.device.device_type == kDLCPU || t.device.device_type == kDLCUDAHost;
  const bool same = t.device.device_type == device.device_type && t.device.device_id == device.device_id;
  if (!host && (!same || !from_device))
    throw Unsupported(
        fmt::format("{}: it is on DLPack device {}:{}; read are memory of the host, and of this session's "
                    "device {}:{}",
                    what_, static_cast<int>(t.device.device_type), +t.device.device_id,
                    static_cast<int>(device.device_type), +device.device_id),
        "copy it to the host first");
  if (!host && !dense_)
    throw Unsupported(fmt::format("{}: on a device it must be dense", what_), "make a contiguous copy first");
  const uint64_t size = this->size();
  if (!host) return from_device(to, base + first * size, n * size);
  auto* out = static_cast<char*>(to);
  if (dense_) {
    std::memcpy(out, base + first * size, n * size);
    return;
  }
  std::vector<int64_t> at(shape_.size());
  for (size_t k = shape_.size(), rest = first; k-- > 0; rest /= static_cast<uint64_t>(shape_[k]))
    at[k] = static_cast<int64_t>(rest % static_cast<uint64_t>(shape_[k]));
  for (uint64_t e = 0; e < n; ++e, out += size) {
    int64_t offset = 0;
    for (size_t k = 0; k < at.size(); ++k) offset += at[k] * strides_[k];
    std::memcpy(out, base + offset * static_cast<int64_t>(size), size);
    for (size_t k = at.size(); k-- > 0 && ++at[k] == shape_[k];) at[k] = 0;
  }
}

const void* Incoming::in_place() const {
  const DLDeviceType kind = tensor_->device.device_type;
  if (!dense_ || (kind != kDLCPU && kind != kDLCUDAHost)) return nullptr;
  return static_cast<const char*>(tensor_->data) + tensor_->byte_offset;
}

std::vector<int32_t> Incoming::ids(const DLDevice& device, const FromDevice& from_device) const {
  const bool integer = type().code == kDLInt || type().code == kDLUInt;
  if (!integer)
    throw Unsupported(fmt::format("{}: {} is no integer type", what_, text()), "give ids as int32 or int64");
  std::vector<int32_t> out(count_);
  if (type().code == kDLInt && type().bits == 32) {
    read(0, count_, out.data(), device, from_device);
    return out;
  }
  std::vector<char> bytes(count_ * size());
  read(0, count_, bytes.data(), device, from_device);
  const bool sign = type().code == kDLInt;
  switch (type().bits) {
    case 8:
      sign ? ids_of<int8_t>(what_, bytes, out) : ids_of<uint8_t>(what_, bytes, out);
      break;
    case 16:
      sign ? ids_of<int16_t>(what_, bytes, out) : ids_of<uint16_t>(what_, bytes, out);
      break;
    case 32:
      ids_of<uint32_t>(what_, bytes, out);
      break;
    default:
      sign ? ids_of<int64_t>(what_, bytes, out) : ids_of<uint64_t>(what_, bytes, out);
  }
  return out;
}

void refuse_all(std::span<const eng_tensor_in> fields) noexcept {
  for (const eng_tensor_in& field : fields) give_back(field);
}

namespace {

// Four bytes of each element: of an integer type, or f32.
std::vector<char> words_of(const Incoming& value, int32_t dtype, const DLDevice& device,
                           const Incoming::FromDevice& from_device) {
  std::vector<char> out(value.count() * sizeof(int32_t));
  if (dtype != ENG_F32) {
    const std::vector<int32_t> whole = value.ids(device, from_device);
    std::memcpy(out.data(), whole.data(), out.size());
  } else if (value.type().code != kDLFloat || value.type().bits != 32) {
    throw Unsupported(fmt::format("{} is {}", value.what(), value.text()), "give it as float32");
  } else {
    value.read(0, value.count(), out.data(), device, from_device);
  }
  return out;
}

// The tensors of the fields that the model reads, in its order; null for one that is not given.
std::vector<std::unique_ptr<Incoming>> sorted(std::span<const eng_tensor_in> fields, const BatchShape& shape,
                                              const Data& data) {
  std::vector<std::unique_ptr<Incoming>> out(data.fields().size());
  for (size_t k = 0; k < fields.size(); ++k) {
    const std::string name = fields[k].name ? fields[k].name : "";
    size_t f = 0;
    while (f < out.size() && data.fields()[f].name != name) ++f;
    const bool known = f < out.size() && (f != 1 || shape.labels);
    try {
      if (!known || out[f]) give_back(fields[k]);
      if (!known) {
        std::vector<std::string> names;
        for (const Field& field : data.fields()) names.push_back(field.name);
        const auto near = nearest(name, names);
        const bool standard =
            name == ENG_FIELD_LOSS_WEIGHTS || name == ENG_FIELD_SEGMENTS || name == ENG_FIELD_POSITIONS;
        throw Error(Exit::usage, fmt::format("the batch has a field `{}`, which nothing asks for", name),
                    !near.empty() ? fmt::format("did you mean `{}`?", near[0])
                    : standard ? fmt::format("open the session with fields=[\"{}\"] (eng_session_request.fields)", name)
                               : fmt::format("the fields are {}", fmt::join(names, ", ")));
      }
      if (out[f]) throw Error(Exit::usage, fmt::format("the batch has two fields `{}`", name));
      out[f] = std::make_unique<Incoming>(fields[k], "field `" + name + "`");
    } catch (...) {
      refuse_all(fields.subspan(k + 1));
      throw;
    }
  }
  return out;
}

}  // namespace

Batch batch_of(std::span<const eng_tensor_in> fields, const BatchShape& shape, const Data& data, const DLDevice& device,
               const Incoming::FromDevice& from_device) {
  const auto given = sorted(fields, shape, data);
  const Incoming *tokens = given[0].get(), *labels = given[1].get();
  if (!tokens) throw Error(Exit::usage, "the batch has no field `tokens`");
  const int64_t length = shape.length;
  const auto fits = [&](const Incoming& one, int64_t more) {
    const auto& s = one.shape();
    return s.size() == 2 && (shape.rows ? s[0] == shape.rows : s[0] > 0) && s[1] == length + more;
  };
  const std::string rows = shape.rows ? std::to_string(shape.rows) : "N";
  const bool longer = !labels && shape.labels && fits(*tokens, 1);
  if (!longer && !fits(*tokens, 0))
    throw Error(
        Exit::usage, fmt::format("{} is {}; a batch is ({}, {})", tokens->what(), tokens->text(), rows, length),
        labels || !shape.labels ? "" : fmt::format("or ({}, {}), the last column only as labels", rows, length + 1));
  const auto n = static_cast<size_t>(tokens->shape()[0]), t = static_cast<size_t>(length), width = t + longer;
  for (size_t f = 1; f < given.size(); ++f) {
    const auto& may_miss = shape.optional;
    if (f > 1 && !given[f] && !std::count(may_miss.begin(), may_miss.end(), data.fields()[f].name))
      throw Error(Exit::usage,
                  fmt::format("the batch has no field `{}`, which the model reads", data.fields()[f].name));
    if (given[f] && (!fits(*given[f], 0) || given[f]->shape()[0] != tokens->shape()[0]))
      throw Error(Exit::usage, fmt::format("{} is {}, {} is {}", given[f]->what(), given[f]->text(), tokens->what(),
                                           tokens->text()));
  }
  const std::vector<int32_t> ids = tokens->ids(device, from_device);
  Batch out;
  out.tokens.resize(n * t), out.labels.resize(n * t, ENG_IGNORE_LABEL);
  if (labels) out.labels = labels->ids(device, from_device);
  for (size_t r = 0; r < n; ++r) {
    const auto at = static_cast<std::ptrdiff_t>(r * t);
    std::copy_n(ids.data() + r * width, t, out.tokens.begin() + at);
    if (!labels && shape.labels) std::copy_n(ids.data() + r * width + 1, width - 1, out.labels.begin() + at);
  }
  const int32_t* segments = nullptr;
  out.others.resize(given.size() - 2);
  for (size_t f = 2; f < given.size(); ++f) {
    if (!given[f]) continue;
    out.others[f - 2] = words_of(*given[f], data.fields()[f].dtype, device, from_device);
    if (data.fields()[f].name == ENG_FIELD_SEGMENTS)
      segments = reinterpret_cast<const int32_t*>(out.others[f - 2].data());
  }
  for (size_t f = 2; f < given.size(); ++f) {
    if (given[f]) continue;
    if (data.fields()[f].name == reference_sums)
      throw Error(
          Exit::usage,
          fmt::format("the batch has no field `{}`: [reference] store has the samples of [data] only", reference_sums),
          "bring the field, or leave reference.store out: the reference is then computed in every step");
    out.others[f - 2].resize(n * t * sizeof(int32_t));
    const Neutral fill = neutral(data.fields()[f].name);
    for (size_t r = 0; r < n; ++r)
      fill(length, segments ? segments + r * t : nullptr, out.others[f - 2].data() + r * t * sizeof(int32_t));
  }
  data.check(out, length);
  return out;
}

}  // namespace eng
