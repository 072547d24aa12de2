// SPDX-License-Identifier: Apache-2.0
// The capture of work, and its repeated launches.
#include <algorithm>
#include <map>
#include <set>

#include "base/text.h"
#include "support/chaos_world.h"

namespace zero::test {

void ChaosWorld::Graph::add(Queue& queue, Step step) {
  const auto found = std::find_if(lanes.begin(), lanes.end(),
                                  [&](const Lane& lane) { return lane.queue.get() == &queue; });
  Lane& lane =
      found != lanes.end() ? *found : lanes.emplace_back(Lane{queue.shared_from_this(), {}});
  lane.steps.push_back(std::move(step));
}

std::string ChaosWorld::Graph::left_out() const {
  // Points after which a stream has no more work.
  std::map<const Point*, size_t> ends;
  for (size_t i = 0; i < lanes.size(); i++) {
    const std::vector<Step>& steps = lanes[i].steps;
    for (auto step = steps.rbegin(); step != steps.rend() && step->records != nullptr; ++step)
      ends[step->records.get()] = i;
  }
  std::set<size_t> joined, next = {0};
  while (!next.empty()) {
    const size_t lane = *next.begin();
    next.erase(next.begin());
    if (!joined.insert(lane).second) continue;
    for (const Step& step : lanes[lane].steps) {
      const auto end = ends.find(step.after.get());
      if (end != ends.end()) next.insert(end->second);
    }
  }
  std::string names;
  for (size_t i = 0; i < lanes.size(); i++)
    if (joined.count(i) == 0) names += text(names.empty() ? "" : ", ", lanes[i].queue->name);
  return names;
}

Result<uint64_t> ChaosDevice::capturing(StreamHandle stream) {
  const std::lock_guard lock(world_->mutex_);
  const ChaosWorld::Queue& queue = *ZERO_TRY(queue_of(stream));
  return queue.graph == nullptr ? uint64_t{0} : queue.graph->number;
}

Status ChaosDevice::begin_capture(StreamHandle stream) {
  const std::lock_guard lock(world_->mutex_);
  ChaosWorld::Queue& queue = *ZERO_TRY(queue_of(stream));
  if (queue.graph != nullptr) return {ZERO_ERR_SYSTEM, "the stream is captured already"};
  queue.graph = std::make_shared<ChaosWorld::Graph>(++world_->capture_count_);
  queue.graph->lanes.push_back({queue.shared_from_this(), {}});
  return {};
}

Result<std::shared_ptr<const ChaosWorld::Graph>> ChaosDevice::end_capture(StreamHandle stream) {
  const std::lock_guard lock(world_->mutex_);
  const ChaosWorld::Queue& queue = *ZERO_TRY(queue_of(stream));
  const std::shared_ptr<ChaosWorld::Graph> graph = queue.graph;
  if (graph == nullptr || graph->lanes[0].queue.get() != &queue)
    return Status(ZERO_ERR_SYSTEM, "no capture began on this stream");
  for (const ChaosWorld::Graph::Lane& lane : graph->lanes) lane.queue->graph = nullptr;
  if (graph->spoiled) return Status(ZERO_ERR_SYSTEM, "something in the capture failed");
  const std::string left_out = graph->left_out();
  if (!left_out.empty())
    return Status(ZERO_ERR_SYSTEM, text("the capture ends without ", left_out));
  return std::shared_ptr<const ChaosWorld::Graph>(graph);
}

Status ChaosDevice::launch_graph(const ChaosWorld::Graph& graph, StreamHandle stream) {
  const std::lock_guard lock(world_->mutex_);
  ChaosWorld::Queue& on = *ZERO_TRY(queue_of(stream));
  std::map<const ChaosWorld::Point*, std::shared_ptr<ChaosWorld::Point>> points;
  const auto fresh = [&](const std::shared_ptr<const ChaosWorld::Point>& captured) {
    std::shared_ptr<ChaosWorld::Point>& point = points[captured.get()];
    if (captured != nullptr && point == nullptr) point = std::make_shared<ChaosWorld::Point>();
    return point;
  };
  const auto start = std::make_shared<ChaosWorld::Point>();
  world_->queue(on, {"the start of a graph", {}, nullptr, start});
  for (const ChaosWorld::Graph::Lane& lane : graph.lanes) {
    const std::shared_ptr<ChaosWorld::Queue> queue = world_->add_queue(this, ordinal_);
    const auto end = std::make_shared<ChaosWorld::Point>();
    world_->queue(*queue, {"the start of a graph", {}, start, {}});
    for (const ChaosWorld::Step& step : lane.steps)
      world_->queue(*queue, {step.what, step.begin, fresh(step.after), fresh(step.records)});
    world_->queue(*queue, {"the end of a part of a graph", {}, nullptr, end});
    world_->queue(on, {"the end of a graph", {}, end, {}});
    world_->finish(queue);
  }
  return {};
}

void ChaosWorld::finish(const std::shared_ptr<Queue>& queue) {
  queue->freed = true;
  if (queue->items.empty()) std::erase(queues_, queue);
}

// ---- What cannot be captured.

Status ChaosDevice::refuse_captured(uint64_t graph, std::string_view what) const {
  for (const auto& queue : world_->queues_)
    if (queue->graph != nullptr && queue->graph->number == graph) queue->graph->spoiled = true;
  return {ZERO_ERR_SYSTEM, text("capture ", graph, " on chaos ", ordinal_, ": ", what)};
}

Status ChaosDevice::check_captured_copy(const ChaosWorld::Queue& queue, const void* to,
                                        const void* from) const {
  for (const void* const end : {to, from}) {
    const auto* const block = world_->block_of(end);
    if (block == nullptr || block->second.ordinal == ChaosWorld::kHost)
      return refuse_captured(queue.graph->number, "a copy from or to memory of the host");
  }
  return {};
}

/// A stream that waits for an event of a capture joins the capture.
Status ChaosDevice::check_captured_wait(ChaosWorld::Queue& queue, const EventState& state) const {
  const uint64_t graph = state.last == nullptr ? 0 : state.last->graph;
  if (queue.graph != nullptr) {
    if (graph == queue.graph->number) return {};
    return refuse_captured(queue.graph->number, "a wait for an event that is not of it");
  }
  for (const auto& other : world_->queues_) {
    if (other->graph == nullptr || other->graph->number != graph) continue;
    queue.graph = other->graph;
    return {};
  }
  return {ZERO_ERR_SYSTEM, text("a wait for an event of capture ", graph, ", which has ended")};
}

}  // namespace zero::test
