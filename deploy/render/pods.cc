#include "deploy/render/pods.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/base/exit_code.h"
#include "common/base/status.h"
#include "deploy/render/quantity.h"
#include "proto/admin/admin_port.h"

namespace weir {
namespace {

// A label of DNS.
constexpr size_t kLabelCharsMax = 63;
// A failure that counts costs one more pod, later each time. One cause, such as
// a chief that is away, may be a failure of all pods, again and again.
constexpr int kNewPodsMin = 1000;
constexpr int kNewPodsPerPod = 100;
// Beyond Weir's own grace: for the processes to end after the checkpoint.
constexpr int kGraceExtraSeconds = 5;
// 0440: for the group alone, which fsGroup makes the task's. Weir refuses a
// secret that everybody can read.
constexpr int kSecretMode = 288;

Tree SecurityContext() {
  return {{"allowPrivilegeEscalation", false},
          {"readOnlyRootFilesystem", true},
          {"capabilities", {{"drop", {"ALL"}}}}};
}

Tree Resources(const RolePlan& role) {
  Tree requests = {{"cpu", FormatCpu(role.milli_cpus)},
                   {"memory", FormatMemory(role.memory_request)}};
  Tree limits = {{"memory", FormatMemory(role.memory_limit)}};
  if (role.gpus > 0) {
    limits["nvidia.com/gpu"] = absl::StrCat(role.gpus);
  }
  return {{"requests", requests}, {"limits", limits}};
}

// The certificates' names of each role, as service accounts have them.
std::string IdentityRules(const RenderPlan& plan) {
  std::vector<std::string> rules;
  for (const RolePlan& role : plan.roles) {
    rules.push_back(absl::StrCat("spiffe://cluster.local/ns/",
                                 plan.options.name_space, "/sa/", plan.name,
                                 "-", role.name(), "=", role.name()));
  }
  return absl::StrJoin(rules, ",");
}

void AddStoreEnv(const RenderPlan& plan, Tree* env) {
  for (const auto& [name, value] : StoreVariables(plan)) {
    env->push_back({{"name", name}, {"value", Escaped(value)}});
  }
  if (!plan.options.store_secret.empty()) {
    env->push_back({{"name", "AWS_SHARED_CREDENTIALS_FILE"},
                    {"value", absl::StrCat(ContainerPaths::kStoreFolder,
                                           "/credentials")}});
  }
}

Tree Env(const RenderPlan& plan, const RolePlan& role, const PodStyle& style) {
  Tree env = style.env;
  const auto add = [&env](const std::string& name, const std::string& value) {
    env.push_back({{"name", name}, {"value", value}});
  };
  if (plan.secret.empty()) {
    add("WEIR_TLS_DIR", ContainerPaths::kTlsFolder);
    add("WEIR_IDENTITY", IdentityRules(plan));
  } else {
    add("WEIR_SECRET_FILE",
        absl::StrCat(ContainerPaths::kSecretFolder, "/WEIR_SECRET"));
  }
  if (plan.uses_store()) {
    AddStoreEnv(plan, &env);
  }
  if (!role.command.empty()) {
    // Programs keep caches in their home, and the root is read-only.
    add("HOME", "/tmp");
  }
  return env;
}

// A pod's volumes, and where the task's container has them.
struct Volumes {
  Tree volumes = Tree::array();
  Tree mounts = Tree::array();

