// Ends the process where work stops half-way that nobody can take up again.
//
// Place: around the part of an update that comes after the update was counted.
//   Its sender would hear that it is a duplicate and not bring it again, so an
//   exception (std::bad_alloc, when there is no more memory) must not pass. A
//   ps that ends is restored from the last checkpoint, which has whole updates
//   only.
//
// Threads: compatible; it lives on one thread's stack.
// Cost: two reads of a variable of the thread.
#ifndef SERVER_PS_BLOCK_MUST_FINISH_H_
#define SERVER_PS_BLOCK_MUST_FINISH_H_

#include <exception>

namespace weir {

class MustFinish {
 public:
  // `what` names the work in the last message; borrowed.
  explicit MustFinish(const char* what) : what_(what) {}
  MustFinish(const MustFinish&) = delete;
  MustFinish& operator=(const MustFinish&) = delete;
  // Ends the process with kExitRetry if an exception leaves the scope.
  ~MustFinish() {
    if (std::uncaught_exceptions() > exceptions_) {
      End();
    }
  }

 private:
  [[noreturn]] void End() const;

  const char* const what_;
  const int exceptions_ = std::uncaught_exceptions();
};

}  // namespace weir

#endif  // SERVER_PS_BLOCK_MUST_FINISH_H_
