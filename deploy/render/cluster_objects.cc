#include "deploy/render/cluster_objects.h"

#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/render/plan_checks.h"
#include "deploy/render/pods.h"
#include "proto/admin/admin_port.h"

namespace weir {
namespace {

// Of a cluster's DNS. A policy counts the port of the pod behind a Service: on
// OpenShift that is 5353.
constexpr int kDnsPorts[] = {53, 5353};

Tree Port(const char* protocol, int port) {
  return {{"protocol", protocol}, {"port", port}};
}

// Ports that whoever uses a bucket needs: HTTPS, and the two of the cloud's
// metadata service, which gives it its identity.
constexpr int kBucketPorts[] = {80, 443, 988};

std::set<int> StorePorts(const RenderPlan& plan) {
  std::set<int> ports;
  if (plan.data.source == DataPlan::Source::kBucket || plan.uses_store()) {
    ports.insert(std::begin(kBucketPorts), std::end(kBucketPorts));
  }
  if (!plan.options.store_endpoint.empty()) {
    // It was checked with the other options.
    ports.insert(PortOfUrl(plan.options.store_endpoint).value_or(443));
  }
  return ports;
}

Document JobFile(const RenderPlan& plan) {
  return {{"The job file, as it was rendered. --set stands in the tasks'",
           "arguments."},
          {{"apiVersion", "v1"},
           {"kind", "ConfigMap"},
           {"metadata", Metadata(plan, plan.name + "-job", "job")},
           {"data", {{plan.job_file, plan.job_text}}}}};
}

Document RunVolumeClaim(const RenderPlan& plan) {
  Tree spec = {{"accessModes", {"ReadWriteMany"}}};
  if (!plan.options.storage_class.empty()) {
    spec["storageClassName"] = plan.options.storage_class;
  }
  spec["resources"] = {{"requests", {{"storage", plan.storage}}}};
  return {
      {"The run's directory: checkpoints, curves, DONE. Each ps writes its",
       "own shard there, so pods of several nodes must be able to mount it."},
      {{"apiVersion", "v1"},
       {"kind", "PersistentVolumeClaim"},
       {"metadata", Metadata(plan, plan.name + "-run", "run")},
       {"spec", spec}}};
}

// Whom the pods may call.
Tree Egress(const RenderPlan& plan, const Tree& pods, const Tree& task_port) {
  Tree egress = Tree::array();
  egress.push_back({{"to", Tree::array({pods})}, {"ports", task_port}});
  Tree dns = Tree::array();
  for (const int port : kDnsPorts) {
    dns.push_back(Port("UDP", port));
    dns.push_back(Port("TCP", port));
  }
  egress.push_back({{"ports", dns}});
  Tree store = Tree::array();
  for (const int port : StorePorts(plan)) {
    store.push_back(Port("TCP", port));
  }
  if (!store.empty()) {
    egress.push_back({{"ports", store}});
  }
  if (!plan.options.store_endpoint.empty()) {
    // The store may be behind a Service, whose pods have a port that nobody
    // has told us.
    const Tree anywhere = {{"namespaceSelector", Tree::object()}};
    egress.push_back({{"to", Tree::array({anywhere})}});
  }
  return egress;
}

Document Network(const RenderPlan& plan) {
  const Tree pods = {{"podSelector", {{"matchLabels", Selector(plan)}}}};
  const Tree task_port = Tree::array({Port("TCP", plan.options.port)});
  Tree spec = {
      {"podSelector", {{"matchLabels", Selector(plan)}}},
      {"policyTypes", {"Ingress"}},
      {"ingress",
       Tree::array({{{"from", Tree::array({pods})}, {"ports", task_port}}})}};
  std::vector<std::string> comment = {
      "Only the job's own pods may connect to its port."};
  if (plan.options.metrics) {
    comment.push_back("The metrics are for every pod of the cluster.");
    const Tree anywhere = {{"namespaceSelector", Tree::object()}};
    spec["ingress"].push_back(
        {{"from", Tree::array({anywhere})},
         {"ports", Tree::array({Port("TCP", kAdminPort)})}});
  }
  if (plan.user_program()) {
    comment.push_back(
        "What a user's program may call is not restricted: Weir does not know "
        "it.");
  } else {
    comment.push_back("They may call each other and the cluster's DNS.");
    spec["policyTypes"].push_back("Egress");
    spec["egress"] = Egress(plan, pods, task_port);
  }
  return {comment,
          {{"apiVersion", "networking.k8s.io/v1"},
           {"kind", "NetworkPolicy"},
           {"metadata", Metadata(plan, plan.name, "network")},
           {"spec", spec}}};
}

// The pods that hold the job's state: all of them but one must be there before
// another is evicted.
int PodsThatStay(const RenderPlan& plan) {
  int pods = -1;
  for (const TaskRole role : {TaskRole::kPs, TaskRole::kChief}) {
    if (const RolePlan* const found = plan.Find(role)) {
      pods += found->count;
    }
  }
  return pods;
}

Document DisruptionBudget(const RenderPlan& plan) {
  Tree components = {"ps"};
  if (plan.Find(TaskRole::kChief) != nullptr) {
    components.push_back("chief");
  }
  const Tree expression = {{"key", "app.kubernetes.io/component"},
                           {"operator", "In"},
                           {"values", components}};
  return {
      {"One of the pods that hold the job's state may be evicted at a time, so",
       "a drain goes on and the job restores one shard after another."},
      {{"apiVersion", "policy/v1"},
       {"kind", "PodDisruptionBudget"},
       {"metadata", Metadata(plan, plan.name, "disruption")},
       {"spec",
        {{"minAvailable", PodsThatStay(plan)},
         {"selector",
          {{"matchLabels", Selector(plan)},
           {"matchExpressions", Tree::array({expression})}}}}}}};
}

std::string Kubectl(const RenderPlan& plan) {
  if (plan.options.name_space.empty()) {
    return "kubectl";
  }
  return absl::StrCat("kubectl -n ", plan.options.name_space);
}

}  // namespace

std::vector<std::string> HeadComment(const RenderPlan& plan,
                                     const std::string& title,
                                     const std::string& kinds) {
  std::vector<std::string> lines = {title, ""};
  if (plan.secret.empty()) {
    lines.push_back(
        "Before the first start, these Secrets must have tls.crt, tls.key and");
    lines.push_back(
        "ca.crt (cert-manager makes them), for these names (uris):");
    for (const RolePlan& role : plan.roles) {
      lines.push_back(absl::StrCat("  ", plan.name, "-", role.name(), "-tls"));
      lines.push_back(absl::StrCat("    spiffe://cluster.local/ns/",
                                   plan.options.name_space, "/sa/", plan.name,
                                   "-", role.name()));
    }
  } else {
    lines.push_back(
        "Before the first start, make the job's secret, once (its value stands "
        "in no");
    lines.push_back("file and no command line):");
    lines.push_back(absl::StrCat("  weir secret | ", Kubectl(plan),
                                 " create secret generic ", plan.secret,
                                 " --from-file=WEIR_SECRET=/dev/stdin"));
  }
  if (!plan.options.store_secret.empty()) {
    lines.push_back(
        "The keys of the object store are in AWS's file ~/.aws/credentials:");
    lines.push_back(absl::StrCat("  ", Kubectl(plan), " create secret generic ",
                                 plan.options.store_secret,
                                 " --from-file=credentials=FILE"));
  }
  lines.push_back(
      absl::StrCat("Start it with:   ", Kubectl(plan), " apply -f FILE"));
  lines.push_back(absl::StrCat("Delete it with:  ", Kubectl(plan), " delete ",
                               kinds,
                               " -l app.kubernetes.io/instance=", plan.name));
  lines.emplace_back(
      "The checkpoints stay, and the job goes on from the newest one when it "
      "is");
  lines.emplace_back("applied again.");
  if (!plan.remarks.empty()) {
    lines.emplace_back("");
    AppendWrapped(plan.remarks, &lines);
  }
  return lines;
}

std::vector<Document> ClusterObjects(const RenderPlan& plan) {
  std::vector<Document> objects;
  if (!plan.job_text.empty()) {
    objects.push_back(JobFile(plan));
  }
  if (plan.options.run_claim.empty() && !plan.in_store()) {
    objects.push_back(RunVolumeClaim(plan));
  }
  objects.push_back(Network(plan));
  if (PodsThatStay(plan) > 0) {
    objects.push_back(DisruptionBudget(plan));
  }
  return objects;
}

Document HeadlessService(const RenderPlan& plan) {
  // The port carries gRPC in mutual TLS from task to task. "https" is the
  // registered name of that: a mesh passes it through, where "h2c" or "grpc"
  // would make it read plaintext.
  const Tree port = {{"name", kPortName},
                     {"port", plan.options.port},
                     {"targetPort", kPortName},
                     {"appProtocol", "https"}};
  return {{"Gives every pod a name, also before it is ready: tasks look for",
           "each other from the start."},
          {{"apiVersion", "v1"},
           {"kind", "Service"},
           {"metadata", Metadata(plan, plan.name, "network")},
           {"spec",
            {{"clusterIP", "None"},
             {"publishNotReadyAddresses", true},
             {"selector", Selector(plan)},
             {"ports", Tree::array({port})}}}}};
}

std::string KubernetesFile(std::vector<std::string> head,
                           std::vector<Document> documents) {
  std::vector<std::string>* const first = &documents.front().comment;
  head.emplace_back("");
  head.insert(head.end(), first->begin(), first->end());
  *first = std::move(head);
  return ToYaml(documents);
}

std::vector<Choice> WithClusterChoices(std::vector<Choice> own,
                                       const RenderPlan& plan) {
  const std::vector<Choice> pods = PodChoices(plan);
  own.insert(own.end(), pods.begin(), pods.end());
  if (plan.in_store()) {
    own.push_back({"run volume", "none", "--checkpoints is an object store"});
  } else {
    own.push_back({"run volume", "ReadWriteMany",
                   "each ps writes its own shard of a checkpoint"});
  }
  own.push_back({"NetworkPolicy",
                 plan.user_program() ? "ingress" : "ingress and egress",
                 "whoever is not of the job has no business at its port"});
  const int stay = PodsThatStay(plan);
  if (stay > 0) {
    own.push_back({"PodDisruptionBudget", absl::StrCat("minAvailable ", stay),
                   "of ps and chief: one at a time, so that a drain never "
                   "waits for the job's end"});
  } else {
    own.push_back({"PodDisruptionBudget", "none",
                   "with one ps and no chief it would block every drain"});
  }
  return own;
}

}  // namespace weir