  // Without a path the volume is of another container.
  void Add(const std::string& name, const std::string& kind, Tree source,
           const std::string& path, bool read_only) {
    Tree volume = {{"name", name}};
    volume[kind] = std::move(source);
    volumes.push_back(std::move(volume));
    if (path.empty()) {
      return;
    }
    Tree mount = {{"name", name}, {"mountPath", path}};
    if (read_only) {
      mount["readOnly"] = true;
    }
    mounts.push_back(std::move(mount));
  }
};

bool CopiesData(const RenderPlan& plan, const RolePlan& role) {
  return role.reads_data && plan.data.source == DataPlan::Source::kBucket;
}

void AddData(const RenderPlan& plan, Volumes* volumes) {
  const DataPlan& data = plan.data;
  if (data.source == DataPlan::Source::kClaim) {
    volumes->Add("data", "persistentVolumeClaim",
                 {{"claimName", data.claim}, {"readOnly", true}}, data.folder,
                 /*read_only=*/true);
  } else if (data.source == DataPlan::Source::kBucket) {
    volumes->Add("data", "emptyDir", Tree::object(), data.folder,
                 /*read_only=*/true);
  }
}

// One key of a Secret as a file, for the task alone.
void AddSecretFile(const std::string& name, const std::string& secret,
                   const std::string& key, const std::string& folder,
                   Volumes* volumes) {
  const Tree file = {{"key", key}, {"path", key}};
  volumes->Add(name, "secret",
               {{"secretName", secret},
                {"defaultMode", kSecretMode},
                {"items", Tree::array({file})}},
               folder, /*read_only=*/true);
}

// What outlives the job's pods, or, where that is in an object store, a
// directory for the rest.
void AddRun(const RenderPlan& plan, const RolePlan& role, Volumes* volumes) {
  if (plan.in_store()) {
    volumes->Add("run", "emptyDir", Tree::object(), ContainerPaths::kRun,
                 /*read_only=*/false);
    return;
  }
  const std::string claim = plan.options.run_claim.empty()
                                ? plan.name + "-run"
                                : plan.options.run_claim;
  volumes->Add("run", "persistentVolumeClaim", {{"claimName", claim}},
               ContainerPaths::kRun, role.run_volume == RunVolume::kReadOnly);
}

Volumes VolumesOf(const RenderPlan& plan, const RolePlan& role) {
  Volumes volumes;
  if (role.reads_job) {
    volumes.Add("job", "configMap", {{"name", plan.name + "-job"}},
                ContainerPaths::kJobFolder, /*read_only=*/true);
  }
  AddRun(plan, role, &volumes);
  volumes.Add("tmp", "emptyDir", Tree::object(), "/tmp", /*read_only=*/false);
  if (plan.secret.empty()) {
    volumes.Add(
        "tls", "secret",
        {{"secretName", absl::StrCat(plan.name, "-", role.name(), "-tls")},
         {"defaultMode", kSecretMode}},
        ContainerPaths::kTlsFolder, /*read_only=*/true);
  } else {
    AddSecretFile("secret", plan.secret, "WEIR_SECRET",
                  ContainerPaths::kSecretFolder, &volumes);
  }
  if (!plan.options.store_secret.empty() &&
      (plan.uses_store() || CopiesData(plan, role))) {
    AddSecretFile("store", plan.options.store_secret, "credentials",
                  plan.uses_store() ? ContainerPaths::kStoreFolder : "",
                  &volumes);
  }
  if (role.reads_data) {
    AddData(plan, &volumes);
  }
  return volumes;
}

// Copies the bucket to the data's volume, before the task starts.
Tree CopyContainer(const RenderPlan& plan) {
  const DataPlan& data = plan.data;
  Tree command = {"gcloud", "storage", "rsync", "--recursive"};
  Tree env = Tree::array();
  env.push_back({{"name", "HOME"}, {"value", "/tmp"}});
  Tree mounts = Tree::array();
  mounts.push_back({{"name", "data"}, {"mountPath", data.folder}});
  mounts.push_back({{"name", "tmp"}, {"mountPath", "/tmp"}});
  if (absl::StartsWith(data.bucket, "s3://")) {
    command = {"aws", "s3", "sync", "--no-progress"};
    AddStoreEnv(plan, &env);
    if (!plan.options.store_region.empty()) {
      // What version 1 of `aws` reads.
      env.push_back({{"name", "AWS_DEFAULT_REGION"},
                     {"value", plan.options.store_region}});
    }
    if (!plan.options.store_secret.empty()) {
      mounts.push_back({{"name", "store"},
                        {"mountPath", ContainerPaths::kStoreFolder},
                        {"readOnly", true}});
    }
  }
  command.push_back(Escaped(data.bucket));
  command.push_back(Escaped(data.folder));
  return {{"name", "copy-data"},
          {"image", data.copy_image},
          {"command", command},
          {"env", env},
          {"resources",
           {{"requests", {{"cpu", "100m"}, {"memory", "256Mi"}}},
            {"limits", {{"memory", "1Gi"}}}}},
          {"securityContext", SecurityContext()},
          {"volumeMounts", mounts}};
}

Tree Ports(const RenderPlan& plan, const RolePlan& role,
           const PodStyle& style) {
  Tree ports = Tree::array();
  if (role.role != TaskRole::kEvaluator) {  // which nobody calls
    ports.push_back(
        {{"name", style.port_name}, {"containerPort", plan.options.port}});
  }
  if (ShowsMetrics(plan, role)) {
    ports.push_back({{"name", "metrics"}, {"containerPort", kAdminPort}});
  }
  return ports;
}

Tree Container(const RenderPlan& plan, const RolePlan& role,
               const PodStyle& style, Tree mounts) {
  const std::string job =
      absl::StrCat(ContainerPaths::kJobFolder, "/", plan.job_file);
  std::vector<std::string> words =
      TaskWords(plan, role, job, ContainerPaths::kRun);
  std::transform(words.begin(), words.end(), words.begin(), Escaped);
  Tree container = {
      {"name", style.container.empty() ? role.name() : style.container},
      {"image", role.image},
      {"imagePullPolicy", "IfNotPresent"},
      {"command", {"weir"}},
      {"args", words},
      {"env", Env(plan, role, style)}};
  if (const Tree ports = Ports(plan, role, style); !ports.empty()) {
    container["ports"] = ports;
  }
  container["resources"] = Resources(role);
  container["securityContext"] = SecurityContext();
  container["readinessProbe"] = {{"exec", {{"command", {"weir", "probe"}}}},
                                 {"periodSeconds", 10},
                                 {"timeoutSeconds", 5},
                                 {"failureThreshold", 3}};
  container["volumeMounts"] = std::move(mounts);
  return container;
}

Tree Tolerations(const RolePlan& role) {
  Tree tolerations = Tree::array();
  for (const Toleration& toleration : role.tolerations) {
    Tree entry = {{"key", toleration.key}};
    entry["operator"] = toleration.value.empty() ? "Exists" : "Equal";
    if (!toleration.value.empty()) {
      entry["value"] = toleration.value;
    }
    if (!toleration.effect.empty()) {
      entry["effect"] = toleration.effect;
    }
    tolerations.push_back(std::move(entry));
  }
  return tolerations;
}

// Where the scheduler puts the pods.
void AddScheduling(const RenderPlan& plan, const RolePlan& role, Tree* spec) {
  if (!role.node_selector.empty()) {
    (*spec)["nodeSelector"] = role.node_selector;
  }
  if (!role.tolerations.empty()) {
    (*spec)["tolerations"] = Tolerations(role);
  }
  if (role.count > 1) {
    Tree labels = Selector(plan);
    labels["app.kubernetes.io/component"] = role.name();
    const Tree spread = {{"maxSkew", 1},
                         {"topologyKey", "kubernetes.io/hostname"},
                         {"whenUnsatisfiable", "ScheduleAnyway"},
                         {"labelSelector", {{"matchLabels", labels}}}};
    (*spec)["topologySpreadConstraints"] = Tree::array({spread});
  }
}

Tree PodSpec(const RenderPlan& plan, const RolePlan& role,
             const PodStyle& style) {
  Volumes volumes = VolumesOf(plan, role);
  Tree spec = Tree::object();
  if (style.never_restarts) {
    spec["restartPolicy"] = "Never";
  }
  if (!style.subdomain.empty()) {
    spec["subdomain"] = style.subdomain;
  }
  spec["terminationGracePeriodSeconds"] =
      plan.options.grace_seconds + kGraceExtraSeconds;
  if (!plan.options.service_account.empty()) {
    spec["serviceAccountName"] = plan.options.service_account;
  }
  spec["automountServiceAccountToken"] = false;
  spec["enableServiceLinks"] = false;
  spec["securityContext"] = {{"runAsNonRoot", true},
                             {"runAsUser", kContainerUser},
                             {"runAsGroup", kContainerUser},
                             {"fsGroup", kContainerUser},
                             {"fsGroupChangePolicy", "OnRootMismatch"},
                             {"seccompProfile", {{"type", "RuntimeDefault"}}}};
  AddScheduling(plan, role, &spec);
  if (CopiesData(plan, role)) {
    spec["initContainers"] = Tree::array({CopyContainer(plan)});
  }
  spec["containers"] =
      Tree::array({Container(plan, role, style, std::move(volumes.mounts))});
  spec["volumes"] = std::move(volumes.volumes);
  return spec;
}

}  // namespace

std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"$", "$$"}});
}

