#include "server/chief/start/finished_job.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "common/base/logging.h"

namespace weir {
namespace {

using std::chrono::milliseconds;

constexpr ControlLink::Timeout kCallTimeout{1000};
constexpr milliseconds kAskAgainAfter{100};

std::vector<std::unique_ptr<ControlLink>> Connect(
    const FinishedJob::Options& options) {
  std::vector<std::unique_ptr<ControlLink>> links;
  for (const std::string& address : options.ps_addresses) {
    links.push_back(options.transport->Connect(address));
  }
  return links;
}

}  // namespace

FinishedJob::FinishedJob(Options options)
    : options_(std::move(options)),
      links_(Connect(options_)),
      workers_told_(options_.worker_count, false),
      thread_([this] { Run(); }) {}

FinishedJob::~FinishedJob() {
  Leave();
  thread_.join();
}

void FinishedJob::Leave() {
  MutexLock lock(&mutex_);
  leave_ = true;
  changed_.NotifyAll();
}

RegisterReply FinishedJob::Register(const RegisterRequest& request) {
  RegisterReply reply;
  reply.mutable_over()->set_code(0);
  reply.mutable_over()->set_reason("the job is done already");
  MutexLock lock(&mutex_);
  if (request.rank() < workers_told_.size()) {
    workers_told_[request.rank()] = true;
    changed_.NotifyAll();
  }
  return reply;
}

bool FinishedJob::AllTold() const {
  return std::find(workers_told_.begin(), workers_told_.end(), false) ==
         workers_told_.end();
}

bool FinishedJob::ShutDown(size_t s) const {
  const auto hello = links_[s]->Hello(kCallTimeout);
  if (!hello.ok()) {
    return false;  // it may be starting: Run() asks again
  }
  ShutdownRequest request;
  if (hello->state() != EMPTY) {
    // The ps were given to another job meanwhile. That is not ours to end.
    if (hello->job() != options_.job) {
      return true;
    }
    request.mutable_sender()->set_job(hello->job());
    request.mutable_sender()->set_history(hello->history());
    request.mutable_sender()->set_layout_fingerprint(
        hello->layout_fingerprint());
  }
  // An EMPTY ps takes Shutdown without a sender.
  request.set_chief_secret(options_.chief_secret);
  const absl::Status status = links_[s]->Shutdown(request, kCallTimeout);
  if (absl::IsPermissionDenied(status)) {
    LOG_WARN("{} goes on: {}", options_.ps_addresses[s],
             std::string(status.message()));
    return true;
  }
  return status.ok();
}

void FinishedJob::Run() {
  const auto deadline = std::chrono::steady_clock::now() + options_.wait;
  std::vector<bool> ps_told(links_.size(), false);
  for (bool over = false; !over;) {
    // The calls block, so they are made without the lock: Register must answer
    // at once.
    for (size_t s = 0; s < links_.size(); ++s) {
      ps_told[s] = ps_told[s] || ShutDown(s);
    }
    const bool all_ps =
        std::find(ps_told.begin(), ps_told.end(), false) == ps_told.end();
    MutexLock lock(&mutex_);
    if (!leave_ && !(all_ps && AllTold())) {
      changed_.WaitFor(&mutex_, kAskAgainAfter);
    }
    over = leave_ || (all_ps && AllTold()) ||
           std::chrono::steady_clock::now() >= deadline;
  }
  options_.on_end();  // without the lock, as it may call back
}

}  // namespace weir
