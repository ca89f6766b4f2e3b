// The ways of Node to a Unix socket that lies in the agent's folder, and what its own processes need of pairs.
const net = require("net"), http = require("http"), { spawn } = require("child_process"), { Worker } = require("worker_threads");
const outcome = (socket) => new Promise((done) => socket.on("connect", () => done("OPEN")).on("error", () => done("refused")));
const message = (from) => new Promise((done) => from.on("message", done));
(async () => {
  console.log(await outcome(net.connect("/work/server.sock")), await outcome(net.connect("\0abstract")));
  await new Promise((done) => net.createServer().on("error", done).listen("/tmp/own.sock", () => console.log("OPEN")));
  const child = spawn(process.execPath, ["-e", "process.send('child')"], { stdio: ["ignore", "inherit", "inherit", "ipc"] });
  console.log(await message(child), await message(new Worker("require('worker_threads').parentPort.postMessage('worker')", { eval: true })));
  const server = http.createServer((_, answer) => answer.end("served"));
  await new Promise((done) => server.listen(8080, "127.0.0.1", done));
  http.get("http://127.0.0.1:8080/", (answer) => answer.on("data", (text) => { console.log(String(text)); process.exit(0); }));
})();
