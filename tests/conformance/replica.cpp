// SPDX-License-Identifier: Apache-2.0
#include "replica.h"

#include <algorithm>

namespace zero::test {

std::vector<Tensor> small_tensors() {
  return {{"cut", 3082},
          {"one", 1},
          {"none", 0},
          {"bf16", 5003, ZERO_BFLOAT16},
          {"f16", 301, ZERO_FLOAT16, ZERO_FLOAT32},
          {"f64", 2500, ZERO_FLOAT64},
          {"still", 40, ZERO_FLOAT32, 0, false},
          {"still16", 40, ZERO_BFLOAT16, 0, false}};
}

std::vector<double> made_up(size_t tensor, size_t count, int turn) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; i++) {
    const size_t number = i * 37 + tensor * 11 + static_cast<size_t>(turn) * 101;
    values[i] = static_cast<double>(number % 257) / (turn == 0 ? 256 : 259) - 0.5;
  }
  return values;
}

zero_options StateCase::options() const {
  auto options = initialized<zero_options>();
  options.optimizer = optimizer;
  options.partition = partition;
  options.master = master;
  options.share_dtype = share_dtype;
  options.bucket_bytes = 8192;
  options.threads = 1;
  return options;
}

Settings StateCase::settings() const {
  Settings settings = {{"lr", 0.0625}};
  if (momentum >= 0) settings.emplace_back("momentum", momentum);
  return settings;
}

void Replica::add_tensors(const std::vector<Tensor>& group) {
  const size_t first = size();
  tensors_.insert(tensors_.end(), group.begin(), group.end());
  std::vector<zero_param> params;
  for (size_t t = first; t < size(); t++) {
    Tensor& tensor = tensors_[t];
    if (tensor.grad_dtype == 0) tensor.grad_dtype = tensor.dtype;
    for (auto* const memory : {&data_, &grads_}) {
      const int32_t dtype = memory == &data_ ? tensor.dtype : tensor.grad_dtype;
      const std::vector<std::byte> bytes = encoded(t, dtype, 0);
      put(memory->emplace_back(device_, bytes.size()), bytes);
      test::finish(device_, stream());
    }
    zero_param& param =
        params.emplace_back(parameter(group[t - first].name.c_str(), group[t - first].size,
                                      data_[t].at(), nullptr, tensor.dtype));
    param.owner = static_cast<int32_t>(t) % world();
    if (tensor.dtype == ZERO_INT64) {
      param.flags = ZERO_PARAM_FROZEN;
    } else {
      param.grad = grads_[t].at();
      param.grad_dtype = tensor.grad_dtype;
    }
    if (!tensor.own_settings) continue;
    param.flags = ZERO_PARAM_LR_SCALE | ZERO_PARAM_WEIGHT_DECAY;
    param.lr_scale = 0.3;
    param.weight_decay = 0.125;
  }
  add(params);
}

std::vector<void*> Replica::gradients(int turn) {
  std::vector<void*> pointers;
  for (size_t t = 0; t < size(); t++) {
    put(grads_[t], encoded(t, tensors_[t].grad_dtype, 10 + turn + 50 * rank()));
    pointers.push_back(tensors_[t].trains ? grads_[t].at() : nullptr);
  }
  return pointers;
}

size_t Replica::floating() const {
  return static_cast<size_t>(
      std::count_if(tensors_.begin(), tensors_.end(),
                    [](const Tensor& tensor) { return tensor.dtype != ZERO_INT64; }));
}

void Replica::put(const Memory& to, const std::vector<std::byte>& bytes) const {
  to.write(bytes, stream());
  if (stream() == nullptr) finish();  // calls use other streams
}

int32_t Replica::state_dtype(size_t t) const {
  const int32_t dtype = tensors_[t].dtype;
  return dtype == ZERO_FLOAT64 || dtype == ZERO_INT64 ? dtype : ZERO_FLOAT32;
}

