// SPDX-License-Identifier: Apache-2.0
// Of libtorch what the fragments of docs/integrate.md use, with its lifetimes: named_parameters() is a value
// that owns the names, tensors are references to what the module owns. What is over is overwritten, so that
// whoever still looks there finds out on every machine.
#pragma once
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <utility>
#include <vector>

namespace torch {

struct Sizes {
  const int64_t *first;
  const int64_t *data() const { return first; }
};

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(int64_t count) : m_storage(std::make_shared<Storage>(count)) {}
  bool defined() const { return m_storage != nullptr; }
  void *data_ptr() const { return m_storage->values.data(); }
  Sizes sizes() const { return {&m_storage->count}; }
  int64_t dim() const { return 1; }
  Tensor grad() const { return m_storage->grad ? *m_storage->grad : Tensor(); }
  void make_grad(bool there) {
    m_storage->grad = there ? std::make_shared<Tensor>(m_storage->count) : nullptr;
  }
  void backward() {
    for (Tensor *leaf : m_storage->leaves) leaf->make_grad(true);
  }

 private:
  friend struct nn_access;
  struct Storage {
    explicit Storage(int64_t n) : count(n), values(static_cast<size_t>(n)) {}
    int64_t count;
    std::vector<float> values;
    std::shared_ptr<Tensor> grad;
    std::vector<Tensor *> leaves;
  };
  std::shared_ptr<Storage> m_storage;
};

struct nn_access {
  static Tensor loss_of(std::vector<Tensor *> leaves) {
    Tensor loss(1);
    loss.m_storage->leaves = std::move(leaves);
    return loss;
  }
};

// A text whose characters stay readable, and are wrong, when it is over.
class Key {
 public:
  explicit Key(const char *text) : m_text(&texts().emplace_back(text, text + std::strlen(text) + 1)) {}
  Key(const Key &) = delete;
  Key(Key &&other) noexcept : m_text(std::exchange(other.m_text, nullptr)) {}
  ~Key() {
    if (m_text) std::memset(m_text->data(), 'X', m_text->size() - 1);
  }
  const char *c_str() const { return m_text->data(); }

 private:
  static std::list<std::vector<char>> &texts() {
    static std::list<std::vector<char>> all;
    return all;
  }
  std::vector<char> *m_text;
};

class Item {
 public:
  Item(const char *key, const Tensor &value) : m_key(key), m_value(value) {}
  const Key &key() const { return m_key; }
  const Tensor &value() const { return m_value; }

 private:
  Key m_key;
  Tensor m_value;
};

namespace nn {
class Module {
 public:
  std::vector<Item> named_parameters() const {
    std::vector<Item> all;
    all.reserve(2);
    all.emplace_back("weight", m_weight);
    all.emplace_back("bias", m_bias);
    return all;
  }
  std::vector<Tensor> parameters() const { return {m_weight, m_bias}; }
  void zero_grad() { m_weight.make_grad(false), m_bias.make_grad(false); }
  Tensor loss() { return nn_access::loss_of({&m_weight, &m_bias}); }

 private:
  Tensor m_weight{12}, m_bias{4};
};
}  // namespace nn

}  // namespace torch
