"""One of several processes that answer the same asks: connects, says so, and approves what it is told to, in order."""

import json
import socket
import sys

control = socket.socket(socket.AF_UNIX)
control.connect(sys.argv[1])
frames = control.makefile("r", encoding="utf-8")
print("ready", flush=True)
for ask in sys.stdin.read().split():
    answer = {"type": "approval_response", "ask_id": ask, "decision": "approve"}
    control.sendall(json.dumps(answer).encode() + b"\n")
    for line in frames:
        frame = json.loads(line)
        if frame["seq"] == 0 and frame["type"] == "approval_resolved" and frame["ask_id"] == ask:
            print(frame["state"])
            break
        if frame["seq"] == 0 and frame["type"] == "error":
            print(frame["code"])
            break
