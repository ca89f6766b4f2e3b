"""An agent: performs operations at the security proxy, and escalates what is asked of it."""
import json
import socket
import sys
import urllib.error
import urllib.request

NAME = sys.argv[1]


def say(line):
    print(json.dumps(line), flush=True)


def perform(operation, parameters):
    address = "https://security-proxy.silo.internal/v1/operations/" + operation
    body = json.dumps(parameters).encode()
    request = urllib.request.Request(address, data=body, headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def ask(address):
    request = urllib.request.Request(address, data=b"{}", headers={"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def connect(path):
    try:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(path)
        return "open"
    except OSError as refused:
        return type(refused).__name__


def reach(host, port):
    try:
        socket.create_connection((host, port), 60).close()
        return "open"
    except OSError as refused:
        return type(refused).__name__


def fetch(address, host):
    request = urllib.request.Request(address, headers={"host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code
    except urllib.error.URLError as refused:
        return type(refused.reason).__name__


def hear(text):
    word, _, rest = text.partition(" ")
    if word == "refund":
        status = perform("refund", {"order": "A-1", "amount": int(rest)})
        say({"reply": "%s refund %s: %d" % (NAME, rest, status)})
    elif word == "escalate":
        target, _, reason = rest.partition(" ")
        say({"escalate": target, "reason": reason})
    elif word == "ask":
        say({"reply": "%s asks %s: %d" % (NAME, rest, ask(rest))})
    elif word == "connect":
        say({"reply": "%s connects to %s: %s" % (NAME, rest, connect(rest))})
    elif word == "reach":
        host, _, port = rest.partition(" ")
        say({"reply": "%s reaches %s: %s" % (NAME, rest, reach(host, int(port)))})
    elif word == "fetch":
        address, _, host = rest.partition(" as ")
        say({"reply": "%s fetches %s: %s" % (NAME, rest, fetch(address, host))})
    elif word == "spell":
        # Letter by letter: what the agent itself has read, whatever is put back on the way to the guest.
        say({"reply": "%s spells: %s" % (NAME, "-".join(rest))})
    else:
        say({"reply": "%s says: %s" % (NAME, text)})


for line in sys.stdin:
    heard = json.loads(line)
    if "case" in heard:
        said = heard["conversation"]
        say({"reply": "%s has %d messages because %s" % (NAME, len(said), heard["reason"])})
        if len(said) == 1:
            hear(said[0]["text"])
    elif "message" in heard:
        hear(heard["message"]["text"])
    elif "refused" in heard:
        say({"reply": "%s is refused: %s" % (NAME, heard["refused"])})
