# Ways from an agent to a Unix socket that lies in its folder. Prints a line for each that works, and «done» at the end.
import asyncio, multiprocessing, os, socket, subprocess
unix, stream, datagram, raw, packet = socket.AF_UNIX, socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_SEQPACKET
server, letters, pipe = "/work/server.sock", "/work/letters.sock", "/work/pipe"

def no(name, attempt):
    try:
        found = attempt()
    except (OSError, subprocess.SubprocessError):
        return
    print("OPEN", name, found, flush=True)

assert {os.path.basename(path) for path in (server, letters, pipe)} <= set(os.listdir("/work")), "they are in sight"
for kind in (stream, datagram, raw, packet):
    for flags in (0, socket.SOCK_NONBLOCK):
        no(f"socket {kind} {flags}", lambda: socket.socket(unix, kind | flags))
for kind in (datagram, raw):
    no(f"pair {kind}", lambda: socket.socketpair(unix, kind))
    no(f"pair {kind} with flags", lambda: socket.socketpair(unix, kind | socket.SOCK_NONBLOCK))
for kind in (stream, packet):
    one, other = socket.socketpair(unix, kind)
    no(f"turn {kind}", lambda: one.connect(server))
    other.close()
    no(f"turn a half {kind}", lambda: one.connect(server))
    no(f"turn to letters {kind}", lambda: one.connect(letters))
one, other = socket.socketpair(unix, stream)
no("address", lambda: one.sendto(b"x", letters))
no("open", lambda: open(server, "r+b"))
no("pipe", lambda: os.write(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK), b"x"))
no("curl", lambda: subprocess.run(["curl", "-sS", "-m", "5", "--unix-socket", server, "http://x/"], check=True, stderr=subprocess.DEVNULL))

# What programs need works: pairs, processes and servers of their own.
one, other = socket.socketpair()
one.send(b"between")
assert other.recv(16) == b"between"
with multiprocessing.Pool(2) as pool:
    assert pool.map(abs, [-1, -2]) == [1, 2]

async def answer(reader, writer):
    writer.write(await reader.readline())
    await writer.drain()
    writer.close()

async def main():
    async with await asyncio.start_server(answer, "127.0.0.1", 8080):
        reader, writer = await asyncio.open_connection("127.0.0.1", 8080)
        writer.write(b"hello\n")
        assert await reader.read() == b"hello\n"
    echo = await asyncio.create_subprocess_exec("echo", "hi", stdout=asyncio.subprocess.PIPE)
    assert (await echo.communicate())[0] == b"hi\n"

asyncio.run(main())
print("done")
