"""Empties the device code of all architectures but one in a copy of NCCL, so that it compresses to a few MB.

    prune_nccl.py LIBRARY TO ARCHITECTURE      such as libnccl.so.2 from the wheel nvidia-nccl-cu13, and 90

The library works as before on GPUs of this architecture, and on no other. The code lies in two sections of the file, as
containers of entries with a header each: kind (2: machine code), size and architecture.
"""

import struct
import sys
from pathlib import Path

CONTAINER, ENTRY_KIND = 0xBA55ED50, 2
SECTIONS = (".nv_fatbin", "__nv_relfatbin")


def sections(data):
    """Offset and size of every section of an ELF file, by name."""
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, table + number * size) for number in range(count)]
    first_name = headers[names][4]

    def name(header):
        begin = first_name + header[0]
        return data[begin : data.index(0, begin)].decode()

    return {name(header): (header[4], header[5]) for header in headers}


def prune(data, offset, size, architecture):
    """Overwrites the entries of other architectures with zeros; returns the number of bytes that are left."""
    left, end = 0, offset + size
    while offset < end:
        magic, _, header, container = struct.unpack_from("<IHHQ", data, offset)
        if magic != CONTAINER:
            offset += 8
            continue
        entry, offset = offset + header, offset + header + container
        while entry < offset:
            kind, _, header, content = struct.unpack_from("<HHIQ", data, entry)
            (found,) = struct.unpack_from("<I", data, entry + 28)
            if kind == ENTRY_KIND and found == architecture:
                left += content
            else:
                data[entry + header : entry + header + content] = bytes(content)
            entry += header + content
        offset = (offset + 7) & ~7
    return left


def main():
    library, to, architecture = sys.argv[1:]
    data = bytearray(Path(library).read_bytes())
    found = sections(data)
    left = sum(prune(data, *found[name], int(architecture)) for name in SECTIONS if name in found)
    if not left:
        sys.exit(f"{library} has no code for the architecture {architecture}")
    Path(to).write_bytes(data)


if __name__ == "__main__":
    main()
