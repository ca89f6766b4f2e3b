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

def post(url, body, patience=30):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=patience) as answer:
        return answer.read().decode()

def model(question, patience=30, **more):
    body = {"model": "anything", "messages": [{"role": "user", "content": question}], **more}
    answer = post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body, patience)
    return json.loads(answer)["choices"][0]["message"]["content"]

def show_pictures(name):
    """Asks in both formats, with what the router cannot serve, at the paths that some clients make of the base."""
    text = {"type": "text", "text": "the body of " + name}
    base = os.environ["ANTHROPIC_BASE_URL"]
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}
    read = {"type": "tool_result", "tool_use_id": "c1", "content": [picture]}
    call = {"type": "tool_use", "id": "c1", "name": "look", "input": {}}
    messages = [{"role": "user", "content": [text]}, {"role": "assistant", "content": [call]}, {"role": "user", "content": [read, picture]}]
    tools = [{"name": "look", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}]
    body = {"model": "m", "max_tokens": 100, "stream": True, "messages": messages, "tools": tools, "tool_choice": {"type": "any"}, "stop_sequences": ["x"]}
    streamed = post(base + "/messages", body)
    assert "message_stop" in streamed and "as the model of" in streamed, streamed
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    body = {"model": "m", "messages": [{"role": "user", "content": [text, part]}], "stop": ["x"], "response_format": {"type": "json_object"}}
    assert "as the model of" in post(base + "/chat/completions", body)

# The variables that a program in the sandbox has, and those of a coding agent.
KNOWN = set(
    "PATH HOME LANG LC_CTYPE TERM PYTHONDONTWRITEBYTECODE USER LOGNAME SHELL TMPDIR RUSTUP_HOME TZ PWD"
    " HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy"
    " OPENAI_BASE_URL OPENAI_API_BASE OPENAI_API_KEY ANTHROPIC_BASE_URL ANTHROPIC_API_KEY OWNER_HOME HOST_PORT".split())

KNOWN_BEGINS = ("GIT_", "CARGO_NET_", "CARGO_TERM_", "CARGO_HTTP_PROXY", "PIP_", "npm_config_")

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
        "loopback " + tries(lambda: socket.create_connection(("127.0.0.1", int(os.environ["HOST_PORT"])), 2)),
        "owner " + tries(lambda: os.listdir(os.environ["OWNER_HOME"])),
        "keys " + ",".join(sorted(name for name in os.environ if name not in KNOWN and not name.startswith(KNOWN_BEGINS))),
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
    if fault == "expensive":
        tries(lambda: model("the body of " + name, max_tokens=30000))
        # It claims that it is done all the same.
        return speak("All is done.\n<turn_status>complete</turn_status>")
    if fault == "waits":
        model("the body of " + name)
        time.sleep(7)
    if fault == "shows":
        show_pictures(name)
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
    rules = "yes" if "Sums are sums." in prompt else "no"
    words = "inside %s, outside %s; rules %s; %s.\n<turn_status>complete</turn_status>" % (inside, outside, rules, look_around())
    if fault == "mute":
        return None
    # Some agents send their words after the end of their turn.
    return words if fault == "shows" else speak(words)

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
        late = work(cwd, message["params"]["prompt"][0]["text"])
        say({"id": number, "result": {"stopReason": "end_turn"}})
        if late:
            speak(late)
