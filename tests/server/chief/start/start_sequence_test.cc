#include "server/chief/start/start_sequence.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job/job_spec_text.h"
#include "tests/server/chief/small_declaration.h"

namespace weir {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;
using State = StartSequence::State;

JobSpec Job() {
  JobSpec spec;
  spec.set_name("ours");
  spec.mutable_train()->set_batch_size(10);
  spec.mutable_optimizer()->mutable_sgd();
  spec.mutable_schedule()->set_learning_rate(0.1f);
  spec.mutable_update()->mutable_async();
  spec.mutable_limits()->set_block_elements(16);
  return spec;
}

google::protobuf::RepeatedPtrField<Variable> Model() {
  google::protobuf::RepeatedPtrField<Variable> list;
  Variable* const variable = list.Add();
  variable->set_name("w");
  variable->add_shape(64);
  return list;
}

// What the program of an SDK job declares.
Declaration Script() {
  Declaration declaration = SmallDeclaration(/*shards=*/2, /*workers=*/2);
  *declaration.mutable_variable() = Model();
  return declaration;
}

FoundCheckpoint Checkpoint() {
  FoundCheckpoint found;
  found.directory = "/disk/ckpt-30";
  found.manifest.set_name("ckpt-30");
  found.manifest.set_step(30);
  found.manifest.set_job_spec_text(CanonicalJobSpecText(Job()));
  *found.manifest.mutable_declaration()->mutable_variable() = Model();
  found.manifest.mutable_declaration()->mutable_update()->mutable_async();
  found.manifest.add_applied_range(0);
  found.manifest.add_applied_range(30);
  return found;
}

std::optional<FoundCheckpoint> None() { return std::nullopt; }

using Change = std::function<void(JobOptions*)>;

// A sequence for two shards and two workers, and what it asks for.
struct Start {
  explicit Start(const Change& change = [](JobOptions*) {})
      : facts(Make(change)), sequence(&facts) {}

  JobOptions Make(const Change& change) {
    JobOptions options;
    options.spec = Job();
    options.worker_count = 2;
    options.ps_addresses = {"a:1", "b:1"};
    options.checkpoint_directory = "/disk";
    options.chief_secret = "secret";
    options.random = [this] {
      const uint64_t id = histories.front();
      histories.pop_front();
      return id;
    };
    change(&options);
    return options;
  }

  // Worker 0 registers with the model, or as a program of the SDK.
  void Worker(const google::protobuf::RepeatedPtrField<Variable>& model) {
    RegisterRequest request;
    *request.mutable_job_spec() = facts.options.spec;
    *request.mutable_variable() = model;
    request.set_sample_count(100);
    EXPECT_TRUE(facts.job->Check(request).ok());
    sequence.Load();
  }
  void Program(const Declaration& declaration) {
    RegisterRequest request;
    *request.mutable_declaration() = declaration;
    EXPECT_TRUE(facts.job->Check(request).ok());
    sequence.Load();
  }

  void Hellos(ShardState state, uint64_t history = 0) {
    std::vector<HelloReply> hellos(2);
    for (uint32_t s = 0; s < 2; ++s) {
      hellos[s].set_incarnation(100 + s);
      hellos[s].set_state(state);
      hellos[s].set_history(history);
      hellos[s].set_job(state == EMPTY ? "" : "ours");
      hellos[s].set_shard(s);
      hellos[s].set_shard_count(2);
      hellos[s].set_keeps_checkpoints(true);
    }
    sequence.OnHellos(hellos);
  }

  // The calls of one kind so far, by shard.
  template <typename Request>
  std::vector<Request> Calls() const {
    std::vector<Request> calls;
    for (const Action& action : facts.actions) {
      if (const auto* call = std::get_if<ShardCall>(&action)) {
        if (const auto* request = std::get_if<Request>(&call->request)) {
          EXPECT_EQ(call->shard, static_cast<int>(calls.size()));
          calls.push_back(*request);
        }
      }
    }
    return calls;
  }

