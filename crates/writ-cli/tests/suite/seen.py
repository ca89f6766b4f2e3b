# Reads all that its keys give it, asks models about it, keeps every byte that it sends and gets, and looks for more. Prints
# «ready» when it has, and ends with its input. Its argument is a word that it says to models alone.
import json, os, socket, ssl, sys
PROXY, ROUTER = "security-proxy.silo.internal", "llm-router.silo.internal"
context = ssl.create_default_context()
word, kept = sys.argv[1], []

def ask(method, path, body=None, more="", name=PROXY):
    text = (body if isinstance(body, str) else json.dumps(body if body is not None else {})).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: {name}\r\n{more}connection: close\r\ncontent-length: {len(text)}\r\n\r\n"
    plain = socket.create_connection((name, 443 if name == PROXY else 80), 10)
    with context.wrap_socket(plain, server_hostname=name) if name == PROXY else plain as out:
        kept.append(head.encode() + text)
        out.sendall(head.encode() + text)
        answer = b""
        while block := out.recv(65536):
            answer += block
    kept.append(answer)
    return int(answer[9:12]), answer.partition(b"\r\n\r\n")[2]

def ask_model(method, path, body=None, more=""):
    return ask(method, path, body, more, ROUTER)[0]

done, read = [ask("GET", "/v1/operations")[0]], []
for operation in ("customer", "notes", "orders"):
    status, text = ask("POST", f"/v1/operations/{operation}")
    done.append(status)
    kept.append(json.loads(text))
    read.append(text.decode())
# What it has read goes to models, in both formats, whole and streamed.
said = [{"role": "user", "content": f"{word}: " + " ".join(read)}]
done += [
    ask_model("POST", "/v1/chat/completions", {"model": "default", "messages": said}),
    ask_model("POST", "/v1/chat/completions", {"model": "default", "messages": said, "stream": True}),
    ask_model("POST", "/v1/messages", {"model": "default", "max_tokens": 90, "system": word, "messages": said}),
    ask_model("GET", "/v1/models"),
]
# What is refused, not understood or not there must not say more either.
more = [
    ask("POST", "/v1/operations/customer", {"customer_token": "cust_tk_other"})[0],
    ask("POST", "/v1/operations/refund", {"order": "' OR 1=1 --", "amount": 1})[0],
    ask("POST", "/v1/operations/refund", {"order": "{{customer.name}}", "amount": 501})[0],
    ask("POST", "/v1/operations/refund", {"order": ["A"], "amount": "many"})[0],
    ask("POST", "/v1/operations/notes", {"limit": 1e9})[0],
    ask("POST", "/v1/operations/customers")[0],
    ask("POST", "/v1/cases", {"customer": "x", "case": "y"})[0],
    ask("GET", "/../proxy/router.token")[0],
    ask("POST", "/v1/operations/customer", {}, "writ-task-key: eA\r\nx-debug: 1\r\n")[0],
    ask_model("POST", "/v1/chat/completions", {"model": "nope", "messages": said}),
    ask_model("POST", "/v1/chat/completions", {"model": "default", "messages": [{"role": "user", "content": "fail"}]}),
    ask_model("POST", "/v1/messages", "{\"model\": "),
    ask_model("GET", "/v1/sessions"),
    ask_model("POST", "/v1/chat/completions", {"model": "default", "messages": said}, "writ-base-key: eA\r\n"),
]
with open("/tmp/seen", "wb") as file:
    file.write(b"".join(part for part in kept if isinstance(part, bytes)))
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print("ready", *done, *more, flush=True)
os.waitpid(child, 0)
for part in kept:
    print(part)
