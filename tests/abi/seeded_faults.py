# SPDX-License-Identifier: Apache-2.0
"""Lists faults that a tired engineer could make, in every folder of src. Each has a file, a text, its replacement,
and the tests that should detect it first. scripts/nightly.py inserts one fault at a time, and the ordinary tests must
fail.

usage: seeded_faults.py ROOT   fails if a text is not in its file or a test does not exist, so that the list must be updated
"""
import pathlib
import sys

FAULTS = [
    ("base/secret.cpp", "difference |= a[i] ^ b[i];", "difference = a[i] ^ b[i];", "sha256"),
    ("base/secret.cpp", "? sha256(key) : Sha256{}", "? Sha256{} : Sha256{}", "sha256"),
    ("base/text.cpp", "while (bytes > 0 && continues_character(text[bytes])) --bytes;", "", "difference"),
    ("base/text.cpp", "point >= 0xD800 && point <= 0xDFFF", "point >= 0xD800 && point <= 0xD8FF", "status"),
    ("base/container.cpp", "least = std::min(least, limit.left);", "least = limit.left;", "container"),
    ("base/interrupt.cpp", "if (os().gettid() != os().getpid()) return false;", "", "interrupt"),
    ("optim/deal.cpp", "std::tuple(group.rule_line(), group.slots_used(),", "std::tuple(group.rule_line(), 0u,", "group_rules"),
    ("step/views.cpp", "optim.random_at(next.segment) - optim.random_at(last.segment) != distance", "false",
     "state_dtype"),
    ("kernels/stochastic.h", "raised < kInfinityBits ? raised : magnitude", "raised", "stochastic"),
    ("kernels/stochastic.h", "static_cast<uint32_t>(slot) * 0x9E3779B9", "static_cast<uint32_t>(slot) * 0", "stochastic"),
    ("step/tiles.cpp", "key_of_slot(rounding_key(step), ", "key_of_slot(rounding_key(step * 0), ",
     "state_dtype"),
    ("state/access.cpp", "if (is_stored_as_half(optim, tensor)) return write_halves", "if (false) return write_halves",
     "state_dtype"),
    ("optim/register.cpp", "group.slot_format != SlotFormat::full && param.dtype == DType::f64", "false", "state_dtype"),
    ("state/compare.cpp", "rule != registered)", "false)", "group_rules"),
    ("plan/plan.cpp", "return one.share + one.count <= first;", "return one.share + one.count < first;", "plan"),
    ("plan/plan.cpp", "last.param == next.param && last.first + last.count == next.first &&",
     "last.param == next.param &&", "plan"),
    ("plan/partition.cpp", "if (elements > kMaxElements - end) return false;", "", "plan"),
    ("plan/partition.cpp", "given(a).order > given(b).order;", "given(a).order >= given(b).order;", "plan"),
    ("rules/adam.h", "if (largest) second = slot[max_exp_avg_sq] = maximum(slot[max_exp_avg_sq], second);",
     "if (largest) second = maximum(slot[max_exp_avg_sq], second);", "rule"),
    ("rules/sgd.h", "scalars.flag[is_first] = in.first(momentum_buffer);", "scalars.flag[is_first] = false;", "rule"),
    ("kernels/reductions.h", "for (int r = 1; r < ranks; ++r) {\n      __builtin_memcpy(last,",
     "for (int r = 1; r + 1 < ranks; ++r) {\n      __builtin_memcpy(last,", "reductions kernels"),
    ("device/thread_pool.cpp", "if (thrown_ != nullptr) std::rethrow_exception(std::exchange(thrown_, nullptr));",
     "thrown_ = nullptr;", "thread_pool"),
    ("device/image.cpp", "copy_past_caches(block.copy, block.data, block.bytes);", "", "image save_behind"),
    ("device/image.cpp", "block.unread == bytes ? Part::read : Part::live;", "Part::read;", "save_behind image"),
    ("device/window.cpp", 'ZERO_TRY(await(*device_, done_.handle(), timeout_ms_, "copying tensors"));', "", "window"),
    ("comm/link.cpp", "if (!ours || header.bytes > most_bytes_) {", "if (!ours) {", "fuzz_link"),
    ("comm/link.cpp", "std::move(received.begin(), received.end(), std::back_inserter(descriptors_));",
     "for (Fd& fd : received) (void)fd.release();", "fuzz_link rendezvous"),
    ("comm/reception.cpp", "if (said.world != meeting_.world)", "if (said.world < meeting_.world)", "tcp rendezvous"),
    ("comm/reception.cpp", "if (!before) return {};", "if (!before || said.rank != meeting_.rank) return {};",
     "rendezvous tcp"),
    ("comm/reception.cpp", "return !one.spoke();", "return one.spoke();", "tcp"),
    ("comm/visit.cpp", "if (meeting_.deadline.passed(met ? kVerdictMs : 0)) return unreached();", "", "rendezvous tcp"),
    ("comm/failure.cpp", "if (is_set()) return;", "", "comm_failure exchange tcp"),
    ("comm/watch.cpp", "if (stopped_ns < kAbsenceNs) return 0;", "if (true) return 0;", "watch slow_save"),
    ("comm/watch.cpp", "absent_ns_ == 0 ? stopped_ns", "true ? stopped_ns", "watch"),
    ("base/interrupt.cpp", "const CallersTime spent;", "", "waits"),
    ("comm/exchange_record.cpp", "if (other.failed >= 0 && (failed < 0 || other.failed < failed)) {",
     "if (other.failed >= 0) {", "comm"),
    ("comm/agreement.cpp", "return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;",
     "return wishes[static_cast<size_t>(a)].key > wishes[static_cast<size_t>(b)].key;", "subgroup"),
    ("comm/launch.cpp", "theirs < kMostPort ? theirs + 1 : theirs - 1", "theirs + 1", "env"),
    ("comm/local/control.cpp", "child < first + count; ++child)", "child + 1 < first + count; ++child)", "comm"),
    ("comm/local/control.cpp", "std::memcpy(own.record[k % 2], mine.data(), mine.size());",
     "std::memcpy(own.record[0], mine.data(), mine.size());", "exchange"),
    ("comm/local/wait.cpp",
     "if (peers_[static_cast<size_t>(r)].get() == other &&\n"
     "          slot(r).state.load(std::memory_order_acquire) != kLeft)",
     "if (peers_[static_cast<size_t>(r)].get() == other)", "exchange"),
    ("comm/local/segment.cpp", "if ((seals & kSizeSeals) != kSizeSeals)", "if ((seals & kSizeSeals) == 0)", "local"),
    ("comm/local/rendezvous.cpp", "if (process >= processes.size())", "if (process > processes.size())", "rendezvous"),
    ("comm/tcp/tcp.cpp", "if (peer.link->over() && !peer.left)", "if (peer.link->over())", "tcp"),
    ("comm/tcp/tree.h", "other = (other - 1) / fan_out;", "other = other / fan_out;", "tree"),
    ("comm/tcp/wait.cpp", "if (comm_.is_parent(peer) ? !comm_.risen() : comm_.risen() || peer.record)",
     "if (!comm_.is_parent(peer))", "tree"),
    ("comm/hosts/plane.cpp", "(come ? traffic().data.received : traffic().data.sent)", "traffic().data.sent",
     "traffic_model"),
    ("comm/mpi/duplicates.cpp", "if (all_[i]->state == Duplicate::idle)", "if (all_[i]->state != Duplicate::used)",
     "mpi_comm"),
    ("comm/nccl/channel.cpp", "if (!first && outcome == kSuccess) break;", "if (outcome == kSuccess) break;",
     "nccl_channel"),
    ("optim/register.cpp", "std::prev(next)->second.end > begin)\n    return clash",
     "std::prev(next)->second.end >= begin)\n    return clash", "bad_input"),
    ("optim/register.cpp", "occupied_ = saved_memory;", "", "bad_input"),
    ("optim/tensor_checks.cpp", "if (reinterpret_cast<uintptr_t>(memory) % size_of(dtype) == 0) return Status();",
     "if (reinterpret_cast<uintptr_t>(memory) % sizeof(float) == 0) return Status();", "bad_input"),
    ("step/step.cpp", "optim.phase = Phase::reduced;\n", "", "accumulate"),
    ("step/step.cpp", "if (memory.norm_type == p) return", "if (memory.norm_type != 0) return", "norm"),
    ("step/step.cpp", "if (before_) static_cast<StepLayout&>(memory_) = std::move(*before_);", "",
     "accumulate device_calls"),
    ("step/host_walk.cpp", "optim_.comm->steps.publishing--;", "", "step comm_failure"),
    ("step/host_walk.cpp", 'ZERO_TRY(call_.vote("publish: owners have written", Status()));', "",
     "equivalence schedules"),
    ("step/seal.cpp", "for (size_t i = optim.sealed_buffers(); i < optim.buffers.size(); i++) {",
     "for (size_t i = optim.sealed_buffers() + 1; i < optim.buffers.size(); i++) {", "buffers"),
    ("step/queued/walk.cpp", "  ZERO_TRY(device().wait(stream(), queue().ended.handle(), order::kEnded));\n", "",
     "device_order device_calls"),
    ("step/queued/queue.cpp", "ZERO_TRY(queue->device->number_of(stream))", "reinterpret_cast<uint64_t>(stream)",
     "device_calls"),
    ("state/commit.cpp", "ZERO_TRY(sync(directory_));\n", "", "power_loss"),
    ("state/commit.cpp", "if (Status status = sync(parent_); !status.ok())", "if (Status status; !status.ok())",
     "power_loss"),
    ("state/commit.cpp", "ZERO_TRY(sync(parent));  // or a power failure could bring back", "//", "power_loss"),
    ("state/commit.cpp", "if (!commits()) return save_given_up();", "(void)commits();", "given_up"),
    ("state/commit.cpp", "!ZERO_TRY(lock.try_take());) {", "!(void(lock.try_take()), true);) {", "commit"),
    ("state/commit.cpp", "rename_entry(parent_, temporary_, target_, RENAME_EXCHANGE) != 0)", "true)", "commit"),
    ("state/commit.cpp", "if (is_ours(target_)) return exchanges ? keep_others() : Status();",
     "if (is_ours(target_)) return {};", "commit"),
    ("state/temporary.cpp", "if (made) remove_entry(parent, name, AT_REMOVEDIR);",
     "remove_entry(parent, name, AT_REMOVEDIR);", "commit"),
    ("state/commit.cpp", "if (!is_same(parent_, target_, replaced_) || id_in(replaced_) != replaced_id_)", "if (false)",
     "commit"),
    ("state/file.cpp", "ZERO_TRY(sync(parent));  // the name is an entry of it", "", "file power_loss"),
    ("state/file.cpp", "if (file.fd.close(os().close) == 0 || errno == EINTR) return {};",
     "(void)file.fd.close(os().close);\n  return {};", "commit"),
    ("base/os.h", "if (std::exchange(locked_, false)) (void)os().flock(fd_, LOCK_UN | LOCK_NB);", "", "fork"),
    ("comm/memory_check.cpp", "wanted = add(wanted, row.bytes);", "wanted = std::max(wanted, row.bytes);",
     "memory_check"),
    ("state/manifest.cpp", "if (all <= kMostExtrasBytes) return {};", "if (all <= UINT64_MAX) return {};", "damage"),
    ("state/read.cpp", "} else if (first == at && has_extras) {", "} else if (first > at && has_extras) {", "damage"),
    ("base/os.h", "const DescriptorChange change;\n    return Fd(call());", "return Fd(call());", "fork"),
    ("base/fork.cpp", "while (changes.has_others(changes_of_mine) &&", "while (false &&", "fork"),
    ("base/fork.cpp", "real_system_calls().close(word * kWordBits + std::countr_zero(bits));", ";",
     "fork commit tree hosts"),
    ("state/file.cpp", "data = data.subspan(static_cast<size_t>(put));", "data = {};", "save"),
    ("state/file.cpp", "(error == EINVAL || error == EOPNOTSUPP)", "(error == EOPNOTSUPP)", "file"),
    ("optim/agreed.h", "all_.push_back(std::bit_cast<uint64_t>(number));", "(void)number;", "bad_input_of_ranks scale"),
    ("state/blocks.cpp", "ZERO_TRY(sync(file_));\n  ZERO_TRY(close_checked", "ZERO_TRY(close_checked", "power_loss"),
    ("state/read.cpp", "for (uint64_t block = first; block < last; block++)",
     "for (uint64_t block = first; block + 1 < last; block++)", "damage"),
    ("state/manifest.cpp", "if (slice.start != end)", "if (slice.start > end)", "manifest"),
    ("state/load.cpp", "optim_.progress[i].product = saved.mu_product;", "", "device_state"),
    ("state/load.cpp", "optim_.not_loaded = true;", "", "load"),
    ("state/prune.cpp", 'ZERO_TRY(verify(parent, listed.front()).within("nothing was deleted"));',
     "(void)verify(parent, listed.front());", "prune"),
    ("state/save_behind.cpp",
     "for (const Buffer& buffer : optim_.buffers) image_->keep(buffer.data, buffer.bytes());", "", "save_behind"),
    ("state/extras.cpp", "extras.size() >= kMostExtras", "extras.size() > kMostExtras", "extras"),
    ("api/handles.cpp", "token != token_of(type, entry.generation, place)", "false", "bad_input"),
    ("optim/options.cpp", "factor > 0 && factor <= 1", "factor > 0", "bad_input scale"),
]


def main(root: pathlib.Path) -> int:
    source = root / "src"
    tests = ({file.name.removesuffix("_test.cpp") for file in root.glob("tests/*/*_test.cpp")} |
             {f"fuzz_{file.stem}" for file in root.glob("tests/fuzz/corpus/*.txt")})
    faults = []
    for file, old, new, names in FAULTS:
        times = (source / file).read_text(encoding="utf-8").count(old)
        if times != 1 or old == new:
            faults.append(f"{file} has {times} times '{old}', in whose place '{new}' is a fault")
        faults += [f"{file}: there is no test '{name}'" for name in names.split() if name not in tests]
    folders = {file.parent for file in source.rglob("*.h")} - {(source / fault[0]).parent for fault in FAULTS}
    faults += [f"{folder} has no fault" for folder in sorted(folders)]
    print("\n".join(faults + [f"{len(FAULTS)} faults to seed, {len(faults)} of them wrong"]))
    return bool(faults) or len(FAULTS) < 60


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
