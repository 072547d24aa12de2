// SPDX-License-Identifier: Apache-2.0
#include "step/reduce.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "kernels/clamp.h"
#include "step/backward.h"

namespace zero {
namespace {

int64_t share_of(const StepMemory& memory, const Piece& piece) {
  return memory.views[piece.view].segment.share + static_cast<int64_t>(piece.first);
}

/// Calls change(sums, count) for the pieces of the chosen parameters, on all threads.
template <class Change>
void for_each_sums(const Optimizer& optim, const StepMemory& memory, const Chosen& chosen,
                   const Change& change) {
  deal_out_views(optim, memory, [&](int, int64_t begin, int64_t end) {
    walk_pieces(optim, memory, begin, end, [&](const Piece& piece) {
      if (!is_chosen(memory.views[piece.view], chosen)) return;
      if (piece.section.sum() == DType::f64) {
        change(reinterpret_cast<double*>(piece.sums), piece.count);
      } else {
        change(reinterpret_cast<float*>(piece.sums), piece.count);
      }
    });
  });
}

/// Calls work(thread, reducer, piece) for all pieces, with one reducer for each thread. Returns the
/// combined record.
template <class Work>
NormSums reduce_pieces(const Optimizer& optim, const StepMemory& memory, double p,
                       const Work& work) {
  std::vector<NormSums> records(static_cast<size_t>(optim.pool->threads()));
  deal_out_views(optim, memory, [&](int thread, int64_t begin, int64_t end) {
    Reducer reducer(kernels(), p);
    walk_pieces(optim, memory, begin, end,
                [&](const Piece& piece) { work(thread, reducer, piece); });
    records[static_cast<size_t>(thread)] = reducer.record();
  });
  NormSums total;
  for (const NormSums& record : records) total.add(record);
  return total;
}

}  // namespace

void scale_sums(DType sum, std::byte* to, const std::byte* from, size_t count, double factor) {
  if (sum == DType::f64) {
    scale(reinterpret_cast<double*>(to), reinterpret_cast<const double*>(from), count, factor);
  } else {
    scale(reinterpret_cast<float*>(to), reinterpret_cast<const float*>(from), count,
          static_cast<float>(factor));
  }
}

NormSums reduce_share(Call& call, Optimizer& optim, StepMemory& memory, double p) {
  const size_t width = memory.sources.width;
  struct Walker {
    std::vector<const void*> in;
    Reducer ranks{kernels(), 0};
    int pieces = 0;
    bool aborted = false;
    alignas(64) std::byte sum[kBlock * sizeof(double)];
  };
  std::vector<Walker> walkers(static_cast<size_t>(optim.pool->threads()));
  for (Walker& walker : walkers) walker.in.resize(width);
  const Backward* const made = early(memory);
  const bool measured = made != nullptr && !memory.accumulates && p == made->norm_type();
  NormSums record =
      reduce_pieces(optim, memory, p, [&](int thread, Reducer& reducer, const Piece& piece) {
        Walker& walker = walkers[static_cast<size_t>(thread)];
        if (walker.aborted) return;
        const auto end = static_cast<int64_t>(piece.first + piece.count);  // in its view
        const bool done = made != nullptr && end <= made->done(piece.view);
        if (done && measured) return;
        const DType sum = piece.section.sum();
        const DType from = done ? sum : piece.section.grad_dtype;
        const Rounding rounded = done ? Rounding{} : rounding(optim, memory, piece.section);
        walker.in.resize(done ? 1 : width);
        if (done) {
          walker.in[0] = made->sums() + piece.section.sum_at(share_of(memory, piece));
        } else {
          for (size_t i = 0; i < width; i++) {
            const std::byte* source = memory.sources[piece.view][i];
            walker.in[i] = source == nullptr ? kZeros : source + piece.first * size_of(from);
          }
        }
        if (!memory.adds) {
          reducer.reduce(sum, from, piece.sums, walker.in, piece.count, rounded);
        } else if (from == sum && !rounded.any()) {
          walker.in.insert(walker.in.begin(), piece.sums);
          reducer.reduce(sum, sum, piece.sums, walker.in, piece.count);
        } else {  // all inputs of a reduction must have the same type
          for (size_t i = 0; i < walker.in.size(); i++) {
            walker.ranks.reduce(sum, from, walker.sum, {&walker.in[i], 1}, piece.count, rounded);
            const std::array<const void*, 2> both = {piece.sums, walker.sum};
            (i + 1 < walker.in.size() ? walker.ranks : reducer)
                .reduce(sum, sum, piece.sums, both, piece.count);
          }
        }
        if (++walker.pieces % 128 == 0) {
          walker.aborted = call.comm().aborted();
          if (thread == 0) call.progress();
        }
      });
  if (measured) record.add(made->record());
  count_moved(optim, memory, [&](const Section& section) {
    return width * size_of(section.grad_dtype) + size_of(section.sum()) * (memory.adds ? 2 : 1);
  });
  return record;
}

NormSums norm_of_share(Optimizer& optim, const StepMemory& memory, double p, const Chosen& chosen) {
  const NormSums record =
      reduce_pieces(optim, memory, p, [&](int, Reducer& reducer, const Piece& piece) {
        if (!is_chosen(memory.views[piece.view], chosen)) return;
        const DType sum = piece.section.sum();
        const void* const in = piece.sums;
        reducer.reduce(sum, sum, piece.sums, {&in, 1}, piece.count);
      });
  const auto bytes_of = [](const Section& section) { return size_of(section.sum()); };
  count_moved(optim, memory, bytes_of, chosen);
  return record;
}

NormSums add_to_share(Optimizer& optim, const StepMemory& memory, double p) {
  const NormSums record =
      reduce_pieces(optim, memory, p, [&](int, Reducer& reducer, const Piece& piece) {
        const DType sum = piece.section.sum();
        const std::byte* const more =
            memory.incoming.data() + piece.section.sum_at(share_of(memory, piece));
        const std::array<const void*, 2> both = {piece.sums, more};
        reducer.reduce(sum, sum, piece.sums, both, piece.count);
      });
  count_moved(optim, memory, [](const Section& section) { return 3 * size_of(section.sum()); });
  return record;
}

void scale_share(Optimizer& optim, const StepMemory& memory, const Chosen& chosen, double factor) {
  for_each_sums(optim, memory, chosen, [factor](auto* sums, size_t count) {
    scale(sums, sums, count, static_cast<std::remove_pointer_t<decltype(sums)>>(factor));
  });
}

void clamp_share(Optimizer& optim, const StepMemory& memory, double limit) {
  const double factor = optim.state.factor;
  for_each_sums(optim, memory, {}, [=](auto* sums, size_t count) {
    using Real = std::remove_pointer_t<decltype(sums)>;
    clamp_scaled(sums, count, static_cast<Real>(factor), static_cast<Real>(limit));
  });
}

Result<Windows*> windows_of(Optimizer& optim) {
  StepMemory& memory = step_memory(optim);
  if (memory.windows == nullptr) {
    const std::shared_ptr<Device>& device = optim.comm->device();
    const int64_t timeout_ms = optim.comm->options().timeout_ms;
    auto made = std::make_unique<Windows>();
    made->values = ZERO_TRY(Window::create(device, timeout_ms));
    made->remainders = ZERO_TRY(Window::create(device, timeout_ms));
    memory.windows = std::move(made);
  }
  return memory.windows.get();
}

Result<bool> copy_grads(Optimizer& optim, Windows& windows, const Segment& part, std::byte* out) {
  const StepMemory& memory = step_memory(optim);
  const auto behind =
      std::partition_point(memory.views.begin(), memory.views.end(),
                           [&](const View& view) { return view.segment.share <= part.share; });
  const View& view = *(behind - 1);  // every owned segment has a view
  if (view.cls < 0) return false;
  const DType sum = optim.plan.section_of(part.param).sum();
  const size_t element = size_of(sum);
  const std::byte* const sums =
      view.reduced + static_cast<size_t>(part.share - view.segment.share) * element;
  for (int64_t done = 0, count = 0; done < part.count; done += count) {
    const size_t at = static_cast<size_t>(done) * element;
    count = std::min(windows.values.most(element), part.count - done);
    const auto now = static_cast<size_t>(count);
    const std::byte* const from = ZERO_TRY(windows.values.show(sums + at, now * element));
    scale_sums(sum, out + at, from, now, optim.state.factor);
  }
  return true;
}

}  // namespace zero
