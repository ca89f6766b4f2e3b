// The page below a path of a reverse proxy, which takes that path off or leaves it.

import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { after, before, test } from "node:test";
import { connected, launch, reply, say } from "./lib/browser.mjs";
import { SCRIPT } from "./lib/script.mjs";
import { Writ } from "./lib/writ.mjs";

const BASE = "/writ";

let browser;

before(async () => {
  browser = await launch();
});
after(async () => {
  await browser?.close();
});

/** A proxy that shows a server below {@link BASE}, and notes what it was asked for elsewhere. */
class Proxy {
  outside = [];
  #server = http.createServer((request, response) => this.#pass(request, response));

  static async start(strips) {
    const proxy = new Proxy();
    proxy.strips = strips;
    proxy.#server.on("upgrade", (request, socket, head) => proxy.#upgrade(request, socket, head));
    proxy.#server.listen(0, "127.0.0.1");
    await once(proxy.#server, "listening");
    proxy.port = proxy.#server.address().port;
    proxy.url = `http://localhost:${proxy.port}`;
    return proxy;
  }

  serves(port) {
    this.target = port;
  }

  #path(request) {
    if (!request.url.startsWith(`${BASE}/`)) {
      this.outside.push(request.url);
      return null;
    }
    return this.strips ? request.url.slice(BASE.length) : request.url;
  }

  #pass(request, response) {
    const path = this.#path(request);
    if (path === null) return void response.writeHead(404).end();
    const options = { host: "127.0.0.1", port: this.target, path, method: request.method, headers: request.headers };
    const onward = http.request(options, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    onward.on("error", () => response.destroy());
    request.pipe(onward);
  }

  #upgrade(request, socket, head) {
    const path = this.#path(request);
    if (path === null) return void socket.destroy();
    const onward = net.connect(this.target, "127.0.0.1", () => {
      const lines = [`${request.method} ${path} HTTP/1.1`];
      for (let at = 0; at < request.rawHeaders.length; at += 2) lines.push(`${request.rawHeaders[at]}: ${request.rawHeaders[at + 1]}`);
      onward.write(`${lines.join("\r\n")}\r\n\r\n`);
      onward.write(head);
      onward.pipe(socket).pipe(onward);
    });
    for (const end of [onward, socket]) end.on("error", () => [onward, socket].forEach((one) => one.destroy()));
  }

  stop() {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}

for (const strips of [true, false]) {
  test(`the page works below a path that the proxy ${strips ? "takes off" : "leaves"}`, async () => {
    const proxy = await Proxy.start(strips);
    const settings = [`[server]`, `allowed_hosts = ["localhost:${proxy.port}"]`, strips ? "" : `base_path = "${BASE}"`];
    const writ = await Writ.start(SCRIPT, "", `${settings.join("\n")}\n`);
    const context = await browser.newContext();
    try {
      proxy.serves(new URL(writ.url).port);
      const page = await context.newPage();
      await page.goto(proxy.url + BASE + new URL(writ.link()).pathname);
      await connected(page);
      assert.equal(page.url(), `${proxy.url}${BASE}/`);
      await say(page, "Hello");
      await reply(page, /./).first().waitFor();
      await page.evaluate(() => navigator.serviceWorker.ready);
      const worker = await page.evaluate(async () => (await navigator.serviceWorker.getRegistration()).scope);
      assert.equal(worker, `${proxy.url}${BASE}/`);
      const devtools = await context.newCDPSession(page);
      assert.deepEqual((await devtools.send("Page.getAppManifest")).errors, []);
      for (const surface of ["review", "activity", "stream"]) {
        await page.locator(`[data-surface-link=${surface}]`).first().click();
        await page.locator(`#${surface}`).waitFor();
      }
      await page.reload();
      await connected(page);
      const kept = await page.evaluate(async () => {
        const all = await Promise.all((await caches.keys()).map(async (name) => (await (await caches.open(name)).keys()).map((request) => new URL(request.url).pathname)));
        return all.flat();
      });
      assert.ok(kept.length > 10 && kept.every((path) => path.startsWith(`${BASE}/`)), kept.join(" "));
      assert.deepEqual(proxy.outside.filter((path) => path !== "/favicon.ico"), []);
    } finally {
      await context.close();
      await writ.stop();
      proxy.stop();
    }
  });
}