int NewPodsMax(int pods) {
  return std::max(kNewPodsMin, kNewPodsPerPod * pods);
}

Tree Selector(const RenderPlan& plan) {
  return {{"app.kubernetes.io/name", "weir"},
          {"app.kubernetes.io/instance", plan.name}};
}

Tree Labels(const RenderPlan& plan, const std::string& component) {
  Tree labels = Selector(plan);
  if (!component.empty()) {
    labels["app.kubernetes.io/component"] = component;
  }
  labels["app.kubernetes.io/version"] = plan.options.version;
  labels["app.kubernetes.io/managed-by"] = "weir-render";
  return labels;
}

Tree Metadata(const RenderPlan& plan, const std::string& name,
              const std::string& component) {
  Tree metadata = {{"name", name}};
  if (!plan.options.name_space.empty()) {
    metadata["namespace"] = plan.options.name_space;
  }
  metadata["labels"] = Labels(plan, component);
  return metadata;
}

Tree PodTemplate(const RenderPlan& plan, const RolePlan& role,
                 const PodStyle& style) {
  Tree metadata = {{"labels", Labels(plan, role.name())}};
  Tree annotations = Tree::object();
  if (role.role == TaskRole::kPs || role.role == TaskRole::kChief) {
    // The autoscaler moves these for a cheaper node only if it must.
    annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] = "false";
  }
  if (ShowsMetrics(plan, role)) {
    annotations["prometheus.io/scrape"] = "true";
    annotations["prometheus.io/port"] = absl::StrCat(kAdminPort);
    annotations["prometheus.io/path"] = "/metrics";
  }
  if (!annotations.empty()) {
    metadata["annotations"] = std::move(annotations);
  }
  return {{"metadata", metadata}, {"spec", PodSpec(plan, role, style)}};
}

