// Sync with slots that retire and come back, of every unit.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/row_hash.h"
#include "gtest/gtest.h"
#include "server/ps/consistency/sync.h"
#include "tests/common/temp_dir.h"
#include "tests/server/ps/consistency/unit_tester.h"
#include "tests/server/ps/rows/table_store_tester.h"
#include "tests/server/ps/store/store_tester.h"

namespace weir {
namespace {

// Two blocks of 64.
Declaration Job(int slots, int contributions, const std::string& more = "") {
  return ParseDeclaration(absl::StrCat(
      "variable { name: 'a' shape: 128 }"
      "group { optimizer { sgd {} } schedule { learning_rate: 0.125 } }"
      "update { sync { contributions: ",
      contributions, " } } slot_count: ", slots, " ", more));
}

SlotStatus SlotOf(const StoreTester& ps, int slot) {
  return ps.store->Hello().slot(slot);
}

// One contribution per slot: sequence number i of slot w is contribution w of
// step i.
void PushStep(StoreTester& ps, int slot, uint64_t step, int block, float value,
              uint32_t generation = 1) {
  GradientChunk chunk =
      ps.Chunk(slot, step, block, step, static_cast<uint32_t>(slot));
  chunk.mutable_sender()->set_generation(generation);
  const auto receipt = ps.PushConstant(chunk, value);
  ASSERT_TRUE(receipt.ok()) << receipt.status();
  ASSERT_EQ(receipt->outcome(), Receipt::ACCEPTED);
}

// Contributions of a unit, with the step that one slot's retirement changes.
class SyncRetiredUnitTest : public testing::TestWithParam<UnitKind> {
 protected:
  static UnitTester Unit(int slots, int contributions,
                         const std::string& more = "") {
    return UnitTester(
        GetParam(), absl::StrCat("sync { contributions: ", contributions, " }"),
        slots, more);
  }
  static void Retire(UnitTester& unit, int slot) {
    ASSERT_TRUE(unit.ps->SetSlot(slot, 1, true).ok());
  }
  // One contribution per slot, as PushStep.
  static void Bring(UnitTester& unit, int slot, uint64_t step, float value,
                    uint32_t generation = 1) {
    ASSERT_EQ(
        unit.Outcome(
            {slot, step, step, static_cast<uint32_t>(slot), generation}, value),
        Receipt::ACCEPTED);
  }
};
INSTANTIATE_TEST_SUITE_P(Units, SyncRetiredUnitTest, AllUnits());

// sum(w g) / sum(w) over those that came, in index order, one float operation
// at a time.
void NaiveStep(const std::vector<std::optional<std::vector<float>>>& gradients,
               std::vector<float>* values) {
  for (size_t i = 0; i < values->size(); ++i) {
    std::optional<float> sum;
    float count = 0;
    for (const auto& gradient : gradients) {
      if (gradient.has_value()) {
        sum = sum.has_value() ? *sum + (*gradient)[i] : (*gradient)[i];
        count += 1;
      }
    }
    const float mean = *sum / count;
    const float step = -0.125f * mean;
    (*values)[i] = (*values)[i] + step;
  }
}

// 3 slots bring 5 contributions a step: two, two and one.
constexpr int kSlots = 3;
constexpr int kContributions = 5;

// One thing that happens in a step. Events of one slot keep their order.
struct Event {
  int slot = 0;
  int contribution = 0;
  bool retire = false;
};

// The slots' events, interleaved at random.
std::vector<Event> Interleave(std::vector<std::vector<Event>> by_slot,
                              std::mt19937& random) {
  std::vector<Event> events;
  while (!by_slot.empty()) {
    const size_t w = random() % by_slot.size();
    if (by_slot[w].empty()) {
      by_slot.erase(by_slot.begin() + static_cast<std::ptrdiff_t>(w));
    } else {
      events.push_back(by_slot[w].front());
      by_slot[w].erase(by_slot[w].begin());
    }
  }
  return events;
}

// By index in step; without a value: nobody brings it.
using Gradients = std::vector<std::optional<std::vector<float>>>;

// Draws what each slot does: it brings its contributions and may retire,
// but one slot stays. Fills `gradients`; `retired` is by slot.
std::vector<std::vector<Event>> DrawStep(
    std::mt19937& random, std::normal_distribution<float>& normal,
    std::vector<bool>* retired, Gradients* gradients) {
  std::vector<std::vector<Event>> by_slot(kSlots);
  for (int w = 0; w < kSlots; ++w) {
    const int live =
        static_cast<int>(std::count(retired->begin(), retired->end(), false));
    const bool retires = !(*retired)[w] && live > 1 && random() % 4 == 0;
    // A slot retires when it has heard of all its contributions: those of this
    // step, or those of the step before.
    const bool brings = !(*retired)[w] && (!retires || random() % 2 == 0);
    for (int m = w; brings && m < kContributions; m += kSlots) {
      by_slot[w].push_back({w, m});
      (*gradients)[m].emplace(64);
      for (float& g : *(*gradients)[m]) {
        g = normal(random);
      }
    }
    if (retires) {
      by_slot[w].push_back({w, 0, true});
      (*retired)[w] = true;
    }
  }
  return by_slot;
}

// Does what `waiting` says, in its order. Returns the events that must be
// repeated: contributions that were deferred, and what follows in their slots.
std::vector<Event> SendAll(UnitTester& unit, uint64_t step,
                           const Gradients& gradients,
                           const std::vector<Event>& waiting) {
  std::vector<Event> again;
  std::vector<bool> held(kSlots, false);  // behind a deferred one
  for (const Event& event : waiting) {
    if (held[event.slot]) {
      again.push_back(event);
      continue;
    }
    if (event.retire) {
      EXPECT_TRUE(unit.ps->SetSlot(event.slot, 1, true).ok());
      continue;
    }
    const uint64_t per_step = event.slot < 2 ? 2 : 1;
    const auto receipt =
        unit.Push({event.slot, step * per_step + event.contribution / kSlots,
                   step, static_cast<uint32_t>(event.contribution)},
                  *gradients[event.contribution]);
    EXPECT_TRUE(receipt.ok()) << receipt.status();
    if (receipt.ok() && receipt->outcome() == Receipt::DEFERRED) {
      held[event.slot] = true;
      again.push_back(event);
    }
  }
  return again;
}

TEST_P(SyncRetiredUnitTest, HasTheSameBitsWheneverTheRetirementArrives) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  for (int round = 0; round < 200; ++round) {
    UnitTester unit = Unit(kSlots, kContributions, "out_of_order_bytes: 300");
    std::vector<float> expected(UnitTester::kValues, 0.0f);
    std::vector<bool> retired(kSlots, false);
    for (uint64_t step = 0; step < 5; ++step) {
      Gradients gradients(kContributions);
      const std::vector<std::vector<Event>> by_slot =
          DrawStep(random, normal, &retired, &gradients);
      if (std::none_of(gradients.begin(), gradients.end(),
                       [](const auto& g) { return g.has_value(); })) {
        break;  // the last two retired, one after the other
      }
      NaiveStep(gradients, &expected);
      std::vector<Event> waiting = Interleave(by_slot, random);
      for (int pass = 0; !waiting.empty(); ++pass) {
        ASSERT_LT(pass, 10);
        waiting = SendAll(unit, step, gradients, waiting);
        ASSERT_FALSE(testing::Test::HasFailure());
      }
      ASSERT_EQ(unit.version(), step + 1);
      ASSERT_EQ(unit.values(), expected);
      for (int w = 0; w < kSlots; ++w) {
        EXPECT_EQ(unit.mark(w), (step + 1) * (w < 2 ? 2u : 1u));
      }
    }
    EXPECT_EQ(unit.bytes_waiting(), 0u);
  }
}

TEST_P(SyncRetiredUnitTest, ALoneSlotNeedsNoRoomForWhatComesEarly) {
  UnitTester unit = Unit(3, 3, "out_of_order_bytes: 1");
  Retire(unit, 0);
  Retire(unit, 1);
  for (uint64_t step = 0; step < 3; ++step) {
    Bring(unit, 2, step, 1.0f);
    EXPECT_EQ(unit.values()[0], -0.125f * float(step + 1));
    EXPECT_EQ(unit.bytes_waiting(), 0u);
  }
  EXPECT_EQ(unit.mark(0), 3u);
}

TEST_P(SyncRetiredUnitTest, ADeferredContributionPassesNobody) {
  // The last one's bytes fill the budget.
  UnitTester unit = Unit(4, 4, "out_of_order_bytes: 256");
  Bring(unit, 3, 0, 9.0f);
  Retire(unit, 0);
  EXPECT_EQ(unit.mark(0), 1u);  // the step has begun with the last one
  EXPECT_EQ(unit.Outcome({2, 0, 0, 2}, 5.0f), Receipt::DEFERRED);
  EXPECT_EQ(unit.mark(2), 0u);
  Bring(unit, 1, 0, 1.0f);
  Bring(unit, 2, 0, 5.0f);
  EXPECT_EQ(unit.version(), 1u);
  EXPECT_EQ(unit.values()[0], -0.125f * 5);
}

TEST(SyncRetiredTest, WithoutASingleContributionNobodyIsPassed) {
  StoreTester ps(Job(3, 3, "out_of_order_bytes: 1"));
  ASSERT_TRUE(ps.SetSlot(0, 1, true).ok());
  EXPECT_EQ(ps.PushConstant(ps.Chunk(2, 0, 0, 0, 2), 5.0f)->outcome(),
            Receipt::DEFERRED);
  EXPECT_EQ(SlotOf(ps, 0).next_sequence_max(), 0u);
  PushStep(ps, 1, 0, 0, 1.0f);
  EXPECT_EQ(SlotOf(ps, 0).next_sequence_max(), 1u);
  PushStep(ps, 2, 0, 0, 5.0f);
  EXPECT_EQ(ps.Values(0)[0], -0.125f * 3);
}

TEST_P(SyncRetiredUnitTest, ARetiredSlotIsPassedButTheOthersAreAwaited) {
  UnitTester unit = Unit(3, 3);
  Retire(unit, 1);
  Bring(unit, 2, 0, 4.0f);
  EXPECT_EQ(unit.version(), 0u);
  EXPECT_EQ(unit.mark(1), 0u);  // slot 0 comes first
  Bring(unit, 0, 0, 2.0f);
  EXPECT_EQ(unit.version(), 1u);
  EXPECT_EQ(unit.mark(1), 1u);
  EXPECT_EQ(unit.values()[0], -0.125f * 3);
}

TEST_P(SyncRetiredUnitTest, WhatCameBeforeTheSlotRetiredCounts) {
  UnitTester unit = Unit(3, 3);
  Bring(unit, 1, 0, 4.0f);  // early
  Retire(unit, 1);
  Retire(unit, 2);
  EXPECT_EQ(unit.version(), 0u);
  Bring(unit, 0, 0, 2.0f);
  EXPECT_EQ(unit.version(), 1u);
  EXPECT_EQ(unit.values()[0], -0.125f * 3);
}

TEST_P(SyncRetiredUnitTest, PublishesNothingWhenAllHaveRetired) {
  UnitTester unit = Unit(2, 2);
  Bring(unit, 0, 0, 1.0f);
  Bring(unit, 1, 0, 1.0f);
  Retire(unit, 0);
  Retire(unit, 1);
  EXPECT_EQ(unit.version(), 1u);
  EXPECT_FALSE(unit.Pull(VersionWant(2))->done);
  EXPECT_EQ(unit.mark(0), 1u);
  EXPECT_EQ(unit.mark(1), 1u);
  // Slot 1 comes back alone.
  ASSERT_TRUE(unit.ps->SetSlot(1, 2, false).ok());
  EXPECT_EQ(unit.mark(1), 1u);
  Bring(unit, 1, 1, 3.0f, 2);
  EXPECT_EQ(unit.values()[0], -0.125f * 4);
}

TEST_P(SyncRetiredUnitTest, RetirementAnswersWhoWaits) {
  UnitTester unit = Unit(2, 2);
  Bring(unit, 0, 0, 1.0f);
  const auto pull = unit.Pull(VersionWant(1));
  EXPECT_FALSE(pull->done);
  Retire(unit, 1);
  ASSERT_TRUE(pull->done);
  EXPECT_EQ(pull->version, 1u);
  EXPECT_EQ(pull->values[0], -0.125f);
}

TEST_P(SyncRetiredUnitTest, AReturnedSlotSkipsAStepThatHasPassedIt) {
  UnitTester unit = Unit(2, 2);
  Retire(unit, 0);
  Bring(unit, 1, 0, 1.0f);
  ASSERT_TRUE(unit.ps->SetSlot(0, 2, false).ok());
  EXPECT_EQ(unit.mark(0), 1u);
  Bring(unit, 1, 1, 1.0f);
  EXPECT_EQ(unit.version(), 1u);  // it is waited for again
  Bring(unit, 0, 1, 3.0f, 2);
  EXPECT_EQ(unit.values()[0], -0.125f * 3);
}

TEST(SyncRetiredTest, RetirementPublishesAnswersAndFreezes) {
  StoreTester ps(Job(2, 2));
  std::vector<std::shared_ptr<StoreTester::PullResult>> pulls;
  for (const int block : {0, 1}) {
    PushStep(ps, 0, 0, block, 1.0f);
    pulls.push_back(ps.Pull(0, block, VersionWant(1)));
  }
  const std::string dir = MakeCheckpointDir();
  std::vector<SnapshotReply> replies;
  SnapshotRequest request;
  *request.mutable_sender() = ps.SenderOf(0, 0);
  request.set_checkpoint(NameOf(dir));
  request.set_version(1);
  ps.store->Snapshot(
      request,
      [&](absl::StatusOr<SnapshotReply> reply) {
        ASSERT_TRUE(reply.ok()) << reply.status();
        replies.push_back(*reply);
      },
      [](const std::function<void()>& write) { write(); });
  EXPECT_FALSE(pulls[0]->done);
  EXPECT_TRUE(replies.empty());
  ASSERT_TRUE(ps.SetSlot(1, 1, true).ok());
  for (const auto& pull : pulls) {
    ASSERT_TRUE(pull->done);
    ASSERT_TRUE(pull->answer.ok());
    EXPECT_EQ(pull->answer->version, 1u);
    EXPECT_EQ(pull->answer->values.data()[0], -0.125f);
  }
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].slot(1).next_sequence_min(), 1u);
  EXPECT_EQ(replies[0].slot(1).next_sequence_max(), 1u);

  // Restored, nobody is retired until SetSlots says so.
  ASSERT_TRUE(CommitManifest(dir, ps.declaration, {replies[1].file()}).ok());
  Declaration again = ps.declaration;
  again.set_history(2);
  again.set_base_version(1);
  ASSERT_TRUE(ps.Restore(again, dir).ok());
  EXPECT_FALSE(SlotOf(ps, 1).retired());
  EXPECT_EQ(SlotOf(ps, 1).next_sequence_max(), 0u);
  ASSERT_TRUE(ps.SetSlot(0, 1, false).ok());
  ASSERT_TRUE(ps.SetSlot(1, 1, false).ok());
  const auto push = [&](int w, uint64_t sequence) {
    ASSERT_TRUE(
        ps.PushConstant(ps.Chunk(w, sequence, 0, 1 + sequence, w), 1.0f).ok());
  };
  push(0, 0);
  EXPECT_EQ(ps.Latest(0).version, 1u);
  push(1, 0);
  EXPECT_EQ(ps.Values(0)[0], -0.25f);
  ASSERT_TRUE(ps.SetSlot(0, 1, true).ok());
  push(1, 1);
  EXPECT_EQ(ps.Values(0)[0], -0.375f);
  EXPECT_EQ(SlotOf(ps, 0).next_sequence_max(), 2u);
}

