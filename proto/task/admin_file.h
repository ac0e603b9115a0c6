// Says in a run's directory where the admin port of its chief is.
//
// Place: whoever hosts the chief writes it; `weir page` and the launcher read
// it. The file is called "admin" and holds "HOST:PORT" and a line's end.
// Errors are only logged: without the file a job runs as well.
#ifndef PROTO_TASK_ADMIN_FILE_H_
#define PROTO_TASK_ADMIN_FILE_H_

#include <string>

#include "proto/admin/admin_server.h"

namespace weir {

inline constexpr char kAdminFileName[] = "admin";

// The file is there while this is.
class AdminFile {
 public:
  // Writes nothing if `workdir` is "" or `admin` is null.
  AdminFile(const std::string& workdir, const AdminServer* admin);
  ~AdminFile();
  AdminFile(const AdminFile&) = delete;
  AdminFile& operator=(const AdminFile&) = delete;

 private:
  std::string path_;  // "": there is none
};

}  // namespace weir

#endif  // PROTO_TASK_ADMIN_FILE_H_
