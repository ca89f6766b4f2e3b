"""A refund agent. It has no key, no real name and no network: it asks for operations, and the proxy decides."""
import json, re, sys, urllib.error, urllib.request

PROXY = "https://security-proxy.silo.internal/v1/operations/"
ABOVE = sys.argv[1]  # who decides where this agent may not

def operate(name, **parameters):
    # Done once for each message of the guest, also if this program is killed and another one begins anew.
    head = {"content-type": "application/json", "idempotency-key": f"{name}-{asked}"}
    request = urllib.request.Request(PROXY + name, json.dumps(parameters).encode(), head)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)

def say(**line):
    print(json.dumps(line), flush=True)

def handle(text):
    wanted = re.search(r"refund (\d+) for order (\w+)", text)
    if not wanted:
        return say(reply="Please write: refund AMOUNT for order NUMBER.")
    amount, order = int(wanted[1]), wanted[2]
    status, answer = operate("refund", order=order, amount=amount)
    if status in (403, 409):
        say(escalate=ABOVE, reason=f"refund {amount} for order {order}: {answer['error']}")
    elif answer.get("changed") == 1:
        operate("send_email", template="confirmation", order=order, amount=amount)
        say(reply=f"{amount} for order {order} are refunded; a mail says so.")
    else:
        say(reply=f"Order {order} is none of yours, or cannot be reached: {answer.get('error', 'not found')}.")

asked = 0
for line in map(json.loads, sys.stdin):
    said = line.get("conversation") or [line["message"]] if "refused" not in line else []
    guest = [one["text"] for one in said if one["from"] == "guest"]
    asked += len(guest)
    for text in guest[-1:]:
        handle(text)
