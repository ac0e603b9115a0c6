#include "proto/admin/admin_server.h"

#include <openssl/crypto.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/identity.h"
#include "common/base/status.h"
#include "common/io/sha256.h"

namespace weir {
namespace {

// A week: then the link is to be opened anew.
constexpr int kCookieSeconds = 7 * 24 * 3600;

constexpr char kTokenParam[] = "token";

HttpCodec::Response Plain(int status, absl::string_view text) {
  return {.status = status, .body = absl::StrCat(text, "\n")};
}

int CodeOfHttp(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kOutOfRange:
      return 400;
    case absl::StatusCode::kNotFound:
      return 404;
    case absl::StatusCode::kResourceExhausted:
      return 429;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kFailedPrecondition:
      return 503;
    default:
      return 500;
  }
}

// The value of a cookie in the field of that name.
absl::string_view CookieOf(absl::string_view field, absl::string_view name) {
  for (absl::string_view pair : absl::StrSplit(field, ';')) {
    pair = absl::StripAsciiWhitespace(pair);
    if (absl::ConsumePrefix(&pair, name) && absl::ConsumePrefix(&pair, "=")) {
      return pair;
    }
  }
  return "";
}

// Whether a request's Host names this host by a name that nobody else can have
// point here.
bool NamesLoopback(absl::string_view host) {
  const size_t colon = host.rfind(':');
  if (colon != absl::string_view::npos && !absl::EndsWith(host, "]")) {
    host = host.substr(0, colon);
  }
  return absl::EqualsIgnoreCase(host, "localhost") || host == "[::1]" ||
         host == "127.0.0.1";
}

// The query without the token.
std::string WithoutToken(absl::string_view query) {
  std::vector<absl::string_view> kept;
  for (const absl::string_view part :
       absl::StrSplit(query, '&', absl::SkipEmpty())) {
    if (!absl::StartsWith(part, absl::StrCat(kTokenParam, "="))) {
      kept.push_back(part);
    }
  }
  return kept.empty() ? "" : absl::StrCat("?", absl::StrJoin(kept, "&"));
}

}  // namespace

std::string AdminServer::Request::Param(const std::string& name) const {
  const auto param = params.find(name);
  return param == params.end() ? "" : param->second;
}

// A browser keeps cookies by host and not by port, so each job's has a name of
// its own, which says nothing of the token.
AdminServer::AdminServer(Options options)
    : options_(std::move(options)),
      cookie_name_(
          absl::StrCat("weir_", Sha256Hex(options_.token).substr(0, 8))),
      codec_([this](const HttpCodec::Request& request) {
        return Route(request);
      }) {}

absl::StatusOr<std::unique_ptr<AdminServer>> AdminServer::Start(
    Options options) {
  std::unique_ptr<AdminServer> server(new AdminServer(std::move(options)));
  HttpListener::Options listener;
  listener.address = server->options_.address;
  listener.port = server->options_.port;
  listener.clock = server->options_.clock;
  listener.answer = [codec = &server->codec_](absl::string_view head) {
    return codec->Answer(head);
  };
  WEIR_ASSIGN_OR_RETURN(server->listener_,
                        HttpListener::Open(std::move(listener)));
  // Only now: Check asks listener_.
  WEIR_RETURN_IF_ERROR(server->listener_->Start());
  return server;
}

void AdminServer::Handle(const std::string& path, Access access,
                         Handler handler) {
  MutexLock lock(&mutex_);
  pages_[path] = {access, std::move(handler)};
}

void AdminServer::AddMetrics(std::function<void(MetricPage*)> add) {
  MutexLock lock(&mutex_);
  metrics_.push_back(std::move(add));
}

void AdminServer::SetReady(std::function<absl::Status()> ready) {
  MutexLock lock(&mutex_);
  ready_ = std::move(ready);
}

// Keeps I3: what is running holds the lock.
void AdminServer::Reset() {
  MutexLock lock(&mutex_);
  pages_.clear();
  metrics_.clear();
  ready_ = [] { return absl::UnavailableError("the task is ending"); };
}

