"""An agent: answers lines, and escalates what is asked of it."""
import json
import sys


def say(line):
    print(json.dumps(line), flush=True)


def hear(text):
    word, _, rest = text.partition(" ")
    if word == "escalate":
        target, _, reason = rest.partition(" ")
        say({"escalate": target, "reason": reason} if reason else {"escalate": target})
    elif word == "crash":
        sys.exit(3)
    elif word == "done":
        say({"done": True})
    elif word == "silence":
        pass
    elif word == "chatter":
        for _ in range(2001):
            say({"reply": "."})
    elif word == "nonsense":
        print("{", flush=True)
    else:
        say({"reply": "%s says: %s" % (sys.argv[1], text)})


for line in sys.stdin:
    heard = json.loads(line)
    if "case" in heard:
        said = heard["conversation"]
        say({"reply": "%s has %d messages because %s" % (sys.argv[1], len(said), heard["reason"])})
        if len(said) == 1:
            hear(said[0]["text"])
    elif "message" in heard:
        hear(heard["message"]["text"])
    elif "refused" in heard:
        say({"reply": "refused: " + heard["refused"]})
