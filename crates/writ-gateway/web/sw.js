// Keeps the page's own files for times without a server. It never touches what the server answers about
// conversations, approvals or the ledger: only the files listed here are kept, and only as a fallback.

const CACHE = "writ-shell-9";

const SHELL = [
  "/",
  "/style.css",
  "/app.js",
  "/js/activity.js",
  "/js/agents.js",
  "/js/work.js",
  "/js/announce.js",
  "/js/api.js",
  "/js/attachments.js",
  "/js/cadence.js",
  "/js/case.js",
  "/js/caseactions.js",
  "/js/changes.js",
  "/js/context.js",
  "/js/dom.js",
  "/js/drafts.js",
  "/js/fleet.js",
  "/js/foreign.js",
  "/js/format.js",
  "/js/groups.js",
  "/js/inforce.js",
  "/js/keyboard.js",
  "/js/ladder.js",
  "/js/highlight.js",
  "/js/markdown.js",
  "/js/memory.js",
  "/js/opencards.js",
  "/js/origins.js",
  "/js/outbox.js",
  "/js/passkey.js",
  "/js/pilot.js",
  "/js/pilotorders.js",
  "/js/pilotunit.js",
  "/js/plan.js",
  "/js/queue.js",
  "/js/review.js",
  "/js/rows.js",
  "/js/sessions.js",
  "/js/settings.js",
  "/js/setup.js",
  "/js/shown.js",
  "/js/socket.js",
  "/js/steps.js",
  "/js/stream.js",
  "/js/turn.js",
  "/js/undo.js",
  "/manifest.json",
  "/icons/icon.svg",
  "/icons/icon-192.png",
  "/icons/icon-512.png",
  "/icons/maskable-512.png",
  "/icons/touch-180.png",
];

/** The page's folder: a proxy may show it below a path of its own. */
const HERE = new URL("./", self.location).pathname;
const shellAt = (path) => HERE + path.slice(1);

self.addEventListener("install", (event) => {
  const kept = caches.open(CACHE).then((cache) => cache.addAll(SHELL.map((path) => new Request(shellAt(path), { cache: "reload" }))));
  event.waitUntil(kept.then(() => self.skipWaiting()));
});

self.addEventListener("activate", (event) => {
  const old = caches.keys().then((names) => Promise.all(names.filter((name) => name.startsWith("writ-shell-") && name !== CACHE).map((name) => caches.delete(name))));
  event.waitUntil(old.then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const url = new URL(event.request.url);
  const ours = url.origin === self.location.origin && url.search === "" && SHELL.some((path) => shellAt(path) === url.pathname);
  if (event.request.method === "GET" && ours) event.respondWith(fresh(event.request, url.pathname));
});

/** The server's file; the kept one where the server does not answer. */
async function fresh(request, path) {
  const cache = await caches.open(CACHE);
  try {
    const response = await fetch(request);
    if (response.ok && !response.redirected) await cache.put(path, response.clone());
    return response;
  } catch (error) {
    const kept = await cache.match(path);
    if (kept) return kept;
    throw error;
  }
}
