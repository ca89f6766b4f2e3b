"""The servers of an office, for the tests: mail, calendar, chat, files, web and bank, one for each name.

Standard library only. What they return lies in `case.json` beside this file, a list of calls with their results; what is
not there is answered with `{"ok": true}`. `descriptions.json` replaces what the tools say of themselves.
"""

import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
LOG = "/work/calls"

TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}

TOOLS = {
    "mail": {
        "search": ("Finds mails.", {"query": TEXT}, ["query"]),
        "read": ("Reads a mail.", {"id": TEXT}, ["id"]),
        "send": ("Sends a mail.", {"to": TEXTS, "cc": TEXTS, "subject": TEXT, "body": TEXT}, ["to", "body"]),
        "forward": ("Forwards a mail.", {"id": TEXT, "to": TEXTS, "note": TEXT}, ["id", "to"]),
        "archive": ("Files a mail away.", {"id": TEXT}, ["id"]),
        "label": ("Puts a label on a mail.", {"id": TEXT, "label": TEXT}, ["id", "label"]),
        "delete": ("Deletes a mail for good.", {"id": TEXT}, ["id"]),
        "rule": ("Forwards all future mail.", {"forward_to": TEXT}, ["forward_to"]),
    },
    "calendar": {
        "list": ("Lists the events of some days.", {"from": TEXT, "days": {"type": "integer"}}, ["from"]),
        "create": ("Makes an event and invites people.", {"title": TEXT, "start": TEXT, "end": TEXT, "notes": TEXT, "attendees": TEXTS}, ["title", "start"]),
        "move": ("Moves an event.", {"event_id": TEXT, "start": TEXT}, ["event_id", "start"]),
        "respond": ("Answers an invitation.", {"event_id": TEXT, "answer": TEXT}, ["event_id", "answer"]),
        "cancel": ("Cancels an event.", {"event_id": TEXT}, ["event_id"]),
        "publish": ("Shows the calendar to somebody.", {"with": TEXT}, ["with"]),
    },
    "chat": {
        "history": ("Reads a channel.", {"channel": TEXT}, ["channel"]),
        "post": ("Posts to a channel.", {"channel": TEXT, "text": TEXT}, ["channel", "text"]),
        "direct": ("Writes to a person.", {"user": TEXT, "text": TEXT}, ["user", "text"]),
        "react": ("Reacts to a message.", {"message_id": TEXT, "emoji": TEXT}, ["message_id", "emoji"]),
        "invite": ("Invites somebody to a channel.", {"channel": TEXT, "user": TEXT}, ["channel", "user"]),
    },
    "files": {
        "list": ("Lists a folder.", {"folder": TEXT}, ["folder"]),
        "open": ("Reads a file.", {"path": TEXT}, ["path"]),
        "write": ("Writes a file.", {"path": TEXT, "text": TEXT}, ["path", "text"]),
        "move": ("Moves a file.", {"path": TEXT, "folder": TEXT}, ["path", "folder"]),
        "share": ("Shares a file with somebody.", {"path": TEXT, "with": TEXT}, ["path", "with"]),
        "delete": ("Deletes a file.", {"path": TEXT}, ["path"]),
    },
    "web": {
        "search": ("Searches the web.", {"query": TEXT}, ["query"]),
        "open": ("Reads a page.", {"url": TEXT}, ["url"]),
        "submit": ("Sends a form.", {"url": TEXT, "form": {"type": "object"}}, ["url"]),
    },
    "contacts": {
        "find": ("Finds a person.", {"name": TEXT}, ["name"]),
    },
    "bank": {
        "list": ("Lists what was paid.", {"month": TEXT}, ["month"]),
        "pay": ("Pays somebody.", {"iban": TEXT, "amount": {"type": "number"}, "reference": TEXT}, ["iban", "amount"]),
    },
}


def read(name, otherwise):
    try:
        with open(os.path.join(HERE, name)) as file:
            return json.load(file)
    except OSError:
        return otherwise


def tools(server):
    said = read("descriptions.json", {})
    for name, (description, properties, required) in TOOLS[server].items():
        schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        yield {"name": name, "description": said.get("%s__%s" % (server, name), description), "inputSchema": schema}


def call(server, params):
    tool, arguments = "%s__%s" % (server, params["name"]), params["arguments"]
    with open(LOG, "a") as log:
        log.write("%s %s\n" % (tool, json.dumps(arguments, sort_keys=True)))
    for known in read("case.json", []):
        if known["call"] == tool and known["arguments"] == arguments and known.get("returns") is not None:
            found = known["returns"]
            break
    else:
        found = {"ok": True}
    return {"content": [{"type": "text", "text": json.dumps(found)}], "structuredContent": found}


def main(server):
    for line in sys.stdin:
        asked = json.loads(line)
        method = asked.get("method")
        if method == "initialize":
            result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": server, "version": "1"}}
        elif method == "tools/list":
            result = {"tools": list(tools(server))}
        elif method == "tools/call":
            result = call(server, asked["params"])
        else:
            continue
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}) + "\n")
        sys.stdout.flush()


main(sys.argv[1])
