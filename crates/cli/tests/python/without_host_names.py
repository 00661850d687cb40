"""Runs a program that may not set a host name, as in user namespaces whose powers a security module takes away."""

import ctypes
import os
import struct
import sys

SETHOSTNAME = {"x86_64": 170, "aarch64": 161}[os.uname().machine]
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, FILTER = 38, 22, 2

program = [(LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, SETHOSTNAME), (RETURN, 0, 0, REFUSE), (RETURN, 0, 0, ALLOW)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program), ctypes.addressof(code)))
libc = ctypes.CDLL(None, use_errno=True)
for call in ((PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), (PR_SET_SECCOMP, FILTER, ctypes.addressof(header), 0, 0)):
    if libc.prctl(*(ctypes.c_ulong(word) for word in call)) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
os.execvp(sys.argv[1], sys.argv[1:])
