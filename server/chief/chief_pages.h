// What the admin port of a chief shows beside its health: metrics of the job,
// the report and the curve as JSON, and the page that draws them.
//
// Place: whoever runs the chief calls it, weir_chief or worker 0.
#ifndef SERVER_CHIEF_CHIEF_PAGES_H_
#define SERVER_CHIEF_CHIEF_PAGES_H_

#include "proto/admin/admin_server.h"
#include "server/chief/chief_runner.h"

namespace weir {

// `admin` may be null. The runner outlives the functions that are given to it
// (AdminServer::Reset).
void AddChiefPages(ChiefRunner* runner, AdminServer* admin);

}  // namespace weir

#endif  // SERVER_CHIEF_CHIEF_PAGES_H_
