// What the command line of `weir render` says, as it was written.
//
// Place: deploy/cli/render.cc fills it in; plan.h makes decisions of it.
#ifndef DEPLOY_RENDER_OPTIONS_H_
#define DEPLOY_RENDER_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

namespace weir {

struct RenderOptions {
  std::string target;  // "k8s", "jobset", ...: the factory in target.h
  // Either a job file with its overrides,
  std::string job_path;
  std::vector<std::string> sets;
  // or a user's program, which is the worker, and its evaluator, if any.
  std::vector<std::string> command;
  std::string evaluator_command;

  std::string name;        // "": the job's, or the program's
  std::string name_space;  // "": that of whoever applies the files
  int ps_count = 1;
  int worker_count = 1;
  bool chief = true;              // a task of its own; else worker 0 hosts it
  std::optional<bool> evaluator;  // unset: if the job has an evaluation

  std::string version;     // of Weir
  std::string weir_image;  // the image of Weir itself
  // Of every task of a job file, or of a user's program; "" for Weir's.
  std::string image;
  int gpus = 0;                 // of each worker; an evaluator has one, if any
  std::string device = "auto";  // as --device of `weir train`

  std::string data_dir;         // where the data is in a container
  std::string data_claim;       // a volume with the data,
  std::string data_image_path;  // or a folder of the image,
  std::string data_bucket;      // or what an image copies at the start
  std::string data_copy_image;
  std::string local_data;  // where the data is on this machine, to measure it
  std::string service_account;

  std::string storage;  // size of the run's volume; "": computed
  std::string storage_class;
  std::string run_claim;  // a volume that is there; "": a new one
  // Where checkpoints, curves and DONE go, in place of a volume:
  // s3://BUCKET/PREFIX.
  std::string checkpoints;
  std::string store_endpoint;  // of another store than AWS's
  std::string store_region;
  std::string store_secret;  // name of the Secret with AWS's credentials file
  bool allow_unguarded = false;  // as --allow_unguarded of `weir task`
  bool allow_older = false;      // as --allow_older of `weir task`
  int grace_seconds = 25;
  std::string queue;
  std::vector<std::string> tolerations;     // "worker:spot=true:NoSchedule"
  std::vector<std::string> node_selectors;  // "worker:pool=gpu"
  std::vector<std::string> cpus;            // "ps=2"
  std::vector<std::string> memories;        // "ps=4Gi"
  std::string secret;  // name of the Secret; "": <name>-secret
  bool tls = false;    // certificates in place of a secret
  // Whether every program of Weir shows its metrics to the whole cluster.
  bool metrics = false;
  // 0: 2222; under Slurm, whose jobs may share a node, one that the script
  // computes from the job's number.
  int port = 0;
};

}  // namespace weir

#endif  // DEPLOY_RENDER_OPTIONS_H_
