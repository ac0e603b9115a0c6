"""Generates C++ from .proto files with the system protoc."""

def weir_proto_library(name, src, deps = [], imports = [], grpc = False, visibility = None):
    """One cc_library for one .proto file.

    Args:
      name: the library's name.
      src: the .proto file, in package //proto.
      deps: weir_proto_library targets whose headers the generated code needs.
      imports: .proto files that `src` imports, directly or not.
      grpc: also generate the gRPC service classes.
      visibility: passed to the library.
    """
    stem = src[:-len(".proto")]
    outs = [stem + ".pb.h", stem + ".pb.cc"]
    command = "protoc -Iproto --cpp_out=$(GENDIR)/proto"
    if grpc:
        outs += [stem + ".grpc.pb.h", stem + ".grpc.pb.cc"]
        command += (" --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin" +
                    " --grpc_out=$(GENDIR)/proto")
    native.genrule(
        name = name + "_gen",
        srcs = [src] + imports,
        outs = outs,
        cmd = command + " $(location %s)" % src,
    )
    native.cc_library(
        name = name,
        srcs = [out for out in outs if out.endswith(".cc")],
        hdrs = [out for out in outs if out.endswith(".h")],
        # Generated files include each other by bare name.
        includes = ["."],
        copts = ["-Wno-unused-parameter"],
        visibility = visibility,
        deps = deps + [
            "//third_party:grpc" if grpc else "//third_party:protobuf",
        ],
    )
