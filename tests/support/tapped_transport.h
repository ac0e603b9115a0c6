// A Transport around another one that sees which answers come, and can lose
// one.
//
// Place: between the clients of a test and a real transport, where a test waits
// for what the clients do by themselves: they repeat what was lost, deferred or
// not there yet.
//
// Threads: safe.
#ifndef TESTS_SUPPORT_TAPPED_TRANSPORT_H_
#define TESTS_SUPPORT_TAPPED_TRANSPORT_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>

#include "client/cc/transport/transport.h"
#include "common/base/mutex.h"

namespace weir {

class TappedTransport : public Transport {
 public:
  // Borrows `other`.
  explicit TappedTransport(Transport* other) : other_(other) {}

  // The next answer with a receipt is lost: the ps has done what it says, and
  // the connection ends before the client reads it.
  void LoseNextReceipt();

  // How many receipts with this outcome have come.
  int receipts(Receipt::Outcome outcome) const;
  // How many answers have said that what is wanted is not there yet.
  int not_yets() const;

  std::shared_ptr<float> NewBuffer(size_t elements) override {
    return other_->NewBuffer(elements);
  }
  std::unique_ptr<ControlLink> Connect(const std::string& address) override {
    return other_->Connect(address);
  }
  std::unique_ptr<DataLink> ConnectData(const std::string& address) override;

  // For links and streams. False: the answer is to be lost.
  bool Note(const Receipt& receipt, bool not_yet);

 private:
  Transport* const other_;
  mutable Mutex mutex_;
  bool lose_next_ ABSL_GUARDED_BY(mutex_) = false;
  std::map<Receipt::Outcome, int> receipts_ ABSL_GUARDED_BY(mutex_);
  int not_yets_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weir

#endif  // TESTS_SUPPORT_TAPPED_TRANSPORT_H_
