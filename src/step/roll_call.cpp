// SPDX-License-Identifier: Apache-2.0
#include "step/roll_call.h"

#include <algorithm>
#include <cstring>

#include "base/os.h"
#include "base/refusals.h"
#include "step/enter.h"
#include "step/step.h"

namespace zero {
namespace {

/// The answer of one rank, or the combined answers of several ranks.
struct Record {
  static constexpr int32_t kNobody = INT32_MAX;
  int32_t active = kNobody;               // the lowest rank with inputs
  Operation operation = Operation::join;  // the call of `active`
  int32_t joined = kNobody;               // the lowest rank that has joined
  int32_t last_to_join = -1;  // the highest rank that has joined since the last roll call
  uint32_t contributors = 0;  // ranks with gradients for a reduction that begins here

  void add(const Record& other) {
    if (other.active < active) operation = other.operation;
    active = std::min(active, other.active);
    joined = std::min(joined, other.joined);
    last_to_join = std::max(last_to_join, other.last_to_join);
    contributors += other.contributors;
  }
  bool some_active() const { return active != kNobody; }
  bool some_joined() const { return joined != kNobody; }
};

/// What joined ranks receive from the rank that they follow. The words, frozen parameters, settings
/// and list come after it.
struct Terms {
  Arguments arguments;  // words and list are null, because they are pointers
  uint64_t has_words;
  Phase phase;
  LossScale loss_scale;
};

/// Appends the number of rows, followed by the rows.
template <class Rows>
void append(std::string& packed, const Rows& rows) {
  const uint64_t count = rows.size();
  packed.append(reinterpret_cast<const char*>(&count), sizeof count);
  packed.append(reinterpret_cast<const char*>(rows.data()), count * sizeof *rows.data());
}

/// Takes rows off the front of `packed`. Returns false if it is too short.
template <class Rows>
bool take_packed(std::string_view& packed, Rows& rows) {
  uint64_t count = 0;
  if (packed.size() < sizeof count) return false;
  std::memcpy(&count, packed.data(), sizeof count);
  packed.remove_prefix(sizeof count);
  if (count > packed.size() / sizeof *rows.data()) return false;
  rows.resize(count);
  const size_t bytes = count * sizeof *rows.data();
  if (bytes > 0) std::memcpy(rows.data(), packed.data(), bytes);
  packed.remove_prefix(bytes);
  return true;
}

std::string pack(const Optimizer& optim, const Arguments& arguments) {
  std::string frozen;
  for (const bool trains : optim.trainable()) frozen += trains ? '\0' : '\1';
  std::vector<double> settings = optim.initial.settings;
  for (const Group& group : optim.groups)
    settings.insert(settings.end(), group.settings.begin(), group.settings.end());
  Terms terms{.arguments = arguments,
              .has_words = arguments.words != nullptr,
              .phase = optim.agreed_phase(),
              .loss_scale = optim.loss_scale()};
  terms.arguments.words = nullptr;
  terms.arguments.list = {};
  std::string packed;
  append(packed, std::span(&terms, 1));
  append(packed, std::string_view(arguments.words == nullptr ? "" : arguments.words));
  append(packed, frozen);
  append(packed, settings);
  append(packed, arguments.list);
  return packed;
}

/// Changes the settings as if this rank's caller had made the same changes as the other ranks since
/// it joined. Ignores what does not fit, because the call then reports the difference.
void adopt_terms(Optimizer& optim, const Terms& terms, const std::string& frozen,
                 std::span<const double> settings) {
  if (terms.phase == Phase::open) (void)drop_grads(optim);
  optim.set_loss_scale(terms.loss_scale);
  if (frozen.size() == optim.params.size() && optim.phase == Phase::open) {
    for (size_t i = 0; i < optim.params.size(); i++) {
      if (optim.trains(i) == (frozen[i] != 0))
        (void)optim.set_trainable(static_cast<int64_t>(i), frozen[i] == 0);
    }
  }
  size_t all = optim.initial.settings.size();
  for (const Group& group : optim.groups) all += group.settings.size();
  if (settings.size() != all) return;
  const auto take = [&](std::vector<double>& to) {
    std::ranges::copy(settings.first(to.size()), to.begin());
    settings = settings.subspan(to.size());
  };
  take(optim.initial.settings);
  for (Group& group : optim.groups) take(group.settings);
}

Status unpack(Call& call, Optimizer& optim, const std::string& packed, Told& told) {
  std::vector<Terms> terms;
  std::string frozen;
  std::vector<double> settings;
  std::string_view rest = packed;
  if (!take_packed(rest, terms) || terms.size() != 1 || !take_packed(rest, told.words) ||
      !take_packed(rest, frozen) || !take_packed(rest, settings) || !take_packed(rest, told.list) ||
      !rest.empty())
    return call.abort({ZERO_ERR_DESYNC, "another rank's record of its call has the wrong size"},
                      "arguments");
  told.arguments = terms[0].arguments;
  told.has_words = terms[0].has_words != 0;
  adopt_terms(optim, terms[0], frozen, settings);
  return {};
}

/// Exchanges records with all ranks, and updates Optimizer::joined.
Result<Record> meet(Call& call, Optimizer& optim, const Record& mine, const Status& local) {
  call.call_roll();
  os().reached("roll.begin");
  const Record all = ZERO_TRY(call.vote("roll call", local, mine));
  os().reached("roll.called");
  if (all.last_to_join < 0) return all;
  const std::vector<uint8_t> joined =
      ZERO_TRY(call.exchange("joined", uint8_t{mine.some_joined()}));
  optim.joined.assign(joined.begin(), joined.end());
  return all;
}

Status check_stops(const Optimizer& optim, const Record& all) {
  if (optim.options.uneven_inputs != ZERO_UNEVEN_ERROR || !all.some_active() || !all.some_joined())
    return {};
  return wrong_state("rank ", all.joined, " has run out of inputs, but rank ", all.active,
                     " has not, and called ", operation_name(all.operation),
                     ": ZERO_UNEVEN_ERROR stops all ranks");
}

/// Sets the divisor of means if their reduction begins in this call.
void count(Optimizer& optim, const Record& all) {
  if (optim.options.uneven_inputs == ZERO_UNEVEN_ACTIVE && optim.agreed_phase() == Phase::open)
    optim.contributors = static_cast<int32_t>(all.contributors);
}

/// Returns true if the call needs each owner's own gradients.
bool needs_owners_gradients(const Optimizer& optim, Operation operation,
                            const Arguments& arguments) {
  if (operation != Operation::reduce_grads && operation != Operation::step) return false;
  const Grads grads{nullptr, 0, arguments.flags};
  return reduces(optim, grads) && (arguments.flags & ~ZERO_REDUCE_ACCUMULATE) == ZERO_REDUCE_NONE;
}

}  // namespace

Status call_roll(Call& call, Optimizer& optim, const Arguments& arguments) {
  if (optim.options.uneven_inputs == ZERO_UNEVEN_OFF) return {};
  const Operation operation = call.operation();
  const Record mine{.active = call.rank(), .operation = operation, .contributors = 1};
  const Record all = ZERO_TRY(meet(call, optim, mine, Status()));
  ZERO_TRY(check_stops(optim, all));
  if (all.some_joined()) {
    const bool leads = all.active == call.rank();
    ZERO_TRY(call.broadcast_text("arguments", leads ? pack(optim, arguments) : "", all.active));
  }
  count(optim, all);
  call.take_up(operation);
  const Status refused = check_served(optim, operation, arguments);
  return refused.ok() ? Status() : refuse(call, optim, refused);
}

Result<Told> hear(Call& call, Optimizer& optim, const Joined& own, const Status& local) {
  const int32_t rank = call.rank();
  const Record mine{.joined = rank,
                    .last_to_join = own.fresh ? rank : -1,
                    .contributors = own.contributes ? 1u : 0u};
  const Record all = ZERO_TRY(meet(call, optim, mine, local));
  ZERO_TRY(check_stops(optim, all));
  const int32_t leader = all.some_active() ? all.active : all.last_to_join;
  Told told;
  told.last_rank = all.last_to_join;
  told.operation = all.operation;
  const std::string packed = ZERO_TRY(
      call.broadcast_text("arguments", leader == rank ? pack(optim, Arguments{}) : "", leader));
  // A rank that joined together with the leader has made the same calls. If it has not, the next
  // call reports the difference.
  if (all.some_active() || !own.fresh) ZERO_TRY(unpack(call, optim, packed, told));
  count(optim, all);
  if (!all.some_active()) optim.joined.clear();
  call.take_up(told.operation);
  return told;
}

int32_t buffer_root(const Optimizer& optim, int32_t root) {
  const auto index = static_cast<size_t>(root);
  if (root < 0 || index >= optim.joined.size() || !optim.joined[index]) return root;
  const auto highest = std::find(optim.joined.rbegin(), optim.joined.rend(), false);
  return static_cast<int32_t>(optim.joined.rend() - highest) - 1;
}

Status check_served(const Optimizer& optim, Operation operation, const Arguments& arguments) {
  const auto found = std::find(optim.joined.begin(), optim.joined.end(), true);
  if (found == optim.joined.end()) return {};
  const auto rank = static_cast<int32_t>(found - optim.joined.begin());
  const auto has_joined = [](int32_t who, const char* why) {
    return wrong_state("rank ", who, " has run out of inputs (zero_join) ", why);
  };
  if (needs_owners_gradients(optim, operation, arguments))
    return has_joined(rank, "and has no gradient for what it owns, which ZERO_REDUCE_NONE needs");
  if (operation == Operation::share_params && optim.phase == Phase::reduced)
    return has_joined(rank, "and cannot write the parameters that it owns");
  if (operation != Operation::state_gather) return {};
  if (arguments.rank == ZERO_ALL_RANKS)
    return has_joined(rank,
                      "and has no memory to gather into: gather to one rank that still has inputs");
  const auto to = static_cast<size_t>(arguments.rank);
  if (arguments.rank < 0 || to >= optim.joined.size() || !optim.joined[to]) return {};
  return has_joined(arguments.rank,
                    "and has no memory to gather into: gather to one that still has inputs");
}

}  // namespace zero