std::vector<std::byte> Replica::room_for_state(size_t t) const {
  return std::vector<std::byte>(static_cast<size_t>(tensors_[t].size) *
                                (state_dtype(t) == ZERO_FLOAT32 ? 4 : 8));
}

std::vector<std::byte> Replica::get(size_t t, const char* name) const {
  std::vector<std::byte> out = room_for_state(t);
  EXPECT_OK(zero_state_get(optim(), number(t), name, 0, tensors_[t].size, out.data()));
  return out;
}

std::vector<std::byte> Replica::gather(size_t t, const char* name, int32_t to) const {
  const bool mine = to == ZERO_ALL_RANKS || to == rank();
  std::vector<std::byte> out = mine ? room_for_state(t) : std::vector<std::byte>();
  EXPECT_OK(zero_state_gather(optim(), number(t), name, to, mine ? out.data() : nullptr,
                              mine ? static_cast<size_t>(tensors_[t].size) : 0));
  return out;
}

void Replica::set_state(size_t t, const char* name, const std::vector<std::byte>& values) {
  EXPECT_OK(zero_state_set(optim(), number(t), name, 0, tensors_[t].size, values.data()));
}

std::vector<std::byte> Replica::gradient(size_t t) const {
  std::vector<std::byte> out = room_for_state(t);
  EXPECT_OK(zero_grad_get(optim(), number(t), 0, tensors_[t].size, out.data()));
  return out;
}

Contents Replica::everything() const {
  finish();
  Contents all;
  for (size_t t = 0; t < size(); t++) {
    const Tensor& tensor = tensors_[t];
    const bool floats = tensor.dtype != ZERO_INT64;
    std::vector<std::byte>& data = all[tensor.name] = values(t);
    if (floats) unify_nans(tensor.dtype, data);
    std::vector<const char*> names = state_names(number(t));
    names.push_back(nullptr);
    for (const char* const name : names) {
      std::vector<std::byte>& state = all[tensor.name + "." + (name != nullptr ? name : "values")];
      state = gather(t, name);
      if (floats) unify_nans(state_dtype(t), state);
    }
    if (floats) all[tensor.name + " step"] = bytes_of(scalar(number(t)));
  }
  all["step"] = bytes_of(scalar(ZERO_ALL_PARAMS));
  return all;
}

std::vector<std::byte> Replica::encoded(size_t t, int32_t dtype, int turn) const {
  const auto count = static_cast<size_t>(tensors_[t].size);
  if (dtype == ZERO_INT64)
    return std::vector<std::byte>(count * 8, static_cast<std::byte>(turn + 1));
  return encode(dtype, made_up(t, count, turn));
}

void move_state(const Replica& from, Replica& to) {
  EXPECT_OK(to.set_scalar(ZERO_ALL_PARAMS, "step", from.scalar(ZERO_ALL_PARAMS)));
  for (size_t t = 0; t < from.floating(); t++) {
    const int64_t number = Replica::number(t);
    to.set_state(t, nullptr, from.gather(t, nullptr));
    for (const char* const name : from.state_names(number))
      to.set_state(t, name, from.gather(t, name));
    EXPECT_OK(to.set_scalar(number, "step", from.scalar(number)));
    double product = 0;
    if (zero_state_get(from.optim(), number, "mu_product", 0, 1, &product) != ZERO_OK) continue;
    EXPECT_OK(to.set_scalar(number, "mu_product", product));
  }
  EXPECT_OK(zero_share_params(to.optim(), ZERO_SHARE_KEEP_MASTERS, nullptr));
}

std::vector<std::byte> bytes_of(double value) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
  return {bytes, bytes + sizeof value};
}

void expect_same(const Contents& a, const Contents& b, const std::string& when) {
  ASSERT_EQ(a.size(), b.size()) << when;
  for (const auto& [name, bytes] : a) {
    const auto found = b.find(name);
    EXPECT_TRUE(found != b.end() && bytes == found->second) << name << ", " << when;
  }
}

}  // namespace zero::test