std::string AdminServer::address() const {
  std::string host = options_.address;
  if (host == "0.0.0.0" || host == "::") {
    host = HostName();
  }
  return absl::StrContains(host, ':') ? absl::StrCat("[", host, "]:", port())
                                      : absl::StrCat(host, ":", port());
}

HttpCodec::Response AdminServer::Route(const HttpCodec::Request& request) {
  if (request.path == "/healthz") {
    return Plain(200, "ok");
  }
  MutexLock lock(&mutex_);
  if (request.path == "/readyz") {
    const absl::Status ready =
        ready_ == nullptr ? absl::UnavailableError("the task is starting")
                          : ready_();
    return ready.ok() ? Plain(200, "ok") : Plain(503, ready.message());
  }
  const bool is_metrics = request.path == "/metrics";
  const auto page = pages_.find(request.path);
  if (!is_metrics && page == pages_.end()) {
    return Plain(404, "no such page");
  }
  const bool is_open =
      is_metrics ? options_.metrics_open : page->second.access == Access::kOpen;
  if (!is_open) {
    if (auto instead = Check(request); instead.has_value()) {
      return *std::move(instead);
    }
  }
  if (!is_metrics) {
    return Ask(page->second.handler, request);
  }
  MetricPage metrics;
  AddTaskMetrics(options_.task, &metrics);
  for (const auto& add : metrics_) {
    add(&metrics);
  }
  AddProcessMetrics(&metrics);
  return {.content_type = MetricPage::kContentType, .body = metrics.Text()};
}

HttpCodec::Response AdminServer::Ask(const Handler& handler,
                                     const HttpCodec::Request& request) {
  absl::StatusOr<Answer> answer =
      handler({.path = request.path, .params = request.params});
  if (!answer.ok()) {
    return Plain(CodeOfHttp(answer.status().code()), answer.status().message());
  }
  return {.content_type = std::move(answer->content_type),
          .body = std::move(answer->body)};
}

// Keeps I2: the length of a token is known, and its digits are compared all.
bool AdminServer::IsToken(absl::string_view shown) const {
  const std::string& token = options_.token;
  return !token.empty() && shown.size() == token.size() &&
         CRYPTO_memcmp(shown.data(), token.data(), token.size()) == 0;
}

// Keeps I1.
std::optional<HttpCodec::Response> AdminServer::Check(
    const HttpCodec::Request& request) const {
  if (options_.token.empty()) {
    if (options_.insecure && listener_->is_loopback() &&
        NamesLoopback(request.host)) {
      return std::nullopt;
    }
    return Plain(403,
                 "nobody can prove to this task who he is, so this page is "
                 "closed: give the task WEIR_ADMIN_SECRET_FILE, or for an "
                 "insecure job open http://localhost on its own host");
  }
  const auto param = request.params.find(kTokenParam);
  if (param != request.params.end() && IsToken(param->second)) {
    HttpCodec::Response answer =
        Plain(303, "see the same page without the token");
    answer.headers = {
        // Relative, so that a proxy may put the pages below a prefix.
        {"Location", "./" + request.path.substr(request.path.rfind('/') + 1) +
                         WithoutToken(request.query)},
        {"Set-Cookie", absl::StrCat(cookie_name_, "=", options_.token,
                                    "; Path=/; Max-Age=", kCookieSeconds,
                                    "; HttpOnly; SameSite=Lax")}};
    return answer;
  }
  absl::string_view bearer = request.authorization;
  if ((absl::ConsumePrefix(&bearer, "Bearer ") && IsToken(bearer)) ||
      IsToken(CookieOf(request.cookie, cookie_name_))) {
    return std::nullopt;
  }
  HttpCodec::Response answer =
      Plain(401, "this page wants the link that `weir page` prints");
  answer.headers = {{"WWW-Authenticate", "Bearer"}};
  return answer;
}

}  // namespace weir
