// Makes gRPC's own log lines debug lines of ours, of the module "grpc".
//
// gRPC's errors come back as statuses; its own log would say them twice. To be
// called once, in main.
#ifndef PROTO_TASK_GRPC_LOG_H_
#define PROTO_TASK_GRPC_LOG_H_

namespace weir {

void LogGrpcAsDebug();

}  // namespace weir

#endif  // PROTO_TASK_GRPC_LOG_H_
