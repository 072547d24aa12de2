// SPDX-License-Identifier: Apache-2.0
// Buffers: they are registered next to parameters, copied from any root on every comm wherever they
// are, and stored in checkpoints of any world.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "support/comms.h"
#include "support/optim.h"
#include "support/scratch.h"
#include "zero.h"

namespace zero::test {
namespace {

constexpr int32_t kDtypes[] = {ZERO_FLOAT32, ZERO_INT64,   ZERO_BFLOAT16,
                               ZERO_INT32,   ZERO_FLOAT64, ZERO_FLOAT16};

size_t bytes_of(int32_t dtype) {
  return dtype == ZERO_FLOAT64 || dtype == ZERO_INT64      ? 8
         : dtype == ZERO_BFLOAT16 || dtype == ZERO_FLOAT16 ? 2
                                                           : 4;
}

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  int32_t dtype = ZERO_FLOAT32;

  size_t bytes() const {
    size_t elements = 1;
    for (const int64_t size : shape) elements *= static_cast<size_t>(size);
    return elements * bytes_of(dtype);
  }
};

/// Where a rank's buffers are: in its own memory, an arena or shared memory. With `turns`, the
/// numbers of buffer and rank select one of these. With `most_share`, all but one in three are in
/// shared memory.
enum class Where { foreign, arena, shared, turns, most_share };

/// One rank's buffers, each between bytes that must stay unchanged, and one parameter.
class Seat : public Optim {
 public:
  template <class Joined>
  Seat(Joined joined, const std::vector<Tensor>& tensors, Where where, bool with_param = true)
      : Optim(joined), tensors_(tensors) {
    size_t bytes = kGap;
    for (const Tensor& tensor : tensors_) {
      at_.push_back(bytes);
      bytes += room_for(tensor);
    }
    own_.assign(bytes / sizeof(double) + 8, 0);
    EXPECT_LE(bytes, kArenaBytes);
    for (const int32_t kind : {ZERO_MEMORY_PER_RANK, ZERO_MEMORY_SHARED})
      arenas_.emplace_back(comm(), kArenaBytes, kind);
    std::vector<zero_buffer> buffers;
    for (size_t i = 0; i < tensors_.size(); i++) {
      void* const bases[] = {own_.data(), arenas_[0].floats(), arenas_[1].floats()};
      const size_t turn = (i + static_cast<size_t>(rank())) % 3;
      const size_t chosen = where == Where::turns        ? turn
                            : where == Where::most_share ? (turn == 0 ? 0 : 2)
                                                         : static_cast<size_t>(where);
      data.push_back(static_cast<std::byte*>(bases[chosen]) + at_[i]);
      shared.push_back(chosen == 2);
      buffers.push_back(entry(tensors_[i], data.back()));
    }
    if (with_param) add(parameter("w", kOne, &weight, &grad));
    EXPECT_OK(zero_register_buffers(optim(), buffers.data(), buffers.size()));
  }
  ~Seat() { free(); }

  /// The buffer borrows the tensor.
  static zero_buffer entry(Tensor&&, void*) = delete;
  static zero_buffer entry(const Tensor& tensor, void* data) {
    return buffer(tensor.name.c_str(), tensor.shape, data, tensor.dtype);
  }
  /// Returns bits that depend on buffer, byte, `round` and rank.
  static std::byte value(size_t tensor, size_t i, int round, int rank) {
    return static_cast<std::byte>((tensor * 131 + i * 29 + static_cast<size_t>(round) * 57 +
                                   static_cast<size_t>(rank) * 83 + i / 251) %
                                  256);
  }
  void fill(int round, int rank) {
    for (size_t b = 0; b < data.size(); b++) {
      for (size_t i = 0; i < tensors_[b].bytes(); i++) data[b][i] = value(b, i, round, rank);
    }
  }
  ::testing::AssertionResult hold(int round, int rank) const {
    for (size_t b = 0; b < data.size(); b++) {
      for (size_t i = 0; i < tensors_[b].bytes(); i++) {
        if (data[b][i] != value(b, i, round, rank))
          return ::testing::AssertionFailure() << tensors_[b].name << ", byte " << i;
      }
    }
    return ::testing::AssertionSuccess();
  }
  ::testing::AssertionResult gaps_are_untouched() const {
    for (size_t b = 0; b < data.size(); b++) {
      for (size_t i = tensors_[b].bytes(); i < room_for(tensors_[b]); i++) {
        if (data[b][i] != std::byte{kUntouched})
          return ::testing::AssertionFailure() << "behind " << tensors_[b].name;
      }
    }
    return ::testing::AssertionSuccess();
  }
  void reverse() {
    std::reverse(data.begin(), data.end());
    std::reverse(tensors_.begin(), tensors_.end());
  }
  zero_status broadcast(int root) { return zero_broadcast_buffers(optim(), root, nullptr); }

