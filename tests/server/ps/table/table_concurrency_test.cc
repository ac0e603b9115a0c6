// A table under many threads. Run with TSan too: it must be silent.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "common/math/random.h"
#include "server/ps/table/table.h"
#include "tests/server/ps/table/table_tester.h"

namespace weir {
namespace {

constexpr int kThreads = 4;

void RunThreads(int count, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) {
    threads.emplace_back(body, t);
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST(TableConcurrencyTest, LosesNoUpdateWhileTheTableGrowsAndIsRead) {
  TableOptions options = SmallOptions("sgd {}", 3);
  options.init = {InitKind::kConstant, 0.0f};
  const auto table = MakeTable(options);
  constexpr uint64_t kIds = 5000;
  constexpr int kSteps = 40;
  std::atomic<bool> done = false;
  std::thread watcher([&] {
    while (!done) {
      // A row is always whole: equal columns.
      ExportCursor cursor;
      for (RowRecords some; table->Export(&cursor, &some);) {
        for (size_t i = 0; i < some.ids.size(); ++i) {
          EXPECT_EQ(some.floats[i * 3], some.floats[i * 3 + 2]);
        }
      }
      table->Report(5);
    }
  });
  RunThreads(kThreads, [&](int t) {
    RandomStream random(static_cast<uint64_t>(t));
    for (int step = 0; step < kSteps; ++step) {
      // All ids, each once, from another place on.
      const uint64_t begin = random.NextBelow(kIds);
      std::vector<uint64_t> ids;
      for (uint64_t i = 0; i < kIds; ++i) {
        ids.push_back((begin + i) % kIds);
      }
      const std::vector<float> values = Read(table.get(), ids);
      for (size_t i = 0; i < ids.size(); ++i) {
        ASSERT_EQ(values[i * 3], values[i * 3 + 2]);
      }
      PushAll(table.get(), ids, -1, 1);
      // Others' rows come and split segments.
      const uint64_t own = 1'000'000u * static_cast<uint64_t>(t + 1) +
                           static_cast<uint64_t>(step) * 300;
      PushAll(table.get(), Range(own, own + 300), -1, 1);
    }
  });
  done = true;
  watcher.join();
  EXPECT_EQ(table->step(), uint64_t{kThreads} * kSteps * 2);
  for (const float value : Read(table.get(), Range(0, kIds))) {
    ASSERT_EQ(value, static_cast<float>(kThreads * kSteps));
  }
  EXPECT_EQ(table->Report(0).rows,
            static_cast<int64_t>(kIds) + int64_t{kThreads} * kSteps * 300);
}

TEST(TableConcurrencyTest, KeepsTheBudgetWhileRowsComeAndGo) {
  TableOptions options = SmallOptions("adagrad {}", 4);
  options.memory_bytes_max = 1 << 20;
  options.age_max = 20;
  options.admission = {AdmissionPolicy::Kind::kCount, 2, 1, 1 << 14};
  const auto table = MakeTable(options);
  std::atomic<bool> done = false;
  std::thread keeper([&] {
    while (!done) {
      table->Shrink({.rows_max = 5000});
      EXPECT_LE(table->Report(0).bytes, 1 << 20);
    }
  });
  RunThreads(kThreads, [&](int t) {
    RandomStream random(static_cast<uint64_t>(t));
    for (uint32_t step = 0; step < 200; ++step) {
      table->SetClock(step);
      std::vector<uint64_t> ids;
      for (int i = 0; i < 300; ++i) {
        ids.push_back(random.NextBelow(40000));
      }
      Read(table.get(), ids);
      PushAll(table.get(), ids, 1);
    }
  });
  done = true;
  keeper.join();
  const TableFigures report = table->Report(0);
  EXPECT_EQ(report.rows, report.counts.created - report.counts.evicted -
                             report.counts.expired - report.counts.shrunk);
}

TEST(TableConcurrencyTest, ShrinkCountsWhatItDropsWhileRowsCome) {
  const auto table = MakeTable(SmallOptions("adagrad {}", 4));
  std::atomic<bool> done = false;
  std::thread trainer([&] {
    for (uint64_t next = 0; !done; next += 300) {
      Read(table.get(), Range(next, next + 300));
    }
  });
  // Some calls at least see the table grow.
  for (int64_t rows = 0; rows < 100'000; rows = table->Report(0).rows) {
    const ShrinkReceipt receipt = table->Shrink({});
    EXPECT_EQ(receipt.rows, 0);
    EXPECT_GE(receipt.bytes, 0);
  }
  done = true;
  trainer.join();
}

}  // namespace
}  // namespace weir
