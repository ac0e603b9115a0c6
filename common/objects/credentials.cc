#include "common/objects/credentials.h"

#include <cstdlib>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/base/exhausted.h"
#include "common/base/status.h"
#include "nlohmann/json.hpp"
#include "pugixml.hpp"

namespace weir {
namespace {

constexpr char kContainerHost[] = "169.254.170.2";
constexpr char kMachineHost[] = "169.254.169.254";
constexpr char kMachineName[] = "the machine's metadata service";
constexpr int kMachineConnectSeconds = 1;
constexpr char kMachinePath[] = "/latest/meta-data/iam/security-credentials/";

// nullopt for what is no time of RFC 3339.
std::optional<int64_t> ParseTime(const std::string& text) {
  absl::Time time;
  std::string error;
  if (!absl::ParseTime(absl::RFC3339_full, text, &time, &error)) {
    return std::nullopt;
  }
  return absl::ToUnixNanos(time);
}

// Keys go into headers: a line break would begin another one.
absl::Status CheckKeys(const AwsCredentials& keys, const std::string& where) {
  for (const std::string* word :
       {&keys.access_key, &keys.secret_key, &keys.session_token}) {
    for (const char c : *word) {
      if (!absl::ascii_isgraph(static_cast<unsigned char>(c))) {
        return Invalid(where, ": a key has a character that no key has");
      }
    }
  }
  if (keys.access_key.empty() || keys.secret_key.empty()) {
    return Invalid(where, ": the access key or the secret key is missing");
  }
  return absl::OkStatus();
}

// "http://host:1/path" in parts.
absl::Status SetUrl(const std::string& url, HttpRequest* request) {
  absl::string_view rest = url;
  for (const char* scheme : {"http", "https"}) {
    if (absl::ConsumePrefix(&rest, absl::StrCat(scheme, "://"))) {
      request->scheme = scheme;
      const size_t slash = rest.find('/');
      request->host = std::string(rest.substr(0, slash));
      request->path = slash == absl::string_view::npos
                          ? "/"
                          : std::string(rest.substr(slash));
      return absl::OkStatus();
    }
  }
  return Invalid("'", url, "' is no URL of http or https");
}

// Says that `who` has answered without keys; `code` is its word for why.
absl::Status Refusal(const std::string& who, int status,
                     absl::string_view code = "") {
  std::string text = absl::StrCat(who, " answers ", status, " ", code);
  absl::StripTrailingAsciiWhitespace(&text);
  if (IsPassingAnswer(status) || absl::StartsWith(code, "Throttling") ||
      absl::StartsWith(code, "RequestLimitExceeded") ||
      absl::StartsWith(code, "IDPCommunicationError")) {
    return absl::UnavailableError(text);
  }
  return absl::UnauthenticatedError(text);
}

}  // namespace

std::optional<std::string> ProcessEnvironment(const std::string& name) {
  // Read while nothing changes the environment.
  const char* value = std::getenv(name.c_str());  // NOLINT
  if (value == nullptr || *value == '\0') {
    return std::nullopt;
  }
  return std::string(value);
}

bool CredentialSource::LastFor(std::chrono::nanoseconds time) const {
  return fetched_.has_value() &&
         (!fetched_->ends_wall_ns.has_value() ||
          options_.clock->WallNowNs() + time.count() < *fetched_->ends_wall_ns);
}

absl::StatusOr<AwsCredentials> CredentialSource::Get() {
  using std::chrono::nanoseconds;
  bool had_keys = false;
  {
    MutexLock lock(&mutex_);
    while (fetching_ && !LastFor(nanoseconds(0))) {
      changed_.Wait(&mutex_);
    }
    const bool may_wait =
        fetching_ || options_.clock->NowNs() < next_fetch_ns_;  // I2
    if (LastFor(kEarly) || (may_wait && LastFor(nanoseconds(0)))) {
      return fetched_->keys;
    }
    fetching_ = true;
    had_keys = fetched_.has_value() || forgotten_.has_value();
  }
  // Not under the lock: a source that does not answer takes many seconds.
  absl::StatusOr<Fetched> fetched =
      OrExhausted([&] { return Fetch(had_keys); });
  MutexLock lock(&mutex_);
  fetching_ = false;
  changed_.NotifyAll();
  next_fetch_ns_ = options_.clock->NowNs() + nanoseconds(kPause).count();
  if (fetched.ok()) {
    fetched_ = *std::move(fetched);
  } else if (!LastFor(nanoseconds(0))) {
    return fetched.status();
  }  // else I2
  return fetched_->keys;
}

// I3.
bool CredentialSource::Forget(const AwsCredentials& keys) {
  MutexLock lock(&mutex_);
  if (!fetched_.has_value() || fetched_->keys != keys) {
    return true;  // another caller has said so already
  }
  if (forgotten_ == keys && options_.clock->NowNs() < next_fetch_ns_) {
    return false;
  }
  forgotten_ = keys;
  fetched_.reset();
  return true;
}

absl::StatusOr<CredentialSource::Fetched> CredentialSource::Fetch(
    bool had_keys) const {
  using Try = Source (CredentialSource::*)() const;
  for (const Try from :
       {&CredentialSource::FromEnvironment, &CredentialSource::FromWebIdentity,
        &CredentialSource::FromSharedFile, &CredentialSource::FromContainer}) {
    WEIR_ASSIGN_OR_RETURN(std::optional<Fetched> found, (this->*from)());
    if (found.has_value()) {
      return *std::move(found);
    }
  }
  WEIR_ASSIGN_OR_RETURN(std::optional<Fetched> found, FromMachine(had_keys));
  if (found.has_value()) {
    return *std::move(found);
  }
  return absl::UnauthenticatedError(
      "there are no keys for the object store: set AWS_ACCESS_KEY_ID and "
      "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of "
      "~/.aws/credentials; a web identity, a container's agent and the "
      "machine's metadata service have none either");
}

CredentialSource::Source CredentialSource::FromEnvironment() const {
  Fetched found;
  found.keys = {Variable("AWS_ACCESS_KEY_ID"),
                Variable("AWS_SECRET_ACCESS_KEY"),
                Variable("AWS_SESSION_TOKEN")};
  if (found.keys.access_key.empty() && found.keys.secret_key.empty()) {
    return std::optional<Fetched>();
  }
  WEIR_RETURN_IF_ERROR(
      CheckKeys(found.keys, "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"));
  return std::optional<Fetched>(std::move(found));
}

CredentialSource::Source CredentialSource::FromWebIdentity() const {
  const std::string file = Variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  const std::string role = Variable("AWS_ROLE_ARN");
  if (file.empty() || role.empty()) {
    return std::optional<Fetched>();
  }
  WEIR_ASSIGN_OR_RETURN(const std::string token, options_.files->ReadAll(file));
  HttpRequest request;
  const std::string endpoint = Variable("AWS_ENDPOINT_URL_STS");
  WEIR_RETURN_IF_ERROR(SetUrl(
      endpoint.empty()
          ? absl::StrCat("https://sts.", options_.region, ".amazonaws.com")
          : endpoint,
      &request));
  const std::string session = Variable("AWS_ROLE_SESSION_NAME");
  // I1: in the body, since a token in a URL would be in the logs of proxies.
  const std::string form = EncodeQuery(
      {{"Action", "AssumeRoleWithWebIdentity"},
       {"Version", "2011-06-15"},
       {"RoleArn", role},
       {"RoleSessionName", session.empty() ? "weir" : session},
       {"WebIdentityToken", std::string(absl::StripAsciiWhitespace(token))}});
  request.method = "POST";
  request.headers = {{"content-type", "application/x-www-form-urlencoded"}};
  request.body = form;
  WEIR_ASSIGN_OR_RETURN(const HttpResponse response,
                        options_.http->Do(request));
  const std::string who = absl::StrCat("web identity of ", role);
  pugi::xml_document xml;
  xml.load_buffer(response.body.data(), response.body.size());
  if (response.status != 200) {
    const pugi::xml_node error = xml.child("ErrorResponse").child("Error");
    return Refusal(absl::StrCat(who, ": STS"), response.status,
                   absl::StrCat(error.child_value("Code"), ": ",
                                error.child_value("Message")));
  }
  const pugi::xml_node keys = xml.child("AssumeRoleWithWebIdentityResponse")
                                  .child("AssumeRoleWithWebIdentityResult")
                                  .child("Credentials");
  Fetched found;
  found.keys = {keys.child_value("AccessKeyId"),
                keys.child_value("SecretAccessKey"),
                keys.child_value("SessionToken")};
  found.ends_wall_ns = ParseTime(keys.child_value("Expiration"));
  WEIR_RETURN_IF_ERROR(CheckKeys(found.keys, who));
  return std::optional<Fetched>(std::move(found));
}

CredentialSource::Source CredentialSource::FromSharedFile() const {
  std::string path = Variable("AWS_SHARED_CREDENTIALS_FILE");
  if (path.empty()) {
    path = JoinPath(Variable("HOME"), ".aws/credentials");
  }
  const std::string profile =
      options_.environment("AWS_PROFILE").value_or("default");
  absl::StatusOr<std::string> text = options_.files->ReadAll(path);
  const bool asked = options_.environment("AWS_PROFILE").has_value();
  if (!text.ok()) {
    // Whoever names a profile means it.
    if (asked) {
      return Annotate(text.status(), absl::StrCat("AWS_PROFILE=", profile));
    }
    return std::optional<Fetched>();
  }
  std::istringstream lines(*text);
  bool here = false;
  Fetched found;
  for (std::string line; std::getline(lines, line);) {
    const absl::string_view word = absl::StripAsciiWhitespace(line);
    if (absl::StartsWith(word, "[")) {
      here = word == absl::StrCat("[", profile, "]");
      continue;
    }
    const size_t equals = word.find('=');
    if (!here || equals == absl::string_view::npos) {
      continue;
    }
    const absl::string_view name =
        absl::StripAsciiWhitespace(word.substr(0, equals));
    const std::string value(
        absl::StripAsciiWhitespace(word.substr(equals + 1)));
    if (name == "aws_access_key_id") {
      found.keys.access_key = value;
    } else if (name == "aws_secret_access_key") {
      found.keys.secret_key = value;
    } else if (name == "aws_session_token") {
      found.keys.session_token = value;
    }
  }
  if (found.keys.access_key.empty() && found.keys.secret_key.empty()) {
    if (asked) {
      return Invalid("'", path, "' has no keys for AWS_PROFILE=", profile);
    }
    return std::optional<Fetched>();
  }
  WEIR_RETURN_IF_ERROR(
      CheckKeys(found.keys, absl::StrCat("'", path, "', [", profile, "]")));
  return std::optional<Fetched>(std::move(found));
}

CredentialSource::Source CredentialSource::FromContainer() const {
  const std::string whole = Variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
  const std::string path = Variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
  if (whole.empty() && path.empty()) {
    return std::optional<Fetched>();
  }
  HttpRequest request;
  WEIR_RETURN_IF_ERROR(SetUrl(
      path.empty() ? whole : absl::StrCat("http://", kContainerHost, path),
      &request));
  std::string token = Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
  const std::string file = Variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
  if (!file.empty()) {
    WEIR_ASSIGN_OR_RETURN(token, options_.files->ReadAll(file));
  }
  if (!token.empty()) {
    request.headers.emplace_back(
        "authorization", std::string(absl::StripAsciiWhitespace(token)));
  }
  WEIR_ASSIGN_OR_RETURN(Fetched found,
                        FromJson(request, "the container's agent"));
  return std::optional<Fetched>(std::move(found));
}

CredentialSource::Source CredentialSource::FromMachine(bool had_keys) const {
  if (absl::EqualsIgnoreCase(Variable("AWS_EC2_METADATA_DISABLED"), "true")) {
    return std::optional<Fetched>();
  }
  const std::string endpoint = Variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
  HttpRequest request;
  WEIR_RETURN_IF_ERROR(SetUrl(
      endpoint.empty() ? absl::StrCat("http://", kMachineHost) : endpoint,
      &request));
  // Where there is no such service nobody may answer at all.
  request.connect_seconds = kMachineConnectSeconds;
  HttpRequest session = request;
  session.method = "PUT";
  session.path = "/latest/api/token";
  session.headers = {{"x-aws-ec2-metadata-token-ttl-seconds", "21600"}};
  const absl::StatusOr<HttpResponse> token = options_.http->Do(session);
  if (!token.ok() || token->status != 200) {
    // No source before this one has keys. So those that have ended were its
    // own, and it is there.
    const bool known = had_keys || !endpoint.empty();
    if (known && !token.ok()) {
      return Annotate(token.status(), kMachineName);
    }
    if (known && IsPassingAnswer(token->status)) {
      return Refusal(kMachineName, token->status);
    }
    return std::optional<Fetched>();  // no such service: not a cloud's machine
  }
  request.path = kMachinePath;
  request.headers = {{"x-aws-ec2-metadata-token", token->body}};
  WEIR_ASSIGN_OR_RETURN(const HttpResponse role, options_.http->Do(request));
  if (IsPassingAnswer(role.status)) {
    return Refusal(kMachineName, role.status);
  }
  if (role.status != 200 || role.body.empty()) {
    return std::optional<Fetched>();  // a machine without a role
  }
  request.path = absl::StrCat(
      kMachinePath,
      absl::StripAsciiWhitespace(role.body.substr(0, role.body.find('\n'))));
  WEIR_ASSIGN_OR_RETURN(Fetched found, FromJson(request, kMachineName));
  return std::optional<Fetched>(std::move(found));
}

absl::StatusOr<CredentialSource::Fetched> CredentialSource::FromJson(
    const HttpRequest& request, const std::string& who) const {
  WEIR_ASSIGN_OR_RETURN(const HttpResponse response,
                        options_.http->Do(request));
  const auto json = nlohmann::json::parse(response.body, nullptr, false);
  if (response.status != 200 || !json.is_object()) {
    return Refusal(absl::StrCat(who, " at ", request.host), response.status);
  }
  const auto text = [&json](const char* name) {
    return json.contains(name) && json[name].is_string()
               ? json[name].get<std::string>()
               : std::string();
  };
  Fetched found;
  found.keys = {text("AccessKeyId"), text("SecretAccessKey"), text("Token")};
  found.ends_wall_ns = ParseTime(text("Expiration"));
  WEIR_RETURN_IF_ERROR(
      CheckKeys(found.keys, absl::StrCat(who, " at ", request.host)));
  return found;
}

}  // namespace weir
