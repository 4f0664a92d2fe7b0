#!/usr/bin/env python3
"""Registers and local memory of the GPU kernels, as ptxas gave them out, against a list.

  check_registers.py FOLDER LIST NVCC            compare the objects (*.cu.o) of FOLDER with LIST; exit 1 if they differ
  check_registers.py FOLDER LIST NVCC --write    write LIST

A register more can halve the blocks on a multiprocessor, and local memory is spilled registers or arrays that are not in
registers: both are slow and give no error. A line of LIST is registers, bytes of local memory, source, kernel; a kernel
that is not in it may use no local memory. Reads the machine code (ELF of EM_CUDA, not compressed) inside the objects. LIST
begins with the compiler that made it: with another, only local memory is compared.
"""
import pathlib
import re
import struct
import subprocess
import sys

EM_CUDA = 190
FRAME_SIZE, REGISTERS = 0x11, 0x2F  # attributes of .nv.info; payload: symbol, number


def images(data):
    """The machine code in an object."""
    at = 1
    while (at := data.find(b'\x7fELF', at)) >= 0:
        if struct.unpack_from('<H', data, at + 18)[0] == EM_CUDA:
            yield data[at:]
        at += 4


def kernels(elf):
    """Kernel -> (registers, bytes of local memory)."""
    (table,) = struct.unpack_from('<Q', elf, 40)
    size, count, names_at = struct.unpack_from('<HHH', elf, 58)
    sections = [struct.unpack_from('<IIQQQQIIQQ', elf, table + i * size) for i in range(count)]

    def text(offset):
        return elf[offset:elf.index(b'\0', offset)].decode()

    names = [text(sections[names_at][4] + s[0]) for s in sections]
    symbols = sections[names.index('.symtab')]
    strings = sections[symbols[6]][4]
    info = sections[names.index('.nv.info')]
    found = {}
    at, end = info[4], info[4] + info[5]
    while at < end:
        form, attribute, length = struct.unpack_from('<BBH', elf, at)
        if form == 4:
            if attribute in (FRAME_SIZE, REGISTERS):
                symbol, number = struct.unpack_from('<II', elf, at + 4)
                (name,) = struct.unpack_from('<I', elf, symbols[4] + symbol * 24)
                found.setdefault(text(strings + name), {})[attribute] = number
            at += 4 + length
        else:
            at += 4
    return {name: (f.get(REGISTERS, 0), f.get(FRAME_SIZE, 0)) for name, f in found.items()}


def readable(mangled):
    """Without the name of the file's own namespace, which changes with the file and its folder."""
    while found := re.search(r'(\d+)_GLOBAL__N__', mangled):
        mangled = mangled[:found.start()] + mangled[found.end(1) + int(found[1]):]
    return mangled


def main():
    folder, golden = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    objects = sorted(folder.glob('*.cu.o'))
    found = {}
    for path in objects:
        for elf in images(path.read_bytes()):
            for name, use in kernels(elf).items():
                if not name.startswith('$'):  # a function that a kernel calls: counted with it
                    found[path.name.removesuffix('.cu.o') + ' ' + readable(name)] = use
    if not found:
        sys.exit(f'check_registers: there is no machine code in {folder}/*.cu.o')
    nvcc = subprocess.run([sys.argv[3], '--version'], capture_output=True, text=True).stdout
    compiler = 'nvcc ' + (re.search(r'V([\d.]+)', nvcc) or ['', 'unknown'])[1]
    if '--write' in sys.argv:
        golden.write_text(f'{compiler}\n' + ''.join(f'{r:3} {local:3} {name}\n'
                                                   for name, (r, local) in sorted(found.items())))
    first, *lines = golden.read_text().splitlines()
    want = {line[8:]: (int(line[:3]), int(line[4:7])) for line in lines}
    faults = []
    for name, (_, local) in sorted(found.items()):
        allowed = want.get(name, (0, 0))[1]
        if local > allowed:
            faults.append(f'{name}: {local} bytes of local memory, {allowed} in {golden}')
    for name in sorted(want.keys() | found.keys()) if first == compiler else []:
        got, listed = (of[name][0] if name in of else 'no' for of in (found, want))
        if got != listed:
            faults.append(f'{name}: {got} registers, {listed} in {golden}')
    print('\n'.join(faults[:40]))
    beside = '' if first == compiler else f'; registers were not compared: {golden} is of {first}, this is {compiler}'
    print(f'{len(found)} kernels, {len(faults)} faults{beside}. If a change of registers is meant: --write')
    sys.exit(1 if faults else 0)


main()
