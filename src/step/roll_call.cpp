// SPDX-License-Identifier: Apache-2.0
#include "step/roll_call.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/os.h"
#include "base/text.h"
#include "step/enter.h"
#include "step/step.h"

namespace zero {
namespace {

/// One rank's answer.
struct Record {
  Operation operation = Operation::join;
  uint32_t joined = 0;
  uint32_t fresh = 0;        // has joined since the last roll call
  uint32_t contributes = 0;  // has gradients for a reduction that begins here
};

/// What the rank that guests follow sends them, in front of words, frozen parameters, settings and
/// list.
struct Terms {
  Arguments arguments;  // words and list mean nothing to another rank
  uint64_t has_words;
  uint64_t words_bytes;
  uint64_t params;
  uint64_t settings;
  uint64_t list_bytes;
  Phase phase;
  LossScale loss_scale;
};

std::string pack(const Optimizer& optim, const Arguments& arguments) {
  const std::string words = arguments.words == nullptr ? "" : arguments.words;
  std::string frozen;
  for (size_t i = 0; i < optim.params.size(); i++) frozen += optim.trains(i) ? '\0' : '\1';
  std::vector<double> settings = optim.settings;
  for (const Group& group : optim.groups)
    settings.insert(settings.end(), group.settings.begin(), group.settings.end());
  Terms terms{.arguments = arguments,
              .has_words = arguments.words != nullptr,
              .words_bytes = words.size(),
              .params = frozen.size(),
              .settings = settings.size(),
              .list_bytes = arguments.list.size(),
              .phase = optim.phase == Phase::reducing ? Phase::open : optim.phase,
              .loss_scale = optim.loss_scale};
  terms.arguments.words = nullptr;
  terms.arguments.list = {};
  std::string packed(reinterpret_cast<const char*>(&terms), sizeof terms);
  packed += words;
  packed += frozen;
  packed.append(reinterpret_cast<const char*>(settings.data()), settings.size() * sizeof(double));
  packed.append(reinterpret_cast<const char*>(arguments.list.data()), arguments.list.size());
  return packed;
}

/// Settings as if this rank's caller had made the changes that the others made since it joined.
/// What does not fit stays: the call itself then says what differs.
void adopt(Optimizer& optim, const Terms& terms, const char* frozen, const char* settings) {
  if (terms.phase == Phase::open) (void)drop_grads(optim);
  optim.loss_scale = terms.loss_scale;
  if (terms.params == optim.params.size() && optim.phase == Phase::open) {
    for (size_t i = 0; i < optim.params.size(); i++) {
      if (optim.trains(i) == (frozen[i] != 0))
        (void)optim.set_trainable(static_cast<int64_t>(i), frozen[i] == 0);
    }
  }
  const size_t each = optim.settings.size();
  if (terms.settings != each * (optim.groups.size() + 1)) return;
  const auto take = [&](std::vector<double>& to) {
    std::memcpy(to.data(), settings, each * sizeof(double));
    settings += each * sizeof(double);
  };
  take(optim.settings);
  for (Group& group : optim.groups) take(group.settings);
}

Status unpack(Call& call, Optimizer& optim, const std::string& packed, Told& told) {
  const Status broken(ZERO_ERR_DESYNC, "what another rank says about its call has another size");
  Terms terms;
  if (packed.size() < sizeof terms) return call.abort(broken, "arguments");
  std::memcpy(&terms, packed.data(), sizeof terms);
  size_t rest = packed.size() - sizeof terms;
  const auto holds = [&](uint64_t count, size_t element) {
    if (count > rest / element) return false;
    rest -= count * element;
    return true;
  };
  if (!holds(terms.words_bytes, 1) || !holds(terms.params, 1) ||
      !holds(terms.settings, sizeof(double)) || !holds(terms.list_bytes, 1) || rest != 0)
    return call.abort(broken, "arguments");
  const char* const words = packed.data() + sizeof terms;
  const char* const frozen = words + terms.words_bytes;
  told.arguments = terms.arguments;
  told.has_words = terms.has_words != 0;
  told.words.assign(words, terms.words_bytes);
  const auto list = std::as_bytes(std::span(packed)).last(terms.list_bytes);
  told.list.assign(list.begin(), list.end());
  adopt(optim, terms, frozen, frozen + terms.params);
  return {};
}

Result<std::vector<Record>> meet(Call& call, const Record& mine, const Status& local) {
  std::vector<Record> all(static_cast<size_t>(call.world()));
  call.call_roll();
  os().reached("roll.begin");
  ZERO_TRY(call.vote("roll call", local, std::as_bytes(std::span(&mine, 1)),
                     std::as_writable_bytes(std::span(all))));
  os().reached("roll.called");
  return all;
}

template <class Find>
int32_t first_of(std::span<const Record> all, const Find& find) {
  const auto found = std::find_if(all.begin(), all.end(), find);
  return found == all.end() ? -1 : static_cast<int32_t>(found - all.begin());
}

/// The lowest rank with inputs, or -1.
int32_t first_active(std::span<const Record> all) {
  return first_of(all, [](const Record& one) { return one.joined == 0; });
}

/// The highest rank that came with the last ones.
int32_t last_to_join(std::span<const Record> all) {
  int32_t last = -1;
  for (size_t rank = 0; rank < all.size(); rank++)
    if (all[rank].fresh != 0) last = static_cast<int32_t>(rank);
  return last;
}

Status check_stops(const Optimizer& optim, std::span<const Record> all) {
  const int32_t active = first_active(all);
  const int32_t joined = first_of(all, [](const Record& one) { return one.joined != 0; });
  if (optim.options.uneven_inputs != ZERO_UNEVEN_ERROR || active < 0 || joined < 0) return {};
  const Operation operation = all[static_cast<size_t>(active)].operation;
  return {ZERO_ERR_STATE,
          text("rank ", joined, " has no more inputs, rank ", active, " has and called ",
               operation_name(operation), ": ZERO_UNEVEN_ERROR stops all ranks here")};
}

/// Remember who has joined, and what a mean divides by if its reduction begins in this call.
void count(Optimizer& optim, std::span<const Record> all) {
  optim.joined.assign(all.size(), false);
  int32_t contributors = 0;
  for (size_t rank = 0; rank < all.size(); rank++) {
    optim.joined[rank] = all[rank].joined != 0;
    if (all[rank].joined == 0 || all[rank].contributes != 0) contributors++;
  }
  const bool begins = optim.phase == Phase::open || optim.phase == Phase::reducing;
  if (optim.options.uneven_inputs == ZERO_UNEVEN_ACTIVE && begins)
    optim.contributors = contributors;
}

/// True if gradients would have to come from each owner's own.
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
  const std::vector<Record> all = ZERO_TRY(meet(call, {.operation = operation}, Status()));
  ZERO_TRY(check_stops(optim, all));
  const bool guests = std::any_of(all.begin(), all.end(), [](auto& one) { return one.joined; });
  if (guests) {
    const bool leads = first_active(all) == call.rank();
    ZERO_TRY(call.gather("arguments", leads ? pack(optim, arguments) : std::string()));
  }
  count(optim, all);
  call.take_up(operation);
  const Status refused = check_served(optim, operation, arguments);
  return refused.ok() ? Status() : refuse(call, optim, refused);
}

Result<Told> hear(Call& call, Optimizer& optim, const Joined& own, const Status& local) {
  const Record mine{Operation::join, 1, own.fresh, own.contributes};
  const std::vector<Record> all = ZERO_TRY(meet(call, mine, local));
  ZERO_TRY(check_stops(optim, all));
  const int32_t active = first_active(all);
  const int32_t leader = active < 0 ? last_to_join(all) : active;
  const bool leads = leader == call.rank();
  const std::vector<std::string> packed =
      ZERO_TRY(call.gather("arguments", leads ? pack(optim, Arguments{}) : std::string()));
  Told told;
  told.last_rank = last_to_join(all);
  if (active >= 0) told.operation = all[static_cast<size_t>(active)].operation;
  // Those who came together have said the same so far, or the next call tells.
  if (active >= 0 || !own.fresh)
    ZERO_TRY(unpack(call, optim, packed[static_cast<size_t>(leader)], told));
  count(optim, all);
  if (active < 0) optim.joined.clear();
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
    return Status(ZERO_ERR_STATE, text("rank ", who, " has no more inputs (zero_join) ", why));
  };
  if (needs_owners_gradients(optim, operation, arguments))
    return has_joined(rank, "and no gradient of what it owns, which ZERO_REDUCE_NONE needs");
  if (operation == Operation::share_params && optim.phase == Phase::reduced)
    return has_joined(rank, "and cannot write by hand what it owns");
  if (operation != Operation::state_gather) return {};
  if (arguments.rank == ZERO_ALL_RANKS)
    return has_joined(rank, "and no memory to gather into: gather to one rank that has inputs");
  const auto to = static_cast<size_t>(arguments.rank);
  if (arguments.rank < 0 || to >= optim.joined.size() || !optim.joined[to]) return {};
  return has_joined(arguments.rank, "and no memory to gather into: gather to one that has inputs");
}

}  // namespace zero
