// A process of another user on this host, which tries what a test asks for.
//
// Place: tests that run as root. An attempt can also be made by the test
// itself, so that it shows what the owner gets.
#ifndef TESTS_SECURITY_ANOTHER_USER_H_
#define TESTS_SECURITY_ANOTHER_USER_H_

#include <sys/types.h>

#include <memory>
#include <string>

#include "common/io/file_descriptor.h"

namespace weir {

struct Attempt {
  enum Kind : char {
    kPath,   // open the file or directory, and read it
    kPlain,  // begin HTTP/2 at an address
    kTls,    // the same after a TLS handshake
    kShm,    // open a session at a ps's socket of shared memory
  };
  Kind kind = kPath;
  std::string target;  // a path, "127.0.0.1:port", or the socket's name
  // kTls: a directory of certificates to prove oneself with; "" for no proof.
  // kShm: a ticket.
  std::string proof = "";
};

// Returns what the target gives: some bytes, after "opened " for a path. "":
// nothing.
std::string Try(const Attempt& attempt);

class AnotherUser {
 public:
  // The one of this process, which is made at the first call: the caller may
  // not have other threads then. Null where this user cannot become another.
  static AnotherUser* Get();

  // As above, by the other user.
  std::string Try(const Attempt& attempt);

 private:
  static std::unique_ptr<AnotherUser> Create();
  explicit AnotherUser(FileDescriptor socket) : socket_(std::move(socket)) {}

  FileDescriptor socket_;
};

}  // namespace weir

#endif  // TESTS_SECURITY_ANOTHER_USER_H_
