# Reads all that its keys give it, keeps every byte, and looks for more. Prints «ready» when it has, and ends with its input.
import json, os, socket, ssl, sys
NAME = "security-proxy.silo.internal"
context = ssl.create_default_context()
kept = []

def ask(method, path, body=None, more=""):
    text = json.dumps(body if body is not None else {})
    head = f"{method} {path} HTTP/1.1\r\nhost: {NAME}\r\n{more}connection: close\r\ncontent-length: {len(text)}\r\n\r\n"
    with socket.create_connection((NAME, 443), 10) as plain, context.wrap_socket(plain, server_hostname=NAME) as out:
        out.sendall((head + text).encode())
        answer = b""
        while block := out.recv(65536):
            answer += block
    kept.append(answer)
    return int(answer[9:12]), answer.partition(b"\r\n\r\n")[2]

done = [ask("GET", "/v1/operations")[0]]
for operation in ("customer", "notes", "orders"):
    status, text = ask("POST", f"/v1/operations/{operation}")
    done.append(status)
    kept.append(json.loads(text))
# What is refused, not understood or not there must not say more either.
more = [
    ask("POST", "/v1/operations/customer", {"customer_token": "cust_tk_other"}),
    ask("POST", "/v1/operations/refund", {"order": "' OR 1=1 --", "amount": 1}),
    ask("POST", "/v1/operations/refund", {"order": "{{customer.name}}", "amount": 501}),
    ask("POST", "/v1/operations/refund", {"order": ["A"], "amount": "many"}),
    ask("POST", "/v1/operations/notes", {"limit": 1e9}),
    ask("POST", "/v1/operations/customers"),
    ask("POST", "/v1/cases", {"customer": "x", "case": "y"}),
    ask("GET", "/../proxy/router.token"),
    ask("POST", "/v1/operations/customer", {}, "writ-task-key: eA\r\nx-debug: 1\r\n"),
]
done += [status for status, _ in more]
with open("/tmp/seen", "wb") as file:
    file.write(b"".join(part for part in kept if isinstance(part, bytes)))
child = os.fork()
if child == 0:
    sys.stdin.read()
    os._exit(0)
print("ready", *done, flush=True)
os.waitpid(child, 0)
for part in kept:
    print(part)
