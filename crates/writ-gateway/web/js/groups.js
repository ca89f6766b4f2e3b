// What waits, in groups: what is alike, what is unusual about each, and one yes to those that nothing marks.

import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { plural } from "./format.js";
import { needs } from "./ladder.js";
import { badge, verdict } from "./review.js";
import { fits, plain, shown } from "./shown.js";

/** The asks that the groups in view were made for. */
let seen = "";
/** Counts the reads, so that an old answer does not overtake a new one. */
let reads = 0;

const approvals = (id) => `/api/v1/approvals/${encodeURIComponent(id)}`;

/** Shows the groups of what waits, if that is another set of asks than before. `done` is called when some were answered. */
export async function showGroups(ids, done) {
  const now = ids.join(" ");
  if (now === seen) return;
  seen = now;
  const read = ++reads;
  let groups = [];
  if (ids.length > 0) {
    try {
      ({ groups } = await request("/api/v1/approvals/review"));
    } catch {
      // Tried again with the next look at what waits.
      if (read === reads) seen = "";
      return;
    }
  }
  if (read !== reads) return;
  const asks = groups.flatMap((group) => group.asks);
  byId("groups").hidden = asks.length < 2 && asks.every((ask) => ask.anomalies.length === 0);
  byId("group-list").replaceChildren(...groups.map((group) => section(group, done)));
}

/** Whether an ask is among those that one yes may cover: nothing marks it, and alone it takes no more than a tap. */
const together = (ask) => ask.together === true && ask.anomalies.length === 0 && !ask.alone && needs(ask.risk).confirm !== "slide" && !needs(ask.risk).key;

function section(group, done) {
  const ready = group.asks.filter(together);
  const read = el("button", { type: "button", className: "secondary small", data: { together: String(ready.length) } }, `Read ${ready.length} and approve them together`);
  read.addEventListener("click", () => new Together(ready.map((ask) => ask.ask_id), done).open());
  return el("li", { className: "group" },
    el("h3", {}, `${group.likeness}: ${group.asks.length}`),
    el("ul", {}, group.asks.map(member)),
    ready.length > 1 ? read : null);
}

function member(ask) {
  return el("li", { className: "member", data: { ask: ask.ask_id } },
    el("p", {}, badge(ask.risk), ` ${ask.intent ?? ""}`),
    ask.anomalies.map((why) => el("p", { className: "unusual" }, el("strong", {}, "Unusual: "), why)),
    ask.alone ? el("p", { className: "note" }, `Answered separately: ${ask.alone}`) : null);
}

/** Why a card cannot be among them; `null`: it can. The list may be older than the card. */
async function unfit(card) {
  if (card.state !== "open") return "it is no longer open";
  const { confirm, key } = needs(card.risk);
  const once = card.choices.some((choice) => choice.decision === "approve" && (choice.scope ?? "once") === "once");
  if (key || confirm === "slide" || card.approvers > 1 || !once) return "it is answered separately";
  if ((await fits(card.shown, card.shown_hash)) === false) return "its text does not fit its hash";
  return plain(card.shown) ? null : "its text holds characters that could deceive";
}

/** One yes to cards that were shown in full: what comes or changes while it is open is not among them. */
class Together {
  #ids;
  #done;
  /** The cards, as they are shown. */
  #cards = [];
  /** Those whose end was in view. */
  #read = new Set();
  #running = false;
  #stopped = false;
  #watch = null;
  #dialog = byId("together");
  #body = byId("together-body");

  constructor(ids, done) {
    this.#ids = ids;
    this.#done = done;
  }

  async open() {
    this.#body.replaceChildren(el("p", { className: "note", role: "status" }, "Loading."));
    const closed = () => {
      this.#stopped = true;
      this.#watch?.disconnect();
    };
    this.#dialog.addEventListener("close", closed, { once: true });
    this.#dialog.showModal();
    const left = [];
    for (const id of this.#ids) {
      let card;
      try {
        card = await request(approvals(id));
      } catch (error) {
        left.push(`${id}: ${error.message}`);
        continue;
      }
      const why = await unfit(card);
      if (why === null) this.#cards.push(card);
      else left.push(`${card.intent}: ${why}`);
    }
    if (!this.#stopped) this.#show(left);
  }

  #show(left) {
    const count = this.#cards.length;
    const note = el("p", { className: "note", role: "status" });
    const yes = el("button", { type: "button", className: "primary", disabled: true, onclick: () => this.#approve() }, `Approve exactly these ${count}`);
    const tell = () => {
      yes.disabled = count === 0 || this.#read.size < count;
      note.textContent = count === 0 ? "None of them can be approved together." : `${this.#read.size} of ${count} were in view to their end.`;
    };
    this.#watch = new IntersectionObserver((changes) => {
      for (const change of changes) if (change.isIntersecting) this.#read.add(change.target.dataset.end);
      tell();
    }, { root: this.#body });
    const articles = this.#cards.map((card) => {
      const end = el("p", { className: "note", data: { end: card.ask_id } }, card.choices.find((choice) => choice.decision === "approve").consequence);
      this.#watch.observe(end);
      return el("article", { data: { ask: card.ask_id } }, badge(card.risk), el("h3", {}, card.intent), el("p", { className: "rationale" }, card.rationale), shown(card.shown), end);
    });
    this.#body.replaceChildren(...left.map((why) => el("p", { className: "problem" }, `Not among them. ${why}`)), ...articles, note, el("div", { className: "actions" }, yes));
    tell();
    this.#body.scrollTop = 0;
    this.#body.focus({ preventScroll: true });
  }

  /** Each by itself, one after the other; a refusal does not hold up the next, a lost connection does. */
  async #approve() {
    if (this.#running || this.#read.size < this.#cards.length) return;
    this.#running = true;
    this.#watch.disconnect();
    const list = el("ul", { className: "outcomes" });
    const note = el("p", { className: "note", role: "status" }, "Approved one after the other. Closing this ends it after the one that is being done.");
    this.#body.replaceChildren(note, list);
    let [good, lost] = [0, false];
    for (const card of this.#cards) {
      const said = this.#stopped || lost ? { ok: false, text: "Not approved: nothing was sent." } : await answer(card);
      lost = lost || said.lost === true;
      if (said.ok) good += 1;
      list.append(el("li", { className: "outcome", data: { ask: card.ask_id, ok: String(said.ok) } }, el("strong", {}, card.intent), el("p", {}, said.text)));
    }
    note.textContent = `${good} of ${plural(this.#cards.length, "question")} approved and done.`;
    this.#done();
  }
}

/** Approves one card if it still is the one that was shown. */
async function answer(card) {
  try {
    const now = await request(approvals(card.ask_id));
    if (now.prepared !== card.prepared || now.shown_hash !== card.shown_hash || now.shown !== card.shown || now.risk !== card.risk) {
      return { ok: false, text: "Not approved: it is not what was shown any more." };
    }
    const { state, reason, text, exit } = await request(approvals(card.ask_id), { method: "POST", body: { decision: "approve", shown_hash: card.shown_hash, reason: "approved together with others like it" } });
    const ok = exit === "done";
    return { ok, text: `${verdict(state, reason)}. ${text ?? ""}` };
  } catch (error) {
    // Without an answer nobody knows: it may have been done.
    const lost = error.status === 0;
    return { ok: false, lost, text: lost ? "No answer came: Activity shows if it is approved." : `Refused: ${error.message} ${error.hint ?? ""}` };
  }
}