std::string ClusterText(
    const RenderPlan& plan,
    const std::function<std::string(const RolePlan&, int index)>& host_of) {
  std::vector<std::string> roles;
  for (const RolePlan& role : plan.roles) {
    if (role.role == TaskRole::kEvaluator) {
      continue;
    }
    std::vector<std::string> addresses;
    for (int i = 0; i < role.count; ++i) {
      addresses.push_back(
          absl::StrCat(host_of(role, i), ":", plan.options.port));
    }
    roles.push_back(
        absl::StrCat(role.name(), "=", absl::StrJoin(addresses, ",")));
  }
  return absl::StrJoin(roles, ";");
}

Tree IndexedEnv(const RenderPlan& /*plan*/, const RolePlan& role,
                const std::string& cluster) {
  const Tree field = {
      {"fieldRef",
       {{"fieldPath",
         "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}}};
  Tree env = Tree::array();
  env.push_back({{"name", "WEIR_CLUSTER"}, {"value", cluster}});
  env.push_back({{"name", "WEIR_TASK_TYPE"}, {"value", role.name()}});
  env.push_back({{"name", "WEIR_TASK_INDEX"}, {"valueFrom", field}});
  return env;
}

Tree IndexedJobSpec(const RenderPlan& plan, const RolePlan& role,
                    const PodStyle& style) {
  // The empty list is for the schema of 1.28, which asks for one by mistake.
  const auto on_codes = [&](const char* action, const Tree& codes) {
    return Tree{{"action", action},
                {"onExitCodes",
                 {{"containerName", role.name()},
                  {"operator", "In"},
                  {"values", codes}}},
                {"onPodConditions", Tree::array()}};
  };
  const Tree disrupted = {{"type", "DisruptionTarget"}, {"status", "True"}};
  Tree rules = Tree::array();
  rules.push_back(
      {{"action", "Ignore"}, {"onPodConditions", Tree::array({disrupted})}});
  rules.push_back(on_codes("Ignore", Tree::array({int{kExitReplaced}})));
  rules.push_back(on_codes("FailJob", role.permanent_codes));
  return {{"completionMode", "Indexed"},
          {"completions", role.count},
          {"parallelism", role.count},
          {"backoffLimit", NewPodsMax(role.count)},
          {"podReplacementPolicy", "Failed"},
          {"podFailurePolicy", {{"rules", rules}}},
          {"template", PodTemplate(plan, role, style)}};
}

absl::Status CheckPodNames(
    const RenderPlan& plan, size_t suffix,
    const std::function<std::string(const RolePlan&, int index)>& name_of) {
  for (const RolePlan& role : plan.roles) {
    const std::string name = name_of(role, role.count - 1);
    if (name.size() + suffix > kLabelCharsMax) {
      return Invalid(
          "the pod ", name, " has a name of ", name.size(), " characters",
          suffix > 0 ? absl::StrCat(" and ", suffix, " random ones") : "",
          ", more than ", kLabelCharsMax, "; shorten --name by ",
          name.size() + suffix - kLabelCharsMax);
    }
  }
  return absl::OkStatus();
}

std::vector<Choice> PodChoices(const RenderPlan& plan) {
  const auto seconds = plan.options.grace_seconds + kGraceExtraSeconds;
  return {
      {"terminationGracePeriodSeconds", absl::StrCat(seconds),
       "--grace, and a little for the processes to end"},
      {"liveness and startup probe", "none",
       "a ps that is started again has lost its shard, and a worker may read "
       "data for hours before its port answers; peers notice a task that "
       "hangs, and `weir task` starts one that ended"},
      {"readiness", "weir probe",
       "the kubelet's own gRPC probe speaks no TLS; readiness is for people "
       "and the PodDisruptionBudget, since addresses are published anyway"},
      {"CPU limit", "none",
       "a task that is throttled in the middle of a step holds all up"},
      {"secret's file", "0440 root:10001",
       "fsGroup makes it so; Weir refuses one that everybody can read"},
      {"safe-to-evict", "false for ps and chief",
       "moving one costs a restore; workers may be moved at any time"},
      {"metrics", plan.options.metrics ? "port 9464, of the cluster" : "none",
       "--metrics opens them to every pod of the cluster, and the page to "
       "whoever has the job's secret"}};
}

}  // namespace weir
