# A coding agent that speaks the Agent Client Protocol. Its argument names its faults, as "phase:function=fault" with commas between;
# it makes each at its first try, which is one whose prompt says nothing of an earlier one.
import json, os, re, socket, sys, time, urllib.request

FAULTS = dict(pair.split("=") for pair in sys.argv[1].split(",") if pair)
BODIES = {"add": "a + b", "sub": "a - b", "mul": "a * b"}
RIGHT = {"add": 5, "sub": -1, "mul": 6}

def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def hear():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)

def update(update):
    say({"method": "session/update", "params": {"sessionId": "s", "update": update}})

def speak(text):
    update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})

def ask(number, kind, path):
    call = {"toolCallId": "t%d" % number, "kind": kind, "title": "%s %s" % (kind, path), "locations": [{"path": path}]}
    update({"sessionUpdate": "tool_call", "status": "pending", **call})
    options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
    say({"id": number, "method": "session/request_permission", "params": {"sessionId": "s", "toolCall": call, "options": options}})
    answer = hear()
    update({"sessionUpdate": "tool_call_update", "toolCallId": "t%d" % number, "status": "completed"})
    return answer["result"]["outcome"]["optionId"]

def model(question, patience=30):
    body = json.dumps({"model": "anything", "messages": [{"role": "user", "content": question}]}).encode()
    request = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=patience) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]

def tries(action):
    try:
        action()
        return "yes"
    except OSError:
        return "no"

def look_around():
    def write(path):
        with open(path, "w") as file:
            file.write("x")
    reached = [
        "etc " + tries(lambda: write("/etc/writ-agent")),
        "network " + tries(lambda: socket.create_connection(("1.1.1.1", 80), 2)),
        "loopback " + tries(lambda: socket.create_connection(("127.0.0.1", 22), 2)),
        "owner " + tries(lambda: os.listdir(os.environ["OWNER_HOME"])),
        "keys " + ",".join(sorted(name for name in os.environ if name.startswith("WRIT") or "SECRET" in name)),
    ]
    return "; ".join(reached)

def work(cwd, prompt):
    name = re.search(r'^Task: "?(\w+)', prompt, re.M).group(1)
    phase = "tdd" if re.search(r"^# Tests for ", prompt, re.M) else "execute"
    fault = FAULTS.get("%s:%s" % (phase, name))
    if fault and "work has failed" in prompt:
        fault = None
    if fault == "dies":
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(7)
    if fault == "floods":
        while True:
            print("log " * 20)
    if fault == "hangs":
        time.sleep(3600)
    if fault == "lies":
        return speak("All is done.\n<turn_status>complete</turn_status>")
    if fault == "leaves":
        tries(lambda: model("never answered", 1))
    inside = ask(1, "edit", os.path.join(cwd, name + ".mjs"))
    outside = ask(2, "edit", "/etc/passwd")
    said = model("the body of " + name)
    if phase == "tdd":
        file, text = name + ".test.mjs", (
            "import test from 'node:test';\nimport assert from 'node:assert';\nimport { %s } from './%s.mjs';\n"
            "test('%s', () => assert.equal(%s(2, 3), %d));\n" % (name, name, name, name, RIGHT[name]))
    else:
        file, text = name + ".mjs", "// %s\nexport const %s = (a, b) => %s;\n" % (said, name, BODIES[name])
    with open(os.path.join(cwd, file), "w") as out:
        out.write(text)
    speak("inside %s, outside %s; %s.\n<turn_status>complete</turn_status>" % (inside, outside, look_around()))

print("[agent] starting", flush=True)
cwd = None
while True:
    message = hear()
    method, number = message.get("method"), message.get("id")
    if method == "initialize":
        say({"id": number, "result": {"protocolVersion": 1, "agentInfo": {"name": "scripted", "version": "1"}}})
    elif method == "session/new":
        cwd = message["params"]["cwd"]
        say({"id": number, "result": {"sessionId": "s"}})
    elif method == "session/prompt":
        work(cwd, message["params"]["prompt"][0]["text"])
        say({"id": number, "result": {"stopReason": "end_turn"}})