  template <typename T>
  int Count() const {
    int count = 0;
    for (const Action& action : facts.actions) {
      count += static_cast<int>(std::holds_alternative<T>(action));
    }
    return count;
  }

  // Shard `s` holds what was declared, in a process of this incarnation.
  void Declared(int s, uint64_t incarnation) {
    DeclareReply reply;
    reply.set_incarnation(incarnation);
    reply.set_layout_fingerprint(facts.layout_fingerprint);
    sequence.OnDeclared(s, reply);
  }

  void ExpectFailed(absl::StatusCode code, const std::string& text) const {
    EXPECT_EQ(sequence.state(), State::kFailed);
    EXPECT_EQ(sequence.status().code(), code) << sequence.status();
    EXPECT_THAT(std::string(sequence.status().message()), HasSubstr(text));
  }

  std::deque<uint64_t> histories{7, 8, 9};
  JobFacts facts;
  StartSequence sequence;
};

TEST(StartSequenceTest, ANewJobIsDeclaredWithTheFirstWorkersVariables) {
  Start start;
  start.Hellos(EMPTY);
  EXPECT_EQ(start.sequence.state(), State::kFinding);
  EXPECT_EQ(start.Count<FindCheckpoint>(), 1);
  start.sequence.OnCheckpointFound(None());
  EXPECT_EQ(start.sequence.state(), State::kNeedsJob);
  EXPECT_THAT(start.Calls<DeclareRequest>(), IsEmpty());
  start.Worker(Model());
  const auto declares = start.Calls<DeclareRequest>();
  ASSERT_THAT(declares, SizeIs(2));
  EXPECT_EQ(declares[1].shard(), 1u);
  EXPECT_EQ(declares[1].chief_secret(), "secret");
  EXPECT_EQ(declares[1].declaration().history(), 7u);
  EXPECT_EQ(declares[1].declaration().job_spec_hash(), JobSpecHash(Job()));
  EXPECT_EQ(declares[1].declaration().variable_size(), 1);
  start.Declared(1, 101);
  EXPECT_EQ(start.sequence.state(), State::kDeclaring);
  start.Declared(0, 200);  // it was restarted since its Hello
  EXPECT_EQ(start.sequence.state(), State::kReady);
  EXPECT_FALSE(start.sequence.restored());
  EXPECT_FALSE(start.sequence.adopted());
  EXPECT_EQ(start.sequence.incarnations(), std::vector<uint64_t>({200, 101}));
}

TEST(StartSequenceTest, ShardsAreDeclaredOnceUnderOneHistory) {  // I1
  Start start;
  start.histories = {0, 5, 6};  // 0 is no history
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(None());
  start.Worker(Model());
  // Every event once more.
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(Checkpoint());
  start.Worker(Model());
  start.sequence.OnValuesAssigned();
  EXPECT_EQ(start.sequence.state(), State::kDeclaring);
  const auto declares = start.Calls<DeclareRequest>();
  ASSERT_THAT(declares, SizeIs(2));
  EXPECT_EQ(declares[0].declaration().history(), 5u);
  EXPECT_EQ(declares[1].declaration().history(), 5u);
  EXPECT_THAT(start.Calls<RestoreRequest>(), IsEmpty());
}

TEST(StartSequenceTest, InitialValuesAreAssignedWhenAllShardsAreDeclared) {
  Start start([](JobOptions* options) { options->init_from = "a file"; });
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(None());
  start.Worker(Model());
  start.Declared(0, 100);
  EXPECT_THAT(start.Calls<AssignCall>(), IsEmpty());
  start.Declared(1, 101);
  ASSERT_THAT(start.Calls<AssignCall>(), SizeIs(2));
  EXPECT_EQ(start.Calls<AssignCall>()[1].sender.history(), 7u);
  EXPECT_EQ(start.sequence.state(), State::kAssigning);
  start.sequence.OnAssigned(0, absl::OkStatus());
  EXPECT_EQ(start.sequence.state(), State::kAssigning);
  start.sequence.OnAssigned(1, absl::InvalidArgumentError("no tensor 'w'"));
  start.ExpectFailed(absl::StatusCode::kInvalidArgument, "no tensor 'w'");
}

TEST(StartSequenceTest, AShardThatRefusesItsDeclarationIsNamed) {
  Start start;
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(None());
  start.Worker(Model());
  start.sequence.OnDeclared(1, absl::InternalError("broken"));
  start.ExpectFailed(absl::StatusCode::kInternal, "ps 1 (b:1)");
}

TEST(StartSequenceTest, OfTwoChiefsOneThatHasSomeShardsStartsAgain) {  // I3
  for (const bool has_one : {false, true}) {
    for (const int first : {0, 1}) {  // to answer
      Start start;
      start.Hellos(EMPTY);
      start.sequence.OnCheckpointFound(None());
      start.Worker(Model());
      for (const int s : {first, 1 - first}) {
        EXPECT_EQ(start.sequence.state(), State::kDeclaring);
        if (s == 0 && has_one) {
          start.Declared(0, 100);
        } else {
          start.sequence.OnDeclared(s, absl::PermissionDeniedError("ACTIVE"));
        }
      }
      start.ExpectFailed(has_one ? absl::StatusCode::kUnavailable
                                 : absl::StatusCode::kPermissionDenied,
                         has_one ? "ps 1 (b:1)" : "ps 0 (a:1)");
    }
  }
}

TEST(StartSequenceTest, AShardWithAnotherLayoutIsAnError) {
  Start start;
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(None());
  start.Worker(Model());
  DeclareReply reply;
  reply.set_layout_fingerprint(start.facts.layout_fingerprint + 1);
  start.sequence.OnDeclared(0, reply);
  start.ExpectFailed(absl::StatusCode::kInternal, "ps 0 (a:1)");
}

TEST(StartSequenceTest, VariablesThatFitNoLayoutAreAnError) {
  Start start;
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(None());
  auto list = Model();
  list.Mutable(0)->set_shape(0, -1);
  start.Worker(list);
  EXPECT_EQ(start.sequence.state(), State::kFailed);
  EXPECT_THAT(start.Calls<DeclareRequest>(), IsEmpty());
}

TEST(StartSequenceTest, ACheckpointIsNotTrainedOver) {
  Start start;
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(Checkpoint());
  start.ExpectFailed(absl::StatusCode::kInvalidArgument, "--resume");
}

// -------------------------------------------------------------------- resume

void Resume(JobOptions* options) { options->resume = true; }

TEST(StartSequenceTest, ResumeRestoresTheNewestCheckpoint) {
  Start start(Resume);
  start.Hellos(LOADED, /*history=*/3);
  start.sequence.OnCheckpointFound(Checkpoint());
  const auto restores = start.Calls<RestoreRequest>();
  ASSERT_THAT(restores, SizeIs(2));
  EXPECT_EQ(restores[1].checkpoint(), "ckpt-30");
  EXPECT_EQ(restores[1].seen_history(), 3u);
  EXPECT_EQ(restores[1].shard(), 1u);
  EXPECT_EQ(restores[1].declaration().history(), 7u);
  EXPECT_EQ(restores[1].declaration().base_version(), 30u);
  EXPECT_EQ(restores[1].declaration().applied_range(1), 30u);
  EXPECT_EQ(restores[1].declaration().restored_from(), "ckpt-30");
  start.Declared(0, 100);
  start.Declared(1, 101);
  EXPECT_EQ(start.sequence.state(), State::kReady);
  EXPECT_TRUE(start.sequence.restored());
  EXPECT_THAT(start.Calls<DeclareRequest>(), IsEmpty());  // I1
}

TEST(StartSequenceTest, ResumeWithoutAnyTrainingStartsFromTheBeginning) {
  Start start(Resume);
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(None());
  EXPECT_EQ(start.sequence.state(), State::kNeedsJob);
}

TEST(StartSequenceTest, ResumeWithoutItsCheckpointsIsAnError) {
  Start start([](JobOptions* options) {
    options->resume = true;
    options->train_lines = {{40, 1.0, 0}, {30, 1.0, 0}};
  });
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(None());
  start.ExpectFailed(absl::StatusCode::kInvalidArgument, "trained to step 40");
}

TEST(StartSequenceTest, ADamagedCheckpointIsAnError) {
  Start start(Resume);
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(absl::DataLossError("ckpt-30 is damaged"));
  start.ExpectFailed(absl::StatusCode::kDataLoss, "ckpt-30");
}

TEST(StartSequenceTest, AnotherJobFileIsRefusedBeforeAnyRestore) {
  Start start([](JobOptions* options) {
    options->resume = true;
    options->spec.mutable_train()->set_batch_size(11);
  });
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(Checkpoint());
  start.ExpectFailed(absl::StatusCode::kInvalidArgument, "train.batch_size");
  EXPECT_THAT(start.Calls<RestoreRequest>(), IsEmpty());
}

TEST(StartSequenceTest, ALostShardNeedsResumeAndACheckpoint) {
  for (const bool resume : {false, true}) {
    Start start([resume](JobOptions* options) { options->resume = resume; });
    std::vector<HelloReply> hellos(2);
    hellos[0].set_state(ACTIVE);
    hellos[0].set_job("ours");
    hellos[0].set_history(3);
    hellos[0].set_shard_count(2);
    for (HelloReply& hello : hellos) {
      hello.set_keeps_checkpoints(true);
    }
    start.sequence.OnHellos(hellos);
    if (!resume) {
      start.ExpectFailed(absl::StatusCode::kFailedPrecondition, "--resume");
      continue;
    }
    start.sequence.OnCheckpointFound(None());
    start.ExpectFailed(absl::StatusCode::kFailedPrecondition,
                       "start the job anew");
  }
}

// --------------------------------------------------------------------- adopt

// Shards in training under history 3.
PsStatus InTraining(const std::string& hash, uint64_t history = 3) {
  PsStatus status;
  Declaration* const declaration = status.mutable_declaration();
  *declaration = Script();
  declaration->set_job("ours");
  declaration->set_history(history);
  declaration->set_job_spec_hash(hash);
  return status;
}

TEST(StartSequenceTest, ShardsInTrainingAreAdoptedAndNeverDeclared) {  // I2
  Start start(Resume);  // it makes no difference here
  start.Hellos(ACTIVE, /*history=*/3);
  EXPECT_EQ(start.sequence.state(), State::kReadingStatus);
  EXPECT_THAT(start.Calls<StatusCall>(), SizeIs(2));
  start.Worker(Model());  // not asked for
  start.sequence.OnStatus(0, InTraining(JobSpecHash(Job())));
  EXPECT_EQ(start.sequence.state(), State::kReadingStatus);
  start.sequence.OnStatus(1, InTraining(JobSpecHash(Job())));
  EXPECT_EQ(start.sequence.state(), State::kReady);
  EXPECT_TRUE(start.sequence.adopted());
  EXPECT_EQ(start.facts.job->held().history(), 3u);
  EXPECT_EQ(start.facts.ChiefSender().history(), 3u);
  EXPECT_NE(start.facts.ChiefSender().layout_fingerprint(), 0u);
  EXPECT_THAT(start.Calls<DeclareRequest>(), IsEmpty());
  EXPECT_THAT(start.Calls<RestoreRequest>(), IsEmpty());
}

TEST(StartSequenceTest, ShardsThatChangeWhileTheyAreReadAreNotAdopted) {
  Start start;
  start.Hellos(ACTIVE, /*history=*/3);
  start.sequence.OnStatus(0, InTraining(JobSpecHash(Job())));
  start.sequence.OnStatus(1, InTraining(JobSpecHash(Job()), /*history=*/4));
  start.ExpectFailed(absl::StatusCode::kFailedPrecondition, "ps 1 (b:1)");
}

// The next chief restores them: nobody's job file is at fault.
TEST(StartSequenceTest, ShardsThatAreLostWhileTheyAreReadAreNotAdopted) {
  Start start;
  start.Hellos(ACTIVE, /*history=*/3);
  start.sequence.OnStatus(0, PsStatus());
  start.sequence.OnStatus(1, PsStatus());
  start.ExpectFailed(absl::StatusCode::kFailedPrecondition, "ps 0 (a:1)");
}

TEST(StartSequenceTest, AnotherJobSpecOfTheShardsIsNamedByItsField) {
  Start start([](JobOptions* options) {
    options->spec.mutable_train()->set_batch_size(11);
    options->newest = Checkpoint().manifest;
  });
  start.Hellos(ACTIVE, /*history=*/3);
  start.sequence.OnStatus(0, InTraining(JobSpecHash(Job())));
  start.sequence.OnStatus(1, InTraining(JobSpecHash(Job())));
  start.ExpectFailed(absl::StatusCode::kInvalidArgument, "train.batch_size");
}

TEST(StartSequenceTest, AnotherNumberOfWorkersCannotTakeOver) {
  Start start([](JobOptions* options) { options->worker_count = 3; });
  start.Hellos(ACTIVE, /*history=*/3);
  start.sequence.OnStatus(0, InTraining(JobSpecHash(Job())));
  start.sequence.OnStatus(1, InTraining(JobSpecHash(Job())));
  start.ExpectFailed(absl::StatusCode::kInvalidArgument, "with 2 workers");
}

// ------------------------------------------------------------------- SDK jobs

void Sdk(JobOptions* options) {
  options->sdk_job = true;
  options->spec.Clear();
}

TEST(StartSequenceTest, AnSdkJobIsReadyWhenWorker0HasAssignedItsValues) {
  Start start(Sdk);
  start.Hellos(EMPTY);
  start.sequence.OnCheckpointFound(None());
  Declaration declaration = Script();
  declaration.set_base_version(12);  // no worker may say these
  declaration.set_restored_from("ckpt-1");
  start.Program(declaration);
  const auto declares = start.Calls<DeclareRequest>();
  ASSERT_THAT(declares, SizeIs(2));
  EXPECT_EQ(declares[0].declaration().base_version(), 0u);
  EXPECT_EQ(declares[0].declaration().restored_from(), "");
  start.sequence.OnValuesAssigned();  // too early
  EXPECT_EQ(start.sequence.state(), State::kDeclaring);
  start.Declared(0, 100);
  start.Declared(1, 101);
  EXPECT_EQ(start.sequence.state(), State::kAssigning);
  start.sequence.OnValuesAssigned();
  EXPECT_EQ(start.sequence.state(), State::kReady);
}

TEST(StartSequenceTest, AnSdkJobIsRestoredOnceItsProgramHasDeclaredIt) {
  Start start([](JobOptions* options) {
    Sdk(options);
    options->resume = true;
  });
  start.Hellos(EMPTY);
  FoundCheckpoint found;
  found.directory = "/disk/ckpt-30";
  found.manifest.set_name("ckpt-30");
  found.manifest.set_step(30);
  *found.manifest.mutable_declaration() = Script();
  found.manifest.add_pushes(10);
  found.manifest.add_pushes(20);
  start.sequence.OnCheckpointFound(found);
  EXPECT_EQ(start.sequence.state(), State::kNeedsJob);
  EXPECT_THAT(start.Calls<RestoreRequest>(), IsEmpty());
  start.Program(Script());
  ASSERT_THAT(start.Calls<RestoreRequest>(), SizeIs(2));
  EXPECT_EQ(start.Calls<RestoreRequest>()[0].declaration().pushes_before(1),
            20u);
  start.Declared(0, 100);
  start.Declared(1, 101);
  EXPECT_EQ(start.sequence.state(), State::kReady);  // nobody assigns values
}

TEST(StartSequenceTest, AnSdkChiefDoesNotTakeOverAJobWithAJobFile) {
  Start start(Sdk);
  start.Hellos(ACTIVE, /*history=*/3);
  start.sequence.OnStatus(0, InTraining(JobSpecHash(Job())));
  start.sequence.OnStatus(1, InTraining(JobSpecHash(Job())));
  start.ExpectFailed(absl::StatusCode::kInvalidArgument, "--job");
}

}  // namespace
}  // namespace weir
