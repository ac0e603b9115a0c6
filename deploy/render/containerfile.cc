#include "deploy/render/containerfile.h"

#include "absl/strings/str_cat.h"

namespace weir {

std::string Containerfile(const RenderPlan& plan) {
  const std::string user = absl::StrCat(kContainerUser, ":", kContainerUser);
  return absl::StrCat(
      "# The image of the workers of ", plan.name,
      ". In the folder of the program:\n"
      "#   cp .../dist/weir-*.whl .    # from ./weir wheel\n"
      "#   podman build -t ",
      plan.options.image,
      " -f THIS_FILE .\n"
      "# The wheel holds the command `weir` as well as the package.\n"
      "FROM docker.io/library/python:3.11-slim-bookworm\n"
      "# What else the program imports belongs into requirements.txt, which "
      "may be missing.\n"
      "COPY weir-",
      plan.options.version,
      "-*.whl requirements.tx[t] /tmp/\n"
      "RUN pip install --no-cache-dir /tmp/weir-*.whl \\\n"
      " && if [ -f /tmp/requirements.txt ]; then \\\n"
      "      pip install --no-cache-dir -r /tmp/requirements.txt; fi \\\n"
      " && rm -f /tmp/weir-*.whl /tmp/requirements.txt \\\n"
      " && groupadd --gid ",
      kContainerUser,
      " weir \\\n"
      " && useradd --uid ",
      kContainerUser, " --gid ", kContainerUser,
      " --no-create-home weir \\\n"
      " && install -d -o weir -g weir /run/weir\n"
      "WORKDIR /app\n"
      "COPY . .\n"
      "ENV PYTHONUNBUFFERED=1\n"
      "USER ",
      user,
      "\n"
      "ENTRYPOINT [\"weir\"]\n");
}

}  // namespace weir
