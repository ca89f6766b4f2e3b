// The page: its surfaces, its connection, and who is told of what comes in.

import { Activity } from "./js/activity.js";
import { Agents } from "./js/agents.js";
import { announce } from "./js/announce.js";
import { Attachments } from "./js/attachments.js";
import { request, Refused } from "./js/api.js";
import { CaseSheet } from "./js/case.js";
import { showChanges } from "./js/changes.js";
import { ContextSheet } from "./js/context.js";
import { byId, el } from "./js/dom.js";
import { draftOf, keepDraft } from "./js/drafts.js";
import { Fleet } from "./js/fleet.js";
import { listenKeys } from "./js/keyboard.js";
import { fitsMessage } from "./js/outbox.js";
import { Memory } from "./js/memory.js";
import { Pilot } from "./js/pilot.js";
import { PlanSheet } from "./js/plan.js";
import { Queue } from "./js/queue.js";
import { Review } from "./js/review.js";
import { Sessions } from "./js/sessions.js";
import { Settings } from "./js/settings.js";
import { Setup } from "./js/setup.js";
import { shown } from "./js/shown.js";
import { Connection } from "./js/socket.js";
import { Stream } from "./js/stream.js";
import { Work } from "./js/work.js";

const SURFACES = ["stream", "review", "activity", "work", "agents", "memory", "settings"];
const STARTERS = ["What can you do here?", "Look around and tell me what this is", "Run the tests"];
const SESSION = "writ.session";
/** Lines of the message box before it scrolls. */
const MAX_ROWS = 8;

const connection = new Connection({ open: opened, frame: received, state: connected, unknown, reset: () => stream.clear() });
const review = new Review(connection, reviewed, {
  nameOf: (session) => sessions.name(session),
  open: (session) => {
    change(session);
    location.hash = "#/stream";
  },
});
const stream = new Stream(connection, {
  isOpen: (ask) => review.isOpen(ask),
  named: (session, text) => sessions.named(session, text),
  retry: (session, text) => {
    keepDraft(session, text);
    change(session);
  },
  ended: () => {
    sessions.soon();
    contextSheet.ended();
    planSheet.look();
    memory.look();
    if (document.body.dataset.surface === "activity") activity.grown();
  },
});
const sessions = new Sessions(change, () => {
  byId("changes-button").hidden = !sessions.row(connection.session)?.project;
  review.renamed();
});
const contextSheet = new ContextSheet(() => connection.session);
const planSheet = new PlanSheet(() => connection.session, (items) => sessions.leaveOut(items.map((item) => item.session)));
const activity = new Activity(() => connection.session);
const fleet = new Fleet(connection, fleetChanged);
const sheet = new CaseSheet(fleet);
const agents = new Agents(fleet, openCase);
const queue = new Queue(fleet, openCase);
const work = new Work();
const pilot = new Pilot(connection, () => sessions.folders());
const memory = new Memory(() => reviewed());
const settings = new Settings();
const setup = new Setup(() => {
  stream.linked();
  message.focus();
});

// --- Surfaces ---

function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const surface = SURFACES.includes(path) ? path : "stream";
  const moved = document.body.dataset.surface !== surface;
  document.body.dataset.surface = surface;
  for (const link of document.querySelectorAll("[data-surface-link]")) {
    if (link.dataset.surfaceLink === surface) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const name of SURFACES) byId(name).dataset.current = String(name === surface);
  title();
  looked();
  const ask = surface === "review" ? new URLSearchParams(query).get("ask") : null;
  if (ask) review.show(ask);
  if (surface === "activity" && connection.open) showActivity(new URLSearchParams(query));
  const code = surface === "review" ? new URLSearchParams(query).get("enrol") : null;
  if (code) {
    // It is good once; it stays in no history.
    history.replaceState(null, "", "#/review");
    review.code(code);
  }
  return moved ? surface : null;
}

