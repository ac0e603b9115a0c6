// A live job of the real programs, for hostile clients to attack.
//
// Place: hostile_clients_test.cc starts one, attacks it, and asks how it is. It
// has a ps, a chief and two workers. The place of a third worker is kept for
// the attacker: the job's steps need two contributions, so nobody waits for it.
//
// Threads: compatible.
#ifndef TESTS_SECURITY_VICTIM_H_
#define TESTS_SECURITY_VICTIM_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/security/certificates.h"
#include "tests/integration/hand_cluster.h"
#include "tests/security/attacks.h"

namespace weir {

class Victim {
 public:
  struct Options {
    std::string name;                   // of the run's directory
    std::string example;                // job file of examples/
    std::vector<std::string> set = {};  // "path=value" for it
    bool secured = true;                // each task has a certificate
  };

  // Starts the job.
  explicit Victim(const Options& options);

  // Waits until it has trained `steps` and has a checkpoint.
  bool Trains(uint64_t steps);
  // Everybody who attacks: first those who prove nothing, then one of each
  // role, or in insecure mode one alone. Joins the job as worker 2.
  // REQUIRES: it trains.
  struct Client {
    Attacker attacker;
    // How an attack must end for it; null: it proves nothing.
    std::optional<absl::StatusCode> Ends::*ends = nullptr;
  };
  std::vector<Client> Clients();

  // Of the tasks that run since the start: the others have ended.
  std::vector<std::string> Ended();
  // Of the ps and the chief by name, in MiB.
  struct Memory {
    int64_t now = 0;   // anonymous and shared
    int64_t peak = 0;  // of all resident pages, since the start
  };
  std::map<std::string, Memory> MemoryOf();
  // How many connections each closed because there were too many; of the chief
  // those that its audit log has lines about, which are few of many.
  std::map<std::string, uint64_t> ConnectionsClosed();
  // Over the next `time`. Expects that its ps answers.
  double StepsPerSecond(std::chrono::seconds time);
  // To all of its tasks.
  void Signal(int signal);

  // Stops the job and checks how its tasks end, then trains it to its end: with
  // exit code 0, and with at least `floor` of `metric`. `steps`: it takes so
  // many at least to get there.
  void EndsWell(const std::string& metric, double floor, uint64_t steps);

 private:
  std::vector<std::string> Environment(const std::string& role, int index);
  TaskCertificate Issue(PeerRole role, int index) const;
  // A client of the job by its certificate, or anyone.
  Attacker Of(const std::string& name, PeerRole role, int index) const;
  absl::StatusOr<PsStatus> Status() const;

  const bool secured_;
  const CertificateAuthority authority_ = CertificateAuthority::Draw();
  const JobSpec spec_;
  HandCluster cluster_;
};

}  // namespace weir

#endif  // TESTS_SECURITY_VICTIM_H_