TEST(SyncRetiredTest, ASnapshotInTheMiddleOfAStepHoldsTheVersionsMarks) {
  StoreTester ps(Job(3, 3));
  ASSERT_TRUE(ps.SetSlot(0, 1, true).ok());
  for (const int block : {0, 1}) {
    PushStep(ps, 1, 0, block, 1.0f);
    PushStep(ps, 2, 0, block, 1.0f);
  }
  PushStep(ps, 1, 1, 0, 1.0f);
  EXPECT_EQ(SlotOf(ps, 0).next_sequence_max(), 2u);
  const auto result = ps.Snapshot(MakeCheckpointDir(), 1);
  ASSERT_EQ(result.replies.size(), 2u);
  EXPECT_EQ(result.replies[0].slot(0).next_sequence_min(), 1u);
  EXPECT_EQ(result.replies[0].slot(0).next_sequence_max(), 1u);
}

TEST(SyncRetiredTest, ASnapshotOfAVersionThatNobodyBringsIsRefused) {
  StoreTester ps(Job(2, 2));
  for (const int w : {0, 1}) {
    for (const int block : {0, 1}) {
      PushStep(ps, w, 0, block, 1.0f);
    }
  }
  std::vector<absl::Status> ends;
  const auto ask = [&] {
    SnapshotRequest request;
    *request.mutable_sender() = ps.SenderOf(0, 0);
    request.set_checkpoint(NameOf(MakeCheckpointDir()));
    request.set_version(2);
    ps.store->Snapshot(
        request,
        [&](const absl::StatusOr<SnapshotReply>& reply) {
          ends.push_back(reply.status());
        },
        [](const std::function<void()>& write) { write(); });
  };
  ask();
  ASSERT_TRUE(ps.SetSlot(0, 1, true).ok());
  EXPECT_TRUE(ends.empty());  // slot 1 may still bring it
  ASSERT_TRUE(ps.SetSlot(1, 1, true).ok());
  ASSERT_EQ(ends.size(), 1u);
  EXPECT_EQ(ends[0].code(), absl::StatusCode::kOutOfRange) << ends[0];
  ask();
  ASSERT_EQ(ends.size(), 2u);
  EXPECT_EQ(ends[1].code(), absl::StatusCode::kOutOfRange) << ends[1];
  EXPECT_TRUE(ps.Snapshot(MakeCheckpointDir(), 1).error.ok());
}

