#include "server/chief/shard_caller.h"

#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/server/chief/scripted_link.h"

namespace weir {
namespace {

using std::chrono::milliseconds;
using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

// A caller on a scripted link; its reports are counted and not run.
class ShardCallerTest : public testing::Test {
 protected:
  // `lost_after` is how long a transient error is repeated.
  void Begin(milliseconds lost_after) {
    ShardCaller::Options options;
    options.link = link_;
    options.lost_after = lost_after;
    options.report = [reports = reports_](std::function<void(JobState*)>) {
      MutexLock lock(&reports->mutex);
      ++reports->count;
      reports->changed.NotifyAll();
    };
    caller_ = std::make_unique<ShardCaller>(std::move(options));
  }

  template <typename Request>
  void Call(Request request) {
    caller_->Call(ShardCall{0, std::move(request)});
  }

  void WaitForReports(int count) {
    MutexLock lock(&reports_->mutex);
    while (reports_->count < count) {
      reports_->changed.Wait(&reports_->mutex);
    }
    EXPECT_EQ(reports_->count, count);
  }

  // A call may outlive the test, so it shares what it uses.
  struct Reports {
    Mutex mutex;
    CondVar changed;
    int count ABSL_GUARDED_BY(mutex) = 0;
  };
  const std::shared_ptr<ScriptedLink> link_ = std::make_shared<ScriptedLink>();
  const std::shared_ptr<Reports> reports_ = std::make_shared<Reports>();
  std::unique_ptr<ShardCaller> caller_;
};

TEST_F(ShardCallerTest, CallsAreMadeInOrderAndEachIsReportedOnce) {
  Begin(milliseconds(10000));
  Call(StatusCall{});
  Call(DeclareRequest());
  Call(RestoreRequest());
  Call(SetSlotsRequest());
  Call(HelloCall{});
  WaitForReports(5);
  EXPECT_THAT(link_->calls(), ElementsAre("GetStatus", "Declare", "Restore",
                                          "SetSlots", "Hello"));
}

TEST_F(ShardCallerTest, TransientErrorsAreRepeated) {
  link_->EndWith({absl::UnavailableError("refused"),
                  absl::DeadlineExceededError("silence")});
  Begin(milliseconds(60000));
  Call(SetSlotsRequest());
  WaitForReports(1);
  EXPECT_THAT(link_->calls(), ElementsAre("SetSlots", "SetSlots", "SetSlots"));
}

TEST_F(ShardCallerTest, OtherErrorsAreNotRepeated) {
  link_->EndWith({absl::PermissionDeniedError("another history")});
  Begin(milliseconds(60000));
  Call(DeclareRequest());
  WaitForReports(1);
  EXPECT_THAT(link_->calls(), ElementsAre("Declare"));
}

TEST_F(ShardCallerTest, ATransientErrorIsReportedAfterLostAfter) {
  link_->EndWith(std::deque<absl::Status>(50, absl::UnavailableError("gone")));
  Begin(milliseconds(1));
  Call(RestoreRequest());
  WaitForReports(1);
  EXPECT_THAT(link_->calls(), Each("Restore"));
  EXPECT_LT(link_->calls().size(), 50u);
}

TEST_F(ShardCallerTest, HelloAndShutdownAreTriedOnce) {
  link_->EndWith(std::deque<absl::Status>(9, absl::UnavailableError("gone")));
  Begin(milliseconds(60000));
  Call(HelloCall{});
  Call(ShutdownRequest());
  WaitForReports(2);
  EXPECT_THAT(link_->calls(), ElementsAre("Hello", "Shutdown"));
}

TEST_F(ShardCallerTest, ASnapshotKeepsNoOtherCallWaiting) {
  link_->HoldSnapshots();
  Begin(milliseconds(10000));
  Call(SnapshotRequest());
  Call(HelloCall{});
  WaitForReports(1);  // the Hello's
  link_->Release();
  WaitForReports(3);  // frozen, and its end
  EXPECT_THAT(link_->calls(), SizeIs(2));
}

TEST_F(ShardCallerTest, AssignWithoutInitialValuesIsReported) {
  Begin(milliseconds(10000));
  Call(AssignCall{});
  WaitForReports(1);
  EXPECT_THAT(link_->calls(), SizeIs(0));
}

}  // namespace
}  // namespace weir
