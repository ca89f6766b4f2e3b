"""A plugin: greets with the word of its settings, and with the file beside it."""

import json
import os
import sys


def answer(request):
    method = request["method"]
    if method == "initialize":
        return {
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "greeter", "version": "0.2.0"},
        }
    if method == "tools/list":
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        return {
            "tools": [
                {"name": "greet", "description": "Greets a person.", "inputSchema": schema},
                {"name": "extra", "description": "Stands in no manifest.", "inputSchema": schema},
            ]
        }
    if method == "tools/call":
        with open("closing.txt") as file:
            closing = file.read().strip()
        text = "{}, {}. {}".format(settings["word"], request["params"]["arguments"]["name"], closing)
        return {"content": [{"type": "text", "text": text}]}
    return {}


settings = json.loads(os.environ["WRIT_PLUGIN_CONFIG"])
if settings.get("fails"):
    print("these settings cannot be used", file=sys.stderr)
    sys.exit(3)
for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        reply = {"jsonrpc": "2.0", "id": request["id"], "result": answer(request)}
        print(json.dumps(reply), flush=True)
