"""The file system of a guest: busybox, the drivers of its command channel, and `islands` with the libraries it loads.

Written as an uncompressed newc archive: the kernel would take longer to decompress it under emulation than QEMU takes
to load it.
"""

import os
import re
import stat
import subprocess
from collections.abc import Iterable

# In the order they are loaded in.
MODULES = ["virtio/virtio_ring.ko", "virtio/virtio.ko", "virtio/virtio_pci_modern_dev.ko",
           "virtio/virtio_pci_legacy_dev.ko", "virtio/virtio_pci.ko", "char/virtio_console.ko"]


class Archive:
    """A newc cpio archive in memory (Documentation/driver-api/early-userspace/buffer-format.rst of the kernel)."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.names: set[str] = set()

    def add(self, name: str, mode: int, data: bytes = b"") -> None:
        """One entry; its folders are added before it."""
        name = name.strip("/")
        if name in self.names:
            return
        if "/" in name:
            self.add(os.path.dirname(name), stat.S_IFDIR | 0o755)
        self.names.add(name)
        path = name.encode() + b"\0"
        fields = [len(self.names), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(path), 0]
        header = b"070701" + b"".join(b"%08X" % field for field in fields) + path
        self.parts += [header, bytes(-len(header) % 4), data, bytes(-len(data) % 4)]

    def file(self, name: str, data: bytes, mode: int = 0o755) -> None:
        self.add(name, stat.S_IFREG | mode, data)

    def copy(self, source: str, name: str) -> None:
        with open(source, "rb") as file:
            self.file(name, file.read())

    def bytes(self) -> bytes:
        self.names.add("")
        trailer = b"070701" + b"%08X" * 13 % (0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 11, 0) + b"TRAILER!!!\0"
        return b"".join(self.parts) + trailer + bytes(-len(trailer) % 4)


def libraries(programs: Iterable[str]) -> dict[str, str]:
    """The shared libraries that these programs load, name -> path, the loader among them."""
    found: dict[str, str] = {}
    for program in programs:
        text = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
        assert "not found" not in text, f"{program}: {text}"
        for path in re.findall(r"(/\S+) \(0x", text):
            found[os.path.basename(path)] = path
    return found


def build(target: str, kernel: str, binaries: str, extra: Iterable[str] = ()) -> None:
    """Writes the archive; `kernel` is the folder of the unpacked kernel and busybox, `extra` more programs for /bin."""
    archive = Archive()
    here = os.path.dirname(os.path.abspath(__file__))
    archive.copy(os.path.join(here, "init"), "init")
    archive.copy(os.path.join(kernel, "busybox"), "bin/busybox")
    for module in MODULES:
        archive.copy(os.path.join(kernel, "modules", os.path.basename(module)), f"modules/{os.path.basename(module)}")
    archive.file("modules/order", "\n".join(map(os.path.basename, MODULES)).encode())
    workload = os.path.join(binaries, "..", "lib", "islands", "micro.so")
    programs = [os.path.join(binaries, name) for name in ("islands", "islandd")]
    for program in programs:
        archive.copy(program, f"islands/bin/{os.path.basename(program)}")
    archive.copy(workload, "islands/lib/islands/micro.so")
    for program in extra:
        archive.copy(program, f"bin/{os.path.basename(program)}")
    for name, path in libraries([*programs, workload]).items():
        archive.copy(path, f"lib64/{name}" if name.startswith("ld-linux") else f"lib/{name}")
    with open(target, "wb") as file:
        file.write(archive.bytes())
