// A home of its own for a test, the built binary that serves it, and a scripted model.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import fs from "node:fs";
import net from "node:net";
import os from "node:os";
import path from "node:path";
import readline from "node:readline";

/** Longer than anything here may take, in milliseconds: a test that hangs fails instead. */
export const PATIENCE = 60_000;

const built = (...name) => path.join(process.env.CARGO_TARGET_DIR ?? path.join(import.meta.dirname, "../../target"), "debug", ...name);
const BINARY = process.env.WRIT_BINARY ?? built("writ");
const MODEL = process.env.WRIT_SCRIPTED_MODEL ?? built("examples", "scripted_model");

/** Below the ports that systems give to outgoing connections: one of those could take the port while an engine starts again. */
const PORTS = { first: 10_000, count: 20_000, apart: 97 };
/** Each file of tests is a process, and begins elsewhere than the one beside it. */
let candidate = (process.pid * PORTS.apart) % PORTS.count;

async function freePort() {
  for (let tries = 0; tries < PORTS.count; tries += 1) {
    const port = PORTS.first + candidate;
    candidate = (candidate + 1) % PORTS.count;
    const server = net.createServer();
    const isFree = await new Promise((resolve) => {
      server.once("error", () => resolve(false)).listen(port, "127.0.0.1", () => resolve(true));
    });
    if (!isFree) continue;
    server.close();
    await once(server, "close");
    return port;
  }
  throw new Error("no port is free");
}

/** Waits for a line that fits, and answers with what it found. */
function line(stream, pattern, child) {
  const said = [];
  const lines = readline.createInterface({ input: stream });
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`no line fits ${pattern}: ${said.join("\n")}`)), PATIENCE);
    lines.on("line", (text) => {
      said.push(text);
      const found = pattern.exec(said.join("\n"));
      if (!found) return;
      clearTimeout(timer);
      resolve(found);
    });
    child.once("exit", (code) => {
      clearTimeout(timer);
      reject(new Error(`ended with ${code}: ${said.join("\n")}`));
    });
  });
}

/** Ends a child; one that does not end in time is killed, which is a failure. */
async function end(child, signal) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = once(child, "exit");
  child.kill(signal);
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    child.kill("SIGKILL");
  }, PATIENCE);
  await exit;
  clearTimeout(timer);
  if (late) throw new Error(`${child.spawnfile} did not end at ${signal}`);
}

/**
 * Ends all of these in their order, each though one before it has failed: what goes on would hold the process of its tests, which
 * then never ends. Fails with what has failed.
 */
export async function ended(...all) {
  const failed = [];
  for (const one of all) {
    try {
      if (typeof one === "function") await one();
      else await (one?.stop ? one.stop() : one?.close());
    } catch (error) {
      failed.push(error);
    }
  }
  if (failed.length === 1) throw failed[0];
  if (failed.length > 1) throw new AggregateError(failed, failed.map(String).join("\n"));
}

export class Writ {
  #env;
  #engine = null;
  #model;
  #link = null;
  #others = [];
  root;
  url;

  /** The address of the scripted model. */
  base;

  /** Serves a home with this script, rules beside the shipped ones, and configuration; see the example `scripted_model` for the script's form. */
  static async start(script, rules = "", config = "", { model = true } = {}) {
    const writ = new Writ();
    writ.root = fs.mkdtempSync(path.join(os.tmpdir(), "writ-web-"));
    const file = path.join(writ.root, "script.json");
    fs.writeFileSync(file, JSON.stringify(script));
    writ.#model = spawn(MODEL, [file], { stdio: ["pipe", "pipe", "inherit"] });
    const [, base] = await line(writ.#model.stdout, /"base_url":"([^"]+)"/, writ.#model);
    writ.base = base;
    const port = await freePort();
    writ.url = `http://localhost:${port}`;
    writ.#env = {
      PATH: "/usr/local/bin:/usr/bin:/bin",
      HOME: writ.root,
      WRIT_HOME: path.join(writ.root, "home"),
      WRIT_SECRETS__BACKEND: "plain",
      WRIT_SERVER__PORT: String(port),
    };
    // Without it no model is configured: that of a first run.
    if (model) {
      Object.assign(writ.#env, {
        WRIT_MODELS__DEFAULT: "test/scripted",
        WRIT_PROVIDERS__TEST__KIND: "openai",
        WRIT_PROVIDERS__TEST__BASE_URL: base,
        WRIT_PROVIDERS__TEST__API_KEY: "env:SCRIPTED_KEY",
        SCRIPTED_KEY: "scripted",
      });
    }
    // Scripts have answers for the turns that a test begins itself.
    if (!config.includes("continue_after_answer")) writ.#env.WRIT_CONTINUE_AFTER_ANSWER = "false";
    try {
      writ.run("init", "--yes");
      fs.writeFileSync(path.join(writ.root, "home/policies/test.cedar"), rules);
      if (config !== "") fs.writeFileSync(path.join(writ.root, "home/config.toml"), config);
      await writ.serve();
    } catch (error) {
      await writ.stop();
      throw error;
    }
    return writ;
  }

  /** Starts the engine; it is ready when this is done. */
  async serve() {
    this.#engine = spawn(BINARY, ["start"], { env: this.#env, cwd: this.root, stdio: ["ignore", "ignore", "pipe"] });
    const [, link] = await line(this.#engine.stderr, /page: (\S+)[\s\S]*engine ready/, this.#engine);
    this.#link = link;
  }

  /** Starts another command that goes on, and waits for a line of it that fits. */
  async background(args, pattern) {
    const child = spawn(BINARY, args, { env: this.#env, cwd: this.root, stdio: ["ignore", "ignore", "pipe"] });
    this.#others.push(child);
    await line(child.stderr, pattern, child);
  }

  /** Ends the engine and waits for its end. */
  async halt() {
    await end(this.#engine, "SIGTERM");
  }

  /** A link to the page that was not used yet. */
  link() {
    const fresh = this.#link;
    this.#link = null;
    return fresh ?? /http:\S+/.exec(this.run("status", "--link"))[0];
  }

  /** Runs a command of this home and answers with what it printed. */
  run(...args) {
    const done = spawnSync(BINARY, args, { env: this.#env, cwd: this.root, encoding: "utf8", timeout: PATIENCE });
    if (done.status !== 0) throw new Error(`writ ${args.join(" ")}: ${done.status}\n${done.stdout}${done.stderr}`);
    return done.stdout + done.stderr;
  }

  /** Runs a command of this home that ends with this code, and answers with what it printed. */
  ends(code, ...args) {
    const done = spawnSync(BINARY, args, { env: this.#env, cwd: this.root, encoding: "utf8", timeout: PATIENCE });
    if (done.status !== code) throw new Error(`writ ${args.join(" ")}: ${done.status}\n${done.stdout}${done.stderr}`);
    return done.stdout + done.stderr;
  }

  /** Makes a folder with these files to work in. */
  project(name, files) {
    const folder = path.join(this.root, name);
    fs.mkdirSync(folder);
    for (const [file, text] of Object.entries(files)) fs.writeFileSync(path.join(folder, file), text);
    return folder;
  }

  /** Lets replies go on that were held back under this name. */
  release(name) {
    this.#model.stdin.write(`${name}\n`);
  }

  stop() {
    const others = this.#others.map((other) => () => end(other, "SIGTERM"));
    const engine = this.#engine ? [() => this.halt()] : [];
    return ended(...engine, ...others, () => end(this.#model, "SIGTERM"), () => fs.rmSync(this.root, { recursive: true, force: true }));
  }
}
