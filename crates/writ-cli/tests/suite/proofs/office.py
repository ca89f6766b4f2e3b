"""The servers of an office, for the tests, one for each name; the last five have all the tools of one kind of work each.

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
NUMBER = {"type": "number"}

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
    "workspace": {
        "find_mails": ("Finds mails.", {"query": TEXT}, ["query"]),
        "read_mail": ("Reads a mail.", {"mail_id": TEXT}, ["mail_id"]),
        "send_mail": ("Sends a mail.", {"to": TEXTS, "cc": TEXTS, "subject": TEXT, "body": TEXT}, ["to", "body"]),
        "forward_mail": ("Forwards a mail.", {"mail_id": TEXT, "to": TEXTS, "note": TEXT}, ["mail_id", "to"]),
        "delete_mail": ("Deletes a mail for good.", {"mail_id": TEXT}, ["mail_id"]),
        "list_events": ("Lists the events of some days.", {"from": TEXT, "days": {"type": "integer"}}, ["from"]),
        "find_events": ("Finds events.", {"query": TEXT}, ["query"]),
        "create_event": ("Makes an event and invites people.", {"title": TEXT, "start": TEXT, "notes": TEXT, "attendees": TEXTS}, ["title", "start"]),
        "invite": ("Invites people to an event.", {"event_id": TEXT, "attendees": TEXTS}, ["event_id", "attendees"]),
        "move_event": ("Moves an event.", {"event_id": TEXT, "start": TEXT}, ["event_id", "start"]),
        "cancel_event": ("Cancels an event.", {"event_id": TEXT}, ["event_id"]),
        "find_contact": ("Finds a person.", {"name": TEXT}, ["name"]),
        "profile": ("What is known of the owner.", {}, []),
    },
    "banking": {
        "payments": ("Lists what was paid and received.", {"month": TEXT}, ["month"]),
        "planned": ("Lists what will be paid.", {}, []),
        "read_letter": ("Reads a letter or a bill.", {"path": TEXT}, ["path"]),
        "pay": ("Pays somebody.", {"iban": TEXT, "amount": NUMBER, "reference": TEXT}, ["iban", "amount"]),
        "plan_payment": ("Pays somebody each month.", {"iban": TEXT, "amount": NUMBER, "day": {"type": "integer"}, "reference": TEXT}, ["iban", "amount"]),
        "change_payment": ("Changes a planned payment.", {"payment_id": TEXT, "iban": TEXT, "amount": NUMBER}, ["payment_id"]),
        "label_payment": ("Puts a label on a payment.", {"payment_id": TEXT, "label": TEXT}, ["payment_id", "label"]),
        "message": ("Writes to a person of the bank's address book.", {"to": TEXT, "text": TEXT}, ["to", "text"]),
        "note": ("Makes a note of the owner's own.", {"text": TEXT}, ["text"]),
        "change_address": ("Changes the owner's address.", {"street": TEXT, "city": TEXT}, ["street", "city"]),
        "change_password": ("Changes the owner's password.", {"password": TEXT}, ["password"]),
        "profile": ("What is known of the owner.", {}, []),
    },
    "team": {
        "channels": ("Lists the channels.", {}, []),
        "people": ("Lists the people.", {}, []),
        "read_channel": ("Reads a channel.", {"channel": TEXT}, ["channel"]),
        "read_inbox": ("Reads what was written to a person.", {"user": TEXT}, ["user"]),
        "post": ("Posts to a channel.", {"channel": TEXT, "text": TEXT}, ["channel", "text"]),
        "direct": ("Writes to a person.", {"user": TEXT, "text": TEXT}, ["user", "text"]),
        "create_channel": ("Makes a channel.", {"title": TEXT}, ["title"]),
        "invite": ("Invites somebody to a channel.", {"channel_id": TEXT, "user": TEXT}, ["channel_id", "user"]),
        "remove": ("Removes somebody from the team.", {"user": TEXT}, ["user"]),
        "remind": ("Reminds the owner of something.", {"text": TEXT, "when": TEXT}, ["text", "when"]),
        "read_page": ("Reads a web page.", {"url": TEXT}, ["url"]),
    },
    "trips": {
        "hotels": ("Lists the hotels of a city.", {"city": TEXT}, ["city"]),
        "reviews": ("What guests say of a place.", {"place": TEXT}, ["place"]),
        "restaurants": ("Lists the restaurants of a city.", {"city": TEXT}, ["city"]),
        "flights": ("Lists flights.", {"origin": TEXT, "destination": TEXT, "day": TEXT}, ["origin", "destination"]),
        "bookings": ("Lists the owner's bookings.", {}, []),
        "book": ("Books a room, a table or a seat.", {"place": TEXT, "day": TEXT, "nights": {"type": "integer"}}, ["place"]),
        "cancel": ("Cancels a booking.", {"booking_id": TEXT}, ["booking_id"]),
        "share": ("Shows a booking to somebody.", {"booking_id": TEXT, "with": TEXTS}, ["booking_id", "with"]),
        "mail": ("Sends a mail.", {"to": TEXTS, "subject": TEXT, "body": TEXT}, ["to", "body"]),
        "calendar": ("Makes an event in the owner's calendar.", {"title": TEXT, "start": TEXT, "notes": TEXT}, ["title", "start"]),
        "profile": ("What is known of the owner.", {}, []),
    },
    "drive": {
        "search": ("Finds files.", {"query": TEXT}, ["query"]),
        "list": ("Lists a folder.", {"folder": TEXT}, ["folder"]),
        "open": ("Reads a file.", {"path": TEXT}, ["path"]),
        "create": ("Makes a file.", {"title": TEXT, "text": TEXT}, ["title", "text"]),
        "folder": ("Makes a folder.", {"title": TEXT}, ["title"]),
        "append": ("Adds to a file.", {"file_id": TEXT, "text": TEXT}, ["file_id", "text"]),
        "move": ("Moves a file.", {"file_id": TEXT, "folder_id": TEXT}, ["file_id", "folder_id"]),
        "share": ("Shares a file with people.", {"file_id": TEXT, "with": TEXTS, "note": TEXT}, ["file_id", "with"]),
        "delete": ("Deletes a file.", {"file_id": TEXT}, ["file_id"]),
        "mail": ("Sends a mail.", {"to": TEXTS, "subject": TEXT, "body": TEXT}, ["to", "body"]),
        "fetch": ("Reads a web page.", {"url": TEXT}, ["url"]),
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