TEST(SyncRetiredTest, OnlyANewGenerationBringsASlotBack) {
  StoreTester ps(Job(2, 2));
  ASSERT_TRUE(ps.SetSlot(1, 1, true).ok());
  ASSERT_TRUE(ps.SetSlot(1, 1, false).ok());
  EXPECT_TRUE(SlotOf(ps, 1).retired());
  ASSERT_TRUE(ps.SetSlot(1, 2, false).ok());
  EXPECT_FALSE(SlotOf(ps, 1).retired());
}

TEST(SyncRetiredTest, TheFirstContributionThatCameBringsTheHyperParameters) {
  for (const bool late : {false, true}) {
    StoreTester ps(Job(3, 3));
    if (!late) {
      ASSERT_TRUE(ps.SetSlot(0, 1, true).ok());
    }
    for (int m = 2; m >= 1; --m) {
      GradientChunk chunk = ps.Chunk(m, 0, 0, 0, m);
      Hyper* const hyper = chunk.mutable_push()->add_hyper();
      hyper->set_learning_rate(m == 1 ? 2.0 : 64.0);
      if (m == 1) {
        chunk.mutable_push()->set_weight(0);  // has no data, leads the step
      }
      ASSERT_TRUE(ps.PushConstant(chunk, 1.0f).ok());
    }
    if (late) {
      ASSERT_TRUE(ps.SetSlot(0, 1, true).ok());
    }
    EXPECT_EQ(ps.Values(0)[0], -2.0f);
  }
}

