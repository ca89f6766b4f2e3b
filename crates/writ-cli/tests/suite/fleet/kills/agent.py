"""An agent that refunds what a guest asks for, each request once under its number, also where another agent had to stop."""
import http.client
import json
import sys
import time
import urllib.error
import urllib.request

PROXY = "https://security-proxy.silo.internal/v1/operations/refund"
ABOVE = sys.argv[1]  # who decides where this agent may not


def say(**line):
    print(json.dumps(line), flush=True)


def ask(number, order, amount):
    head = {"content-type": "application/json", "idempotency-key": "request-" + number}
    body = json.dumps({"order": order, "amount": int(amount)}).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(PROXY, body, head), timeout=30) as answer:
            return "done" if json.load(answer)["changed"] == 1 else "nothing"
    except urllib.error.HTTPError as refusal:
        return {403: "forbidden", 409: "unknown"}.get(refusal.code)
    except (OSError, ValueError, http.client.HTTPException):
        return None


def handle(text):
    _, number, order, amount = text.split()
    while (outcome := ask(number, order, amount)) is None:
        time.sleep(0.05)  # the proxy or the engine is being started again
    if outcome == "forbidden":
        say(escalate=ABOVE, reason=f"request {number}: {amount} is above the limit")
        return False
    say(reply=f"{number} {outcome}")
    return True


for line in map(json.loads, sys.stdin):
    if "refused" in line:
        continue
    said = line.get("conversation") or [line["message"]]
    answered = {one["text"].split()[0] for one in said if one["from"].startswith("agent ")}
    asked = [one["text"] for one in said if one["from"] == "guest"]
    for text in asked:
        if text.split()[1] not in answered and not handle(text):
            break
