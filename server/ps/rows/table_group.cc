#include "server/ps/rows/table_group.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/plant.h"
#include "common/base/status.h"
#include "server/ps/plan/table_plan.h"
#include "server/ps/rows/row_checks.h"

namespace weir {
namespace {

void FillTableStatus(const TableFigures& report, TableStatus* status) {
  status->set_rows(static_cast<uint64_t>(report.rows));
  status->set_bytes(static_cast<uint64_t>(report.bytes));
  status->set_payload_bytes(static_cast<uint64_t>(report.payload_bytes));
  status->set_rows_created(static_cast<uint64_t>(report.counts.created));
  status->set_rows_dropped(static_cast<uint64_t>(
      report.counts.evicted + report.counts.expired + report.counts.shrunk));
}

void Run(const DueList& due) {
  for (const std::function<void()>& run : due) {
    run();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TableGroup>> TableGroup::Create(
    ShardContext* context, const ConsistencyMode* mode, Arena* arena,
    Clock* clock) {
  const ShardPlan& plan = *context->plan;
  std::unique_ptr<TableGroup> made(new TableGroup(context, mode, arena, clock));
  for (int t = 0; t < plan.declaration().table_size(); ++t) {
    WEIR_ASSIGN_OR_RETURN(TableOptions options,
                          OptionsOfTable(plan.declaration(), t, plan.shard()));
    made->sums_.emplace_back(options.dim);
    WEIR_ASSIGN_OR_RETURN(std::unique_ptr<Table> table,
                          Table::Create(std::move(options)));
    made->tables_.push_back(std::move(table));
    made->previous_.emplace_back(made->tables_.back()->row_floats());
  }
  MutexLock lock(&made->mutex_);
  made->TickClocks();
  return made;
}

TableGroup::TableGroup(ShardContext* context, const ConsistencyMode* mode,
                       Arena* arena, Clock* clock)
    : context_(*context),
      mode_(*mode),
      arena_(arena),
      clock_(clock),
      kind_(context->plan->kind()),
      answers_(std::make_shared<AnswerBudget>()),
      open_(static_cast<size_t>(context->plan->slot_count()), &context->budget,
            std::max(context->plan->declaration().out_of_order_bytes(),
                     kRowPushBytesMin)),
      hot_(clock, [this] { return FindHotRows(); }),
      rows_looked_up_(
          static_cast<size_t>(context->plan->declaration().table_size())),
      rows_updated_(rows_looked_up_.size()),
      unit_("tables", context->plan->declaration().base_version(),
            static_cast<size_t>(context->plan->slot_count())),
      parked_(kParkingShares, "rows", &context->counters.waits_parked),
      oldest_(unit_.version) {}

TableGroup::~TableGroup() = default;

void TableGroup::TickClocks() {
  for (int t = 0; t < count(); ++t) {
    if (spec(t).expiry().age_case() != Expiry::kSeconds) {
      table(t).SetClock(unit_.version);
      continue;
    }
    // Not the wall clock, which may be set back. The plant lets a test show
    // what that would do.
    int64_t now_ns = clock_->NowNs();
    if (Planted("clock.wall_rows")) {
      now_ns = clock_->WallNowNs();
    }
    table(t).SetClock(static_cast<uint64_t>(now_ns) / 1000000000);
  }
}

// ---------------------------------------------------------------- lookups

absl::StatusOr<std::vector<Ids>> TableGroup::Resolve(
    const PullRowsChunk& request, bool* unknown) {
  WEIR_RETURN_IF_ERROR(CheckPullRows(context_.plan->declaration(), request));
  std::vector<Ids> all;
  for (const IdList& list : request.list()) {
    absl::StatusOr<Ids> ids = lists_.Resolve(request.sender(), list);
    const int t = static_cast<int>(list.table());
    WEIR_RETURN_IF_ERROR(
        Annotate(ids.status(), absl::StrCat("table \"", spec(t).name(), "\"")));
    // The sender named a list that is gone here; it will send the ids again.
    if (*ids == nullptr) {
      *unknown = true;
      return all;
    }
    WEIR_RETURN_IF_ERROR(table(t).CheckShard(**ids));
    all.push_back(*std::move(ids));
  }
  return all;
}

void TableGroup::PullRows(const PullRowsChunk& request, PullRowsDone done) {
  bool unknown = false;
  absl::StatusOr<std::vector<Ids>> ids = Resolve(request, &unknown);
  if (!ids.ok()) {
    done(ids.status());
    return;
  }
  if (unknown) {
    PulledRows answer;
    answer.header.set_request(request.request());
    answer.header.set_unknown_list(true);
    done(std::move(answer));
    return;
  }
  RowLookup lookup = MakeLookup(context_.plan->declaration(), request,
                                *std::move(ids), std::move(done));
  absl::StatusOr<std::optional<RowReading>> reading = std::nullopt;
  uint64_t version = 0;
  {
    MutexLock lock(&mutex_);
    reading = BeginRead(lookup);
    version = unit_.version;
    if (reading.ok() && !reading->has_value()) {
      const int64_t bytes = lookup.bytes();
      absl::Status status =
          parked_.Park(request.sender(), request.want(), clock_->NowNs(),
                       std::move(lookup), bytes);
      if (status.ok()) {
        return;
      }
      reading = std::move(status);
    }
  }
  if (!reading.ok()) {
    // Park leaves it as it was when it fails.
    lookup.done(reading.status());  // NOLINT(bugprone-use-after-move)
    return;
  }
  Gather(lookup, **std::move(reading), version);
}

absl::StatusOr<std::optional<RowReading>> TableGroup::BeginRead(
    const RowLookup& lookup) {
  if (!uses_.MayBegin()) {
    return std::nullopt;
  }
  const Want& want = lookup.request.want();
  // I3: `oldest_` is the version whose rows the last step set aside.
  WEIR_ASSIGN_OR_RETURN(const std::optional<Readable> from,
                        mode_.CanRead(unit_, oldest_, want));
  if (!from.has_value()) {
    return std::nullopt;
  }
  RowReading reading = {*from, nullptr};
  if (lookup.floats > 0) {
    reading.room =
        answers_->Take(lookup.request.sender(), lookup.answer_bytes());
    if (reading.room == nullptr) {
      return std::nullopt;  // I6
    }
  }
  // I5: the use keeps exclusive work away after the lock is dropped.
  uses_.Begin();
  return reading;
}

void TableGroup::Gather(const RowLookup& lookup, RowReading reading,
                        uint64_t version) {
  const RowSources sources = {tables_, previous_, rows_looked_up_, arena_};
  absl::StatusOr<BlockRef> rows = CopyRows(sources, lookup, reading);
  // Before the encoding, which needs the copy alone: exclusive work may begin.
  EndUse();
  if (rows.ok()) {
    rows = EncodeRows(sources, lookup, reading, *std::move(rows));
  }
  if (!rows.ok()) {
    lookup.done(rows.status());
    return;
  }
  PulledRows answer;
  answer.rows = *std::move(rows);
  answer.bytes = static_cast<size_t>(lookup.answer_bytes());
  reading.room.reset();  // I6: only the rows hold it from here on
  answer.header.set_request(lookup.request.request());
  answer.header.set_version(version);
  if (reading.from == Readable::kPrevious) {
    answer.header.set_version(version - 1);
  }
  answer.header.set_encoding(lookup.request.want().encoding());
  lookup.done(std::move(answer));
}

// -------------------------------------------------- uses and exclusive work

void TableGroup::EndUse() {
  DueList due;
  {
    MutexLock lock(&mutex_);
    uses_.End(due);
  }
  Run(due);
}

void TableGroup::Release() {
  DueList due;
  {
    MutexLock lock(&mutex_);
    uses_.EndExclusive(due);
    if (uses_.MayBegin()) {
      std::move(held_.begin(), held_.end(), std::back_inserter(due));
      held_.clear();
    }
  }
  Finish(due, kNoDeadlinePassed);
}

void TableGroup::Finish(DueList& due, int64_t now_ns) {
  Run(due);
  Parking<RowLookup>::Ended<RowReading> ended;
  uint64_t version = 0;
  {
    MutexLock lock(&mutex_);
    std::vector<absl::StatusOr<std::optional<RowReading>>> answers;
    for (const auto& parked : parked_.waits()) {
      answers.push_back(BeginRead(parked.wait));
    }
    ended = parked_.Take(now_ns, std::move(answers));
    version = unit_.version;
  }
  // Their uses were begun under the lock; Gather ends each one.
  for (auto& [lookup, reading] : ended) {
    if (!reading.ok()) {
      lookup.done(reading.status());
    } else if (reading->has_value()) {
      Gather(lookup, **std::move(reading), version);
    } else {
      PulledRows answer;
      answer.header.set_request(lookup.request.request());
      answer.header.set_not_yet(true);
      lookup.done(std::move(answer));
    }
  }
}

void TableGroup::ExpireWaits() {
  bool any = false;
  bool frozen = false;
  {
    MutexLock lock(&mutex_);
    frozen = uses_.exclusive();
    if (!frozen) {  // a checkpoint is of one moment
      TickClocks();
    }
    any = !parked_.empty();
  }
  for (int t = 0; t < count() && !frozen; ++t) {
    table(t).LimitAges();
  }
  if (any) {
    DueList due;
    Finish(due, clock_->NowNs());
  }
}

void TableGroup::Close(const absl::Status& status) {
  std::vector<Parking<RowLookup>::Parked> parked;
  std::vector<std::function<void()>> held;
  std::optional<FreezeRequest> freeze;
  {
    MutexLock lock(&mutex_);
    parked = parked_.Close(status);
    held.swap(held_);
    freeze.swap(freeze_);
  }
  // Each is in one list only, so it ends exactly once. A held push finds the
  // tables closed and answers with that.
  for (const auto& one : parked) {
    one.wait.done(status);
  }
  for (const std::function<void()>& update : held) {
    update();
  }
  if (freeze.has_value()) {
    freeze->refused(status);
  }
}

// ------------------------------------------------------------------ upkeep

absl::StatusOr<ShrinkReply> TableGroup::Shrink(const ShrinkRequest& request) {
  ShrinkReply reply;
  bool found = false;
  for (int t = 0; t < count(); ++t) {
    if (!request.table().empty() && request.table() != spec(t).name()) {
      continue;
    }
    found = true;
    ShrinkOptions options;
    options.age_max = request.age_max();
    if (request.has_rows_max()) {
      // More than any table holds.
      options.rows_max = static_cast<int64_t>(std::min<uint64_t>(
          request.rows_max(), std::numeric_limits<int64_t>::max()));
    }
    const ShrinkReceipt receipt = table(t).Shrink(options);
    reply.set_rows(reply.rows() + static_cast<uint64_t>(receipt.rows));
    reply.set_bytes(reply.bytes() + static_cast<uint64_t>(receipt.bytes));
  }
  if (!found) {
    return absl::NotFoundError(
        absl::StrCat("no table \"", request.table(), "\" in this job"));
  }
  return reply;
}

void TableGroup::Freeze(std::optional<uint64_t> version,
                        std::function<void()> run,
                        std::function<void(absl::Status)> refused) {
  DueList due;
  {
    MutexLock lock(&mutex_);
    if (!parked_.closed().ok()) {
      due.push_back([refused, status = parked_.closed()] { refused(status); });
    } else if (!version.has_value()) {
      uses_.Ask(std::move(run), /*first=*/false, due);
    } else if (*version > unit_.version) {
      freeze_ = {version, std::move(run), std::move(refused)};
    } else if (*version >= oldest_) {
      // In front of a step that waits to be published, which would take the
      // wanted version away. A step that is being published right now leaves
      // the version before it readable (I3).
      uses_.Ask(std::move(run), /*first=*/true, due);
    } else {
      due.push_back([refused, now = unit_.version, wanted = *version] {
        refused(absl::OutOfRangeError(absl::StrCat("the tables are at version ",
                                                   now, ", past ", wanted)));
      });
    }
  }
  Run(due);
}

bool TableGroup::CancelFreeze() {
  MutexLock lock(&mutex_);
  const bool waited = freeze_.has_value();
  freeze_.reset();
  return waited;
}

std::vector<uint64_t> TableGroup::marks() const {
  MutexLock lock(&mutex_);
  return unit_.marks;
}

std::vector<uint64_t> TableGroup::MarksAt(
    std::optional<uint64_t> version) const {
  MutexLock lock(&mutex_);
  if (version.has_value() && *version < unit_.version) {
    return previous_marks_;
  }
  return unit_.MarksOfVersion();
}

uint64_t TableGroup::version() const {
  MutexLock lock(&mutex_);
  return unit_.version;
}

bool TableGroup::IsPrevious(uint64_t version) const {
  MutexLock lock(&mutex_);
  return version >= oldest_ && version < unit_.version;
}

HotRows::ByTable TableGroup::FindHotRows() {
  HotRows::ByTable hot;
  for (int t = 0; t < count(); ++t) {
    hot.push_back(table(t).Report(kHotRowsMax).hot);
  }
  return hot;
}

void TableGroup::FillStatus(int hot_ids, PsStatus* status) {
  HotRows::ByTable hot(static_cast<size_t>(count()));
  if (hot_ids > 0) {
    hot = hot_.Get();
  }
  for (int t = 0; t < count(); ++t) {
    TableStatus* const one = status->add_table();
    one->set_name(spec(t).name());
    FillTableStatus(table(t).Report(/*hot_count=*/0), one);
    std::vector<HotRow>& rows = hot[static_cast<size_t>(t)];
    rows.resize(std::min(rows.size(), static_cast<size_t>(hot_ids)));
    for (const HotRow& row : rows) {
      one->add_hot_id(row.id);
      one->add_hot_updates(row.updates);
    }
    one->set_rows_looked_up(rows_looked_up_[static_cast<size_t>(t)]);
    one->set_rows_updated(rows_updated_[static_cast<size_t>(t)]);
  }
}

}  // namespace weir