TEST(SyncRetiredTest, AReturnedSlotFinishesTheStepThatWaitsForIt) {
  StoreTester ps(Job(3, 3));
  ASSERT_TRUE(ps.SetSlot(0, 1, true).ok());
  PushStep(ps, 1, 0, 0, 1.0f);
  PushStep(ps, 2, 0, 0, 1.0f);
  EXPECT_EQ(ps.Latest(0).version, 1u);
  ASSERT_TRUE(ps.SetSlot(0, 2, false).ok());
  // Block 0 is at 1 without the slot; block 1 is at 0 and expects it.
  EXPECT_EQ(SlotOf(ps, 0).next_sequence_min(), 0u);
  EXPECT_EQ(SlotOf(ps, 0).next_sequence_max(), 1u);
  PushStep(ps, 1, 0, 1, 1.0f);
  PushStep(ps, 2, 0, 1, 1.0f);
  EXPECT_EQ(ps.Latest(1).version, 0u);
  for (const int block : {0, 1}) {
    const auto pull = ps.Pull(0, block, VersionWant(0));
    ASSERT_TRUE(pull->done && pull->answer.ok());
    EXPECT_EQ(pull->answer->version, 0u);
  }
  GradientChunk chunk = ps.Chunk(0, 0, 0, 0, 0);
  chunk.mutable_sender()->set_generation(2);
  EXPECT_EQ(ps.PushConstant(chunk, 4.0f)->outcome(), Receipt::DUPLICATE);
  PushStep(ps, 0, 0, 1, 4.0f, 2);
  EXPECT_EQ(ps.Values(0)[0], -0.125f);
  EXPECT_EQ(ps.Values(1)[0], -0.25f);
}

