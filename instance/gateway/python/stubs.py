#!/usr/bin/env python3
"""Makes islands/_generated/client_pb2.py and client_pb2_grpc.py in a folder: stubs of proto/client.proto.

    stubs.py FOLDER
"""

import os
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
PROTO = os.path.normpath(os.path.join(HERE, "..", "..", "..", "proto"))
PACKAGE = "islands/_generated"
PLUGIN = "grpc_python_plugin"  # of Debian's protobuf-compiler-grpc


def generate(folder: str) -> None:
    """With grpcio-tools where they are, as when pip builds the package, otherwise with Debian's programs."""
    package = os.path.join(folder, PACKAGE)
    os.makedirs(package, exist_ok=True)
    # As if the file lay in the package: what is generated imports itself from there.
    arguments = [f"-I{PACKAGE}={PROTO}", f"--python_out={folder}", f"--grpc_python_out={folder}",
                 f"{PACKAGE}/client.proto"]
    try:
        import grpc_tools
        from grpc_tools import protoc
    except ImportError:
        plugin = shutil.which(PLUGIN)
        if plugin is None or shutil.which("protoc") is None:
            raise SystemExit("there is no grpcio-tools, nor protoc with grpc_python_plugin "
                             "(Debian: protobuf-compiler protobuf-compiler-grpc)") from None
        subprocess.run(["protoc", f"--plugin=protoc-gen-grpc_python={plugin}", *arguments], check=True)
    else:
        own = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
        if protoc.main(["protoc", f"-I{own}", *arguments]) != 0:
            raise SystemExit("the stubs could not be generated")
    with open(os.path.join(package, "__init__.py"), "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    generate(sys.argv[1])