function showActivity(query) {
  const [from, to] = [query.get("from"), query.get("to")].map((text) => Number.parseInt(text, 10));
  if (Number.isInteger(from) && Number.isInteger(to)) activity.showRange(from, to);
  else activity.shown();
}

/** Whether cases are in view: they are read more often then. */
function looked() {
  const surface = document.body.dataset.surface;
  work.look(surface === "work");
  pilot.look(surface === "work");
  if (surface === "settings" && connection.open) settings.show();
  if (surface === "memory" && connection.open) memory.show();
  fleet.look(["agents", "review"].includes(surface) || byId("case").open, surface === "agents");
}

addEventListener("hashchange", () => {
  const surface = route();
  if (surface) byId(`${surface}-title`).focus({ preventScroll: true });
});

addEventListener("keydown", (event) => {
  const surface = SURFACES[Number(event.key) - 1];
  const there = surface && document.querySelector(`[data-surface-link=${surface}]`).closest("[hidden]") === null;
  if (event.altKey && !event.ctrlKey && !event.metaKey && there) {
    event.preventDefault();
    location.hash = `#/${surface}`;
  }
});

function title() {
  const count = waiting() > 0 ? `(${waiting()}) ` : "";
  document.title = `${count}Writ`;
}

/** The number of questions, cases and memories that wait for a person. */
const waiting = () => review.count + fleet.waiting + memory.waiting;

function counted() {
  const badge = byId("review-count");
  badge.hidden = waiting() === 0;
  badge.replaceChildren(String(waiting()), el("span", { className: "visually-hidden" }, " waiting"));
  title();
}

function openCase(id) {
  sheet.open(id);
  looked();
}

byId("case").addEventListener("close", looked);

function fleetChanged() {
  agents.show();
  queue.show();
  sheet.show();
  counted();
}

function reviewed() {
  counted();
  document.body.dataset.asks = String(review.inView);
  stream.refreshAsks();
}

// --- Connection ---

/** The last frame that was kept when the session was joined. */
let end = 0;

function opened(hello) {
  end = hello.seq ?? 0;
  try {
    sessionStorage.setItem(SESSION, hello.session);
    localStorage.setItem(SESSION, hello.session);
  } catch {
    // Without storage the newest session is joined next time.
  }
  stream.opened(hello);
  takeUpDraft(hello.session);
  sessions.joined(hello.session);
  review.refresh();
  review.refreshKeys();
  setup.look();
  memory.look();
  planSheet.look();
  fleet.begin();
  looked();
  if (document.body.dataset.surface === "activity") route();
}

function received(frame) {
  // What is history is not asked again: the server lists what is still open.
  const old = frame.seq > 0 && frame.seq <= end;
  if (frame.type === "approval_request" && !old) review.asked(frame);
  if (frame.type === "approval_resolved" && !old) review.resolved(frame);
  if (frame.type === "work") {
    if (document.body.dataset.surface === "work" && !old) work.refresh();
    if (!old) planSheet.look();
    stream.frame({ seq: frame.seq, type: "status", text: `${frame.title}: ${frame.text}` });
    return;
  }
  if (frame.type === "error" && review.refused(frame)) return;
  stream.frame(frame);
}

const STATES = { connecting: "Connecting", open: "Connected", lost: "Disconnected", locked: "Not linked" };
let countdown = null;

function connected(state, next) {
  const before = document.body.dataset.link;
  document.body.dataset.link = state;
  for (const link of document.querySelectorAll(".link")) {
    link.dataset.state = state;
    link.querySelector(".link-text").textContent = STATES[state];
  }
  byId("locked").hidden = state !== "locked";
  clearInterval(countdown);
  byId("banner").hidden = state !== "lost";
  if (state === "lost") {
    review.disconnected();
    tellNext(next);
    countdown = setInterval(() => tellNext(next), 1000);
    if (before === "open") announce("Disconnected from Writ");
  }
  if (state === "open" && before === "connecting" && document.body.dataset.lost === "true") announce("Connected again");
  document.body.dataset.lost = String(state === "lost" || (state === "connecting" && document.body.dataset.lost === "true"));
  stream.linked();
}