// Two shards and a worker for each slot; who moves next is drawn. SetSlots
// reaches the shards at different times. With tables every contribution has
// rows for each shard, too, and they share the budget with the blocks.
class Simulation {
 public:
  Simulation(int slots, int contributions, bool tables, uint32_t seed)
      : random_(seed), tables_(tables) {
    Declaration job =
        Job(slots, contributions,
            absl::StrCat("out_of_order_bytes: 300 ", tables ? kTable : ""));
    job.set_shard_count(2);
    job.set_block_elements(32);
    for (uint32_t s = 0; s < 2; ++s) {
      shards_.push_back(std::make_unique<StoreTester>(job, s));
    }
    contributions_ = contributions;
    workers_.resize(slots);
  }

  void Move() {
    const int w = static_cast<int>(random_() % workers_.size());
    Worker& worker = workers_[w];
    if (worker.untold > 0) {
      Tell(w);
    } else if (worker.retired) {
      if (random_() % 16 == 0) {
        worker.retired = false;
        ++worker.generation;
        worker.untold = 2;
      }
    } else if (worker.pulls.empty()) {
      Pull(w);
    } else if (!worker.here) {
      See(w);
    } else {
      PushOne(w);
    }
  }

  uint64_t version_min() {
    return std::min(shards_[0]->store->GetStatus().version_min(),
                    shards_[1]->store->GetStatus().version_min());
  }