  std::vector<std::byte*> data;
  std::vector<bool> shared;
  float weight = 1, grad = 1;

 private:
  static constexpr size_t kArenaBytes = 3 << 20;  // enough even if ranks have different tensors
  static constexpr size_t kGap = 64;
  static constexpr int kUntouched = 0;  // the initial value of memory
  static size_t room_for(const Tensor& tensor) {
    return (tensor.bytes() + 2 * kGap - 1) / kGap * kGap;
  }
  std::vector<Tensor> tensors_;
  std::vector<size_t> at_;
  std::vector<double> own_;
  std::deque<Arena> arenas_;
};

/// Returns tensors of all dtypes, including an empty one, a scalar, and some larger than a batch.
std::vector<Tensor> some_tensors() {
  return {{"bn.mean", {64}, ZERO_FLOAT32},   {"bn.tracked", {}, ZERO_INT64},
          {"none", {3, 0}, ZERO_FLOAT64},    {"mask", {3, 7, 11}, ZERO_BFLOAT16},
          {"table", {70'001}, ZERO_FLOAT32},  // travels alone
          {"ids", {13}, ZERO_INT32},         {"wide", {2, 2}, ZERO_FLOAT64},
          {"half", {5}, ZERO_FLOAT16},       {"big", {600'000}, ZERO_INT32},  // and this in pieces
          {"last", {1}, ZERO_FLOAT16}};
}

class Buffers : public ::testing::TestWithParam<CommKind> {};
INSTANTIATE_TEST_SUITE_P(OnEach, Buffers, ::testing::ValuesIn(kCommKinds),
                         [](const auto& of) { return name_of(of.param); });

TEST_P(Buffers, all_ranks_have_the_roots_bits_wherever_buffers_lie) {
  for (const Where where :
       {Where::foreign, Where::arena, Where::shared, Where::turns, Where::most_share}) {
    const int world = 3;
    on_ranks(GetParam(), world, [&](zero_comm* comm, int rank) {
      Seat seat(comm, some_tensors(), where);
      for (int root = 0; root < world; root++) {
        for (size_t b = 0; b < seat.data.size(); b++) {
          // Only the root writes memory that ranks share. If the root's buffer is elsewhere, nobody
          // does.
          if (seat.shared[b] && rank != root) continue;
          const size_t bytes = some_tensors()[b].bytes();
          for (size_t i = 0; i < bytes; i++) seat.data[b][i] = Seat::value(b, i, root, rank);
        }
        EXPECT_OK(seat.broadcast(root));
        EXPECT_TRUE(seat.hold(root, root)) << "root " << root << ", rank " << rank;
        EXPECT_TRUE(seat.gaps_are_untouched());
        zero_comm_barrier(seat.comm());
      }
    });
  }
}

TEST_P(Buffers, random_models_arrive_whole) {
  std::mt19937 random(29);
  for (int round = 0; round < 30; round++) {
    const int world = 2 + static_cast<int>(random() % 3);
    std::vector<Tensor> tensors;
    for (uint32_t i = random() % 40 + 1; i > 0; i--) {
      Tensor tensor{"b" + std::to_string(i), {}, kDtypes[random() % 6]};
      for (uint32_t d = random() % 4; d > 0; d--)
        tensor.shape.push_back(static_cast<int64_t>(random() % (i % 9 == 0 ? 120 : 9)));
      tensors.push_back(std::move(tensor));
    }
    const int root = static_cast<int>(random() % static_cast<uint32_t>(world));
    on_ranks(GetParam(), world, [&](zero_comm* comm, int rank) {
      Seat seat(comm, tensors, round % 2 == 0 ? Where::foreign : Where::arena, round % 3 != 0);
      seat.fill(round, rank);
      EXPECT_OK(seat.broadcast(root));
      EXPECT_TRUE(seat.hold(round, root)) << "round " << round;
      EXPECT_TRUE(seat.gaps_are_untouched());
    });
  }
}

TEST_P(Buffers, more_may_come_at_any_time_and_steps_and_reduced_gradients_are_untouched) {
  on_ranks(GetParam(), 2, [&](zero_comm* comm, int rank) {
    Seat seat(comm, some_tensors(), Where::turns);
    EXPECT_OK(seat.step());
    const float once = seat.weight;
    int64_t more = 10 + rank;
    const Tensor late{"late", {}, ZERO_INT64};
    const zero_buffer entry = Seat::entry(late, &more);
    EXPECT_OK(seat.add_buffer(entry));
    EXPECT_OK(seat.set_scalar(ZERO_ALL_PARAMS, "step", 1));
    const int32_t flags = ZERO_REDUCE_MEAN | ZERO_REDUCE_ACCUMULATE;
    for (int batch = 0; batch < 2; batch++) {
      seat.grad = 0.5f;
      EXPECT_OK(seat.reduce(flags));
      EXPECT_TRUE(ends(seat.add_buffer(entry), ZERO_ERR_STATE, "reduced"));
      EXPECT_OK(seat.broadcast(1 - batch));
      EXPECT_EQ(more, 11);
    }
    float sum = 1;  // unchanged if this rank does not own it
    (void)zero_grad_get(seat.optim(), 0, 0, 1, &sum);
    EXPECT_EQ(sum, 1);
    EXPECT_OK(seat.step());
    EXPECT_NEAR(seat.weight, 2 * once - 1, 1e-4);  // AdamW's second step has about the same length
  });
}

TEST_P(Buffers, a_root_that_differs_or_is_none_is_told_to_all) {
  on_ranks(GetParam(), 2, [&](zero_comm* comm, int rank) {
    Seat seat(comm, some_tensors(), Where::foreign);
    seat.fill(0, rank);
    EXPECT_TRUE(
        ends(seat.broadcast(rank), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, "root 1"));
    for (const int wrong : {-1, 2, INT32_MAX, INT32_MIN}) {
      EXPECT_TRUE(ends(seat.broadcast(rank == 1 ? wrong : 0),
                       rank == 1 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER,
                       "root " + std::to_string(wrong) + " is not a rank in a world of 2"));
    }
    int stream = 0;
    EXPECT_EQ(zero_broadcast_buffers(seat.optim(), 0, rank == 1 ? &stream : nullptr),
              rank == 1 ? ZERO_ERR_ARGUMENT : ZERO_ERR_PEER);
    EXPECT_TRUE(seat.hold(0, rank));
    EXPECT_OK(seat.broadcast(1));
    EXPECT_TRUE(seat.hold(0, 1));
  });
}

TEST_P(Buffers, registrations_that_differ_are_named_by_any_collective_call) {
  const struct {
    const char* words;
    std::function<void(std::vector<Tensor>&)> change;
  } cases[] = {
      {"buffer 'bn.mean' with 65 elements (float32 [65])", [](auto& t) { t[0].shape = {65}; }},
      {"buffer 'bn.tracked' with 1 elements (int32 [])", [](auto& t) { t[1].dtype = ZERO_INT32; }},
      {"buffer 'other'", [](auto& t) { t[3].name = "other"; }},
      {"bfloat16 [3x77]",
       [](auto& t) {
         t[3].shape.assign({3, 77});
       }},
      {"buffer 'ids'", [](auto& t) { std::swap(t[5], t[6]); }},
      {"has nothing", [](auto& t) { t.pop_back(); }}};
  const std::function<zero_status(zero_optim*)> calls[] = {
      [](zero_optim* optim) { return zero_broadcast_buffers(optim, 0, nullptr); },
      [](zero_optim* optim) { return zero_seal(optim); },
      [](zero_optim* optim) { return zero_step(optim, nullptr); },
      [](zero_optim* optim) { return zero_state_save(optim, "/nonexistent/x", nullptr); }};
  size_t turn = 0;
  for (const auto& [words, change] : cases) {
    const auto& call = calls[turn++ % std::size(calls)];
    on_ranks(GetParam(), 3, [&, words = words, &change = change](zero_comm* comm, int rank) {
      std::vector<Tensor> tensors = some_tensors();
      if (rank == 1) change(tensors);
      Seat seat(comm, tensors, Where::foreign);
      EXPECT_TRUE(ends(call(seat.optim()), rank == 1 ? ZERO_ERR_MISMATCH : ZERO_ERR_PEER, words));
      EXPECT_OK(zero_comm_barrier(seat.comm()));
    });
  }
}

TEST_P(Buffers, checkpoints_hold_rank_0s_and_every_rank_of_any_world_gets_them) {
  const std::pair<int, int> cases[] = {{3, 2}, {1, 3}, {2, 1}};
  for (const std::pair<int, int>& worlds : cases) {
    const Scratch scratch;
    const std::string path = scratch / "c";
    on_ranks(GetParam(), worlds.first, [&](zero_comm* comm, int rank) {
      Seat seat(comm, some_tensors(), Where::foreign);
      seat.fill(4, rank);
      seat.save(path);
      EXPECT_TRUE(seat.hold(4, rank));
    });
    for (const Where where : {Where::foreign, Where::most_share, Where::shared}) {
      on_ranks(GetParam(), worlds.second, [&](zero_comm* comm, int) {
        // The order differs, because checkpoints find tensors by name.
        std::vector<Tensor> tensors = some_tensors();
        std::reverse(tensors.begin(), tensors.end());
        Seat seat(comm, tensors, where);
        seat.load(path);
        seat.reverse();
        EXPECT_TRUE(seat.hold(4, 0));
      });
    }
  }
}

TEST(BufferFiles, all_differences_of_a_checkpoint_are_in_one_error_and_nothing_changes) {
  const Scratch scratch;
  const std::string with = scratch / "with";
  {
    Seat seat(alone(), {{"same", {3}}, {"gone", {2}}, {"shape", {4}}, {"kind", {}, ZERO_INT64}},
              Where::foreign);
    seat.weight = 9;
    seat.save(with);
  }
  Seat seat(alone(), {{"same", {3}}, {"shape", {2, 2}}, {"kind", {}, ZERO_FLOAT64}, {"new", {1}}},
            Where::foreign);
  seat.fill(1, 0);
  EXPECT_EQ(zero_state_load(seat.optim(), with.c_str(), nullptr), ZERO_ERR_CKPT_MISMATCH);
  for (const char* words :
       {"buffer 'gone' of the checkpoint is not registered",
        "buffer 'shape' has shape [4] in the checkpoint, but is registered with "
        "[2, 2]",
        "buffer 'kind' is I64 in the checkpoint, but is registered as F64",
        "buffer 'new' is not in the checkpoint"})
    EXPECT_TRUE(says(words));
  EXPECT_EQ(last().find("'same'"), std::string::npos);
  EXPECT_TRUE(seat.hold(1, 0));
  EXPECT_EQ(seat.weight, 1);
  EXPECT_OK(seat.step());
}

/// An optimizer with only the parameter "w".
class Bare : public Optim {
 public:
  Bare() : Optim(alone()) { Optim::add(parameter("w", kOne, &weight, &grad)); }
  ~Bare() { free(); }
  float weight = 1, grad = 1;
};

/// An optimizer with "w" and "f", which is a buffer, a frozen parameter or a trained one.
class Half : public Optim {
 public:
  enum Kind { kBuffer, kFrozen, kTrained };
  template <class Joined>
  Half(Joined joined, Kind kind, int32_t dtype, std::vector<int64_t> shape = {2, 3})
      : Optim(joined), shape_(std::move(shape)) {
    std::vector<zero_param> params = {parameter("w", kOne, &weight, &grad)};
    zero_param half =
        parameter("f", kOne, held.data(), kind == kTrained ? grads.data() : nullptr, dtype);
    half.shape = shape_.data();
    half.ndim = static_cast<int32_t>(shape_.size());
    if (kind == kFrozen) half.flags |= ZERO_PARAM_FROZEN;
    if (kind != kBuffer) params.push_back(half);
    add(params);
    const zero_buffer other = buffer("f", shape_, held.data(), dtype);
    EXPECT_OK(kind == kBuffer ? add_buffer(other) : ZERO_OK);
  }
  ~Half() { free(); }
  float weight = 1, grad = 1;
  std::array<double, 6> held{}, grads{};  // storage for any dtype

 private:
  std::vector<int64_t> shape_;
};

TEST_P(Buffers, what_is_not_trained_loads_as_a_buffer_and_as_a_frozen_parameter) {
  for (const int32_t dtype : kDtypes) {
    for (const Half::Kind saved : {Half::kBuffer, Half::kFrozen}) {
      const Scratch scratch;
      const std::string path = scratch / "c";
      on_ranks(GetParam(), 3, [&](zero_comm* comm, int) {
        Half half(comm, saved, dtype);
        std::memcpy(half.held.data(), "\1\2\3\4\5\6\7\x8\x9\xa\xb\xc", 12);
        EXPECT_OK(half.step());
        half.save(path);
      });
      for (const Half::Kind loaded : {Half::kBuffer, Half::kFrozen}) {
        on_ranks(GetParam(), 2, [&](zero_comm* comm, int) {
          Half half(comm, loaded, dtype);
          half.load(path);
          EXPECT_EQ(0, std::memcmp(half.held.data(), "\1\2\3\4\5\6\7\x8\x9\xa\xb\xc", 12));
          EXPECT_OK(half.step());
          half.save(path + std::to_string(loaded));
        });
      }
    }
  }
}

TEST(BufferFiles, what_is_trained_is_no_buffer) {
  const Scratch scratch;
  const std::string buffer = scratch / "buffer", trained = scratch / "trained";
  {
    Half half(alone(), Half::kBuffer, ZERO_FLOAT32);
    half.save(buffer);
    Half other(alone(), Half::kTrained, ZERO_FLOAT32);
    EXPECT_TRUE(
        ends(zero_state_load(other.optim(), buffer.c_str(), nullptr), ZERO_ERR_CKPT_MISMATCH,
             "parameter 'f' is a buffer in the checkpoint, but is registered to be trained"));
    EXPECT_OK(other.step());
    other.save(trained);
    EXPECT_TRUE(ends(zero_state_load(half.optim(), trained.c_str(), nullptr),
                     ZERO_ERR_CKPT_MISMATCH,
                     "buffer 'f' is a parameter that was trained in the checkpoint"));
  }
  Half flat(alone(), Half::kFrozen, ZERO_FLOAT64, {6});
  EXPECT_TRUE(
      ends(zero_state_load(flat.optim(), buffer.c_str(), nullptr), ZERO_ERR_CKPT_MISMATCH,
           "parameter 'f' is F32 in the checkpoint, but is registered as F64; parameter 'f' "
           "has shape [2, 3] in the checkpoint, but is registered with [6]"));
}

TEST(BufferFiles, a_checkpoint_without_buffers_suits_an_optimizer_without_and_no_other) {
  const Scratch scratch;
  const std::string with = scratch / "with", without = scratch / "without";
  Bare bare;
  bare.save(without);
  EXPECT_EQ(read_file(without + "/zero.json").find("buffers"), std::string::npos);
  bare.load(without);

  Seat seat(alone(), {{"mean", {3}}, {"seen", {}, ZERO_INT64}}, Where::arena);
  seat.fill(1, 0);
  EXPECT_EQ(zero_state_load(seat.optim(), without.c_str(), nullptr), ZERO_ERR_CKPT_MISMATCH);
  EXPECT_TRUE(says("buffer 'mean' is not in the checkpoint; buffer 'seen' is not"));
  EXPECT_TRUE(seat.hold(1, 0));
  seat.save(with);
  EXPECT_TRUE(ends(zero_state_load(bare.optim(), with.c_str(), nullptr), ZERO_ERR_CKPT_MISMATCH,
                   "buffer 'mean' of the checkpoint is not registered"));
}

TEST(BufferFiles, the_formats_own_name_cannot_be_saved) {
  const Scratch scratch;
  Seat seat(alone(), {{"__metadata__", {3}}}, Where::foreign);
  EXPECT_TRUE(ends(zero_state_save(seat.optim(), (scratch / "c").c_str(), nullptr),
                   ZERO_ERR_ARGUMENT, "'__metadata__'"));
}

TEST(BufferInput, what_makes_no_sense_is_named_and_none_is_added) {
  Bare bare;
  alignas(8) static std::byte room[4096];
  const int64_t negative = -1, huge[] = {int64_t{1} << 40, int64_t{1} << 40};
  const Tensor first{"first", {2}, ZERO_INT64}, sound{"b", {4}, ZERO_INT64};
  const std::string long_name(4097, 'x');
  const struct {
    const char* words;
    std::function<void(zero_buffer&)> change;
    zero_status status = ZERO_ERR_ARGUMENT;
  } cases[] = {{"name is NULL", [](auto& b) { b.name = nullptr; }},
               {"is empty", [](auto& b) { b.name = ""; }},
               {"longer than 4096", [&](auto& b) { b.name = long_name.c_str(); }},
               {"not UTF-8", [](auto& b) { b.name = "\xff"; }},
               {"'w' is already a parameter", [](auto& b) { b.name = "w"; }},
               {"'first' is registered twice", [](auto& b) { b.name = "first"; }},
               {"dtype 7 is unknown", [](auto& b) { b.dtype = 7; }},
               {"dtype -1 is unknown", [](auto& b) { b.dtype = -1; }},
               {"ndim is 17", [](auto& b) { b.ndim = 17; }},
               {"ndim is -1", [](auto& b) { b.ndim = -1; }},
               {"shape is NULL", [](auto& b) { b.shape = nullptr; }},
               {"negative dimension", [&](auto& b) { b.shape = &negative; }},
               {"too many elements", [&](auto& b) { b.shape = huge, b.ndim = 2; }},
               {"has no memory", [](auto& b) { b.data = nullptr; }},
               {"not aligned", [](auto& b) { b.data = room + 1028; }},
               {"wraps around",
                [](auto& b) { b.data = reinterpret_cast<void*>(~uintptr_t{0} - 7); }},  // NOLINT
               {"buffer 'b' overlaps that of buffer 'first'", [](auto& b) { b.data = room + 8; }},
               {"buffer 'b' overlaps that of parameter 'w'",
                [&](auto& b) { b.data = &bare.weight, b.dtype = ZERO_FLOAT32; }},
               {"buffer 'b' overlaps that of the gradient of parameter 'w'",
                [&](auto& b) { b.data = &bare.grad, b.dtype = ZERO_FLOAT32; }},
               {"struct_size is 8", [](auto& b) { b.struct_size = 8; }}};
  for (const auto& one : cases) {
    zero_buffer both[2] = {Seat::entry(first, room), Seat::entry(sound, room + 1024)};
    one.change(both[1]);
    if (one.words[0] == 's' && both[1].struct_size == 8) both[0].struct_size = 8;
    EXPECT_EQ(zero_register_buffers(bare.optim(), both, 2), one.status) << one.words;
    EXPECT_TRUE(says(one.words));
  }
  EXPECT_EQ(zero_register_buffers(bare.optim(), nullptr, 1), ZERO_ERR_ARGUMENT);
  zero_buffer one = Seat::entry(sound, room);
  EXPECT_EQ(zero_register_buffers(bare.optim(), &one, 0), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(ends(zero_broadcast_buffers(bare.optim(), 0, nullptr), ZERO_ERR_STATE,
                   "no buffers are registered"));
  EXPECT_OK(bare.add_buffer(one));  // nothing of the others is left
  EXPECT_OK(zero_broadcast_buffers(bare.optim(), 0, nullptr));
}

TEST(BufferInput, a_dtype_of_zero_is_float32_and_no_elements_need_no_memory) {
  Bare bare;
  alignas(8) float room[4] = {};
  const Tensor some{"b", {4}, 0}, none{"none", {0}};
  EXPECT_OK(bare.add_buffer(Seat::entry(some, room)));
  EXPECT_OK(bare.add_buffer(Seat::entry(none, nullptr)));
  const Scratch scratch;
  bare.save(scratch / "c");
  bare.load(scratch / "c");
}

TEST(BufferInput, later_parameters_gradients_and_binds_keep_off_buffers) {
  Bare bare;
  alignas(8) float room[8] = {};
  const Tensor buffer{"b", {8}};
  ASSERT_OK(bare.add_buffer(Seat::entry(buffer, room)));
  float elsewhere = 0;
  zero_param param = parameter("b", kOne, &elsewhere);
  EXPECT_TRUE(ends(zero_register_params(bare.optim(), nullptr, &param, 1, nullptr),
                   ZERO_ERR_ARGUMENT, "parameter 'b' is already a buffer"));
  // The address is that of the buffer. Removing the refused parameter must not remove the buffer.
  param = parameter("v", kOne, room);
  for (int twice = 0; twice < 2; twice++) {
    EXPECT_TRUE(ends(zero_register_params(bare.optim(), nullptr, &param, 1, nullptr),
                     ZERO_ERR_ARGUMENT, "parameter 'v' overlaps that of buffer 'b'"));
  }
  void *data = &elsewhere, *inside = room + 3;
  EXPECT_EQ(zero_bind_params(bare.optim(), &inside, nullptr, 1), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(ends(zero_bind_params(bare.optim(), nullptr, &inside, 1), ZERO_ERR_ARGUMENT,
                   "the gradient of parameter 'w' overlaps that of buffer 'b'"));
  EXPECT_OK(zero_bind_params(bare.optim(), &data, nullptr, 1));
  EXPECT_EQ(zero_bind_params(bare.optim(), &inside, nullptr, 1), ZERO_ERR_ARGUMENT);
  EXPECT_TRUE(ends(bare.step_with({inside}), ZERO_ERR_ARGUMENT, "overlaps that of"));
  EXPECT_TRUE(says("buffer 'b'"));
  EXPECT_OK(bare.step());
}

TEST(BufferInput, an_arena_given_up_stays_while_buffers_are_in_it) {
  Bare bare;
  const size_t bytes = size_t{64} << 20;  // large, so that freeing it would unmap it at once
  float* arena = nullptr;
  ASSERT_OK(
      zero_arena_alloc(bare.comm(), bytes, ZERO_MEMORY_PER_RANK, reinterpret_cast<void**>(&arena)));
  const Tensor buffer{"b", {1000}};
  ASSERT_OK(bare.add_buffer(Seat::entry(buffer, arena)));
  EXPECT_OK(zero_arena_free(arena));
  arena[999] = 5;
  float other = 2, grad = 1;
  void *data = &other, *grads = &grad;
  ASSERT_OK(zero_bind_params(bare.optim(), &data, &grads, 1));
  EXPECT_OK(zero_broadcast_buffers(bare.optim(), 0, nullptr));
  EXPECT_EQ(arena[999], 5);
}

TEST(BufferInput, one_that_reaches_beyond_its_arena_is_named) {
  Bare bare;
  std::byte* arena = nullptr;
  ASSERT_OK(
      zero_arena_alloc(bare.comm(), 4096, ZERO_MEMORY_PER_RANK, reinterpret_cast<void**>(&arena)));
  const Tensor buffer{"b", {int64_t{1} << 22}};
  EXPECT_TRUE(ends(bare.add_buffer(Seat::entry(buffer, arena + 64)), ZERO_ERR_ARGUMENT,
                   "buffer 'b' needs 16777216 bytes and ends beyond its arena"));
  zero_arena_free(arena);
}

}  // namespace
}  // namespace zero::test