function tellNext(next) {
  const seconds = Math.max(0, Math.ceil((next - Date.now()) / 1000));
  const again = seconds > 0 ? `next try in ${seconds} s` : "trying";
  byId("banner-text").textContent = `Disconnected: ${again}. What you write is sent when Writ is back.`;
}

/** Whether the server is there and does not know us. */
async function unknown() {
  try {
    await request("/api/v1/state");
    return false;
  } catch (error) {
    return error instanceof Refused && (error.status === 401 || error.status === 403);
  }
}

function change(session) {
  if (session === connection.session && connection.open) return;
  stream.choose(session);
  review.dismiss();
  connection.join(session);
  if (session !== null) takeUpDraft(session);
  location.hash = "#/stream";
  byId("message").focus();
}

byId("banner-retry").addEventListener("click", () => connection.retry());
byId("locked-retry").addEventListener("click", () => connection.retry());

// --- Composer ---

const message = byId("message");

const HINT = byId("composer-hint").textContent;

const attachments = new Attachments(() => connection.session, () => composed());

/** The conversation that the text in the box belongs to. */
let drafting = null;

/** What was written in this conversation stands in the box again; what is being written there is left alone. */
function takeUpDraft(session) {
  if (drafting === session) return;
  // Text from before anything was joined belongs to what is joined first.
  if (drafting !== null || message.value === "") message.value = draftOf(session);
  drafting = session;
  attachments.show();
}

/** Text that is only about attachments: models are asked something about a file. */
const ABOUT_FILES = "Look at this.";

function composed() {
  if (drafting) keepDraft(drafting, message.value);
  if (byId("composer").dataset.long === "true") {
    byId("composer").dataset.long = "false";
    byId("composer-hint").textContent = HINT;
  }
  byId("send").disabled = (message.value.trim() === "" && attachments.count === 0) || !attachments.ready;
  const lines = message.value.split("\n").length;
  if (!CSS.supports("field-sizing", "content")) message.rows = Math.min(lines, MAX_ROWS);
}

function say(said) {
  if ((said.trim() === "" && attachments.count === 0) || !attachments.ready) return;
  const { text, quoted } = attachments.joined(said.trim() === "" ? ABOUT_FILES : said.trim());
  if (!fitsMessage(text, quoted)) {
    byId("composer-hint").textContent = "This is too long for one message: put it into a file, and name the file.";
    byId("composer").dataset.long = "true";
    return;
  }
  review.dismiss();
  setup.dismiss();
  stream.say(text, quoted);
  message.value = "";
  attachments.clear();
  composed();
}

message.addEventListener("input", composed);
message.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  say(message.value);
});
byId("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  say(message.value);
  message.focus();
});
byId("starters").append(...STARTERS.map((text) => el("li", {}, el("button", { type: "button", className: "chip", onclick: () => say(text) }, text))));

// --- Dialogs ---

for (const button of document.querySelectorAll("[data-close]")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}
for (const dialog of document.querySelectorAll("dialog")) {
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
}

byId("changes-button").addEventListener("click", () => showChanges(connection.session, (ask) => {
  byId("reader").close();
  location.hash = `#/review?ask=${encodeURIComponent(ask)}`;
}));

listenKeys({
  create: () => sessions.create(),
  search: () => sessions.search(),
  rename: () => sessions.edit(connection.session),
  plan: () => byId("plan-button").hidden || planSheet.open(),
  stop: () => stream.stop(),
});

// --- Begin ---

/** The session of this tab, else the one that was last in view. */
function last() {
  try {
    return sessionStorage.getItem(SESSION) ?? localStorage.getItem(SESSION);
  } catch {
    return null;
  }
}

if ("serviceWorker" in navigator && isSecureContext) {
  navigator.serviceWorker.register("sw.js").catch(() => {
    // Without it the page works, but not offline.
  });
}
route();
reviewed();
stream.choose(last());
connection.join(last());