 private:
  static constexpr char kTable[] =
      "table { name: 't' dim: 8 schedule { learning_rate: 1 } }";
  // Where rows stand among the blocks of a shard.
  static constexpr int kRows = 7;

  struct Worker {
    uint32_t generation = 1;
    bool retired = false;
    int untold = 0;  // shards that do not know yet
    uint64_t sequence = 0;
    std::vector<std::shared_ptr<StoreTester::PullResult>> pulls;
    std::vector<std::shared_ptr<LookupResult>> lookups;
    bool here = false;
    std::vector<int> unpushed;  // shard * 8 + block, or + kRows
  };

  uint64_t PerStep(int w) const {
    const int slots = static_cast<int>(workers_.size());
    return static_cast<uint64_t>((contributions_ - w + slots - 1) / slots);
  }

  void Tell(int w) {
    Worker& worker = workers_[w];
    StoreTester& ps = *shards_[--worker.untold];
    ASSERT_TRUE(ps.SetSlot(w, worker.generation, worker.retired).ok());
    if (worker.untold == 0 && !worker.retired) {
      worker.sequence = std::min(SlotOf(*shards_[0], w).next_sequence_min(),
                                 SlotOf(*shards_[1], w).next_sequence_min());
    }
  }

  void Pull(int w) {
    Worker& worker = workers_[w];
    for (int s = 0; s < 2; ++s) {
      for (int b = 0; b < shards_[s]->block_count(); ++b) {
        worker.pulls.push_back(
            shards_[s]->Pull(w, b, VersionWant(worker.sequence / PerStep(w))));
        worker.unpushed.push_back(s * 8 + b);
      }
      if (tables_) {
        worker.lookups.push_back(LookUp(*shards_[s], RowsWanted(s, w)));
        worker.unpushed.push_back(s * 8 + kRows);
      }
    }
    std::shuffle(worker.unpushed.begin(), worker.unpushed.end(), random_);
  }

  // Four ids of shard s.
  static IdList IdsOf(int s) {
    std::vector<uint64_t> ids;
    for (uint64_t id = 0; ids.size() < 4; ++id) {
      if (ShardOfId(id, 2) == s) {
        ids.push_back(id);
      }
    }
    return ListOf(0, ids);
  }

  PullRowsChunk RowsWanted(int s, int w) const {
    PullRowsChunk request =
        Request(*shards_[s], w, IdsOf(s),
                VersionWant(workers_[w].sequence / PerStep(w)));
    request.mutable_sender()->set_generation(0);
    request.set_train(false);
    return request;
  }

  void See(int w) {
    workers_[w].here = true;
    for (const auto& lookup : workers_[w].lookups) {
      ASSERT_TRUE(!lookup->done || lookup->answer.ok())
          << lookup->answer.status();
      workers_[w].here &= lookup->done;
    }
    for (const auto& pull : workers_[w].pulls) {
      ASSERT_TRUE(!pull->done || pull->answer.ok()) << pull->answer.status();
      workers_[w].here &= pull->done;
    }
  }

  uint32_t IndexOf(int w) const {
    const Worker& worker = workers_[w];
    return static_cast<uint32_t>(w + (worker.sequence % PerStep(w)) *
                                         workers_.size());
  }

  absl::StatusOr<Receipt> PushBlock(int w, int s, int block) {
    const Worker& worker = workers_[w];
    GradientChunk chunk = shards_[s]->Chunk(
        w, worker.sequence, block, worker.sequence / PerStep(w), IndexOf(w));
    chunk.mutable_sender()->set_generation(worker.generation);
    return shards_[s]->PushConstant(chunk, 1.0f);
  }

  absl::StatusOr<Receipt> PushRows(int w, int s) {
    const Worker& worker = workers_[w];
    PushRowsChunk chunk = Piece(*shards_[s], w, worker.sequence,
                                worker.sequence / PerStep(w), IndexOf(w));
    chunk.mutable_sender()->set_generation(worker.generation);
    *chunk.add_list() = IdsOf(s);
    const auto result =
        Apply(*shards_[s], chunk, std::vector<float>(4 * 8, 1.0f));
    if (!result->reply.ok()) {
      return result->reply.status();
    }
    return result->reply->receipt();
  }

  void PushOne(int w) {
    Worker& worker = workers_[w];
    const int at = worker.unpushed.back();
    const absl::StatusOr<Receipt> receipt =
        at % 8 == kRows ? PushRows(w, at / 8) : PushBlock(w, at / 8, at % 8);
    ASSERT_TRUE(receipt.ok()) << receipt.status();
    if (receipt->outcome() == Receipt::DEFERRED) {
      std::shuffle(worker.unpushed.begin(), worker.unpushed.end(), random_);
      return;
    }
    worker.unpushed.pop_back();
    if (worker.unpushed.empty()) {
      ++worker.sequence;
      worker.pulls.clear();
      worker.lookups.clear();
      worker.here = false;
      if (random_() % 6 == 0) {
        worker.retired = true;
        worker.untold = 2;
      }
    }
  }

  std::mt19937 random_;
  const bool tables_;
  int contributions_ = 0;
  std::vector<std::unique_ptr<StoreTester>> shards_;
  std::vector<Worker> workers_;
};

TEST(SyncRetiredTest, SlotsThatComeAndGoNeverStopTheJob) {
  for (const auto& [slots, contributions] :
       {std::pair(1, 1), {2, 2}, {3, 3}, {3, 5}, {4, 4}}) {
    for (uint32_t seed = 0; seed < 40; ++seed) {
      const bool tables = seed % 2 == 1;
      Simulation job(slots, contributions, tables, seed);
      int moves = 0;
      while (job.version_min() < 25) {
        ASSERT_LT(++moves, 20000)
            << slots << " " << contributions << " seed " << seed
            << " stopped at " << job.version_min();
        job.Move();
        ASSERT_FALSE(testing::Test::HasFatalFailure()) << seed;
      }
    }
  }
}

}  // namespace
}  // namespace weir
