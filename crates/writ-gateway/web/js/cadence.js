// The cadence of questions: how fast and how they are answered, and offers to be asked less or more.

import { announce } from "./announce.js";
import { address, request } from "./api.js";
import { byId, el } from "./dom.js";
import { plural } from "./format.js";

/** How long an approval that is to be taken back can be kept with one tap, in milliseconds. */
const WAY_BACK = 8_000;

/** What is in view, as it came. */
let seen = "";

/** Approvals that are taken back when their time is over, by their asks. */
const leaving = new Map();

// A person who leaves the page has not tapped: what was decided is done.
addEventListener("pagehide", () => {
  for (const [ask, timer] of leaving) {
    clearTimeout(timer);
    fetch(address(`/api/v1/approvals/${encodeURIComponent(ask)}`), { method: "DELETE", credentials: "same-origin", keepalive: true });
  }
  leaving.clear();
});

/** A time in the words of a person. */
const span = (ms) => (ms < 1000 ? "less than 1 s" : ms < 120_000 ? `${Math.round(ms / 1000)} s` : ms < 7_200_000 ? `${Math.round(ms / 60_000)} min` : `${Math.round(ms / 3_600_000)} h`);
const share = (part, whole) => (whole === 0 ? "0 %" : `${Math.round((100 * part) / whole)} %`);

/** Reads how questions were answered, and shows it. `done` is called when an offer was accepted. */
export async function showCadence(done) {
  let cadence;
  try {
    cadence = await request("/api/v1/approvals/cadence");
  } catch {
    return;
  }
  const now = JSON.stringify(cadence);
  if (now === seen) return;
  seen = now;
  const answered = cadence.approved + cadence.denied;
  byId("cadence").hidden = answered + cadence.expired === 0 && cadence.offers.length === 0;
  const facts = [
    `${plural(answered, "question")} answered in ${cadence.days} days`,
    cadence.median_ms === null ? null : `half of them within ${span(cadence.median_ms)}`,
    answered === 0 ? null : `${share(cadence.denied, answered)} denied`,
    cadence.expired === 0 ? null : `${cadence.expired} without an answer`,
    cadence.applied === 0 ? null : `${share(cadence.undone, cadence.applied)} of changes undone`,
  ];
  byId("cadence").replaceChildren(el("p", { className: "facts" }, facts.filter(Boolean).join(" \u00b7 ")), ...cadence.offers.map((offer) => card(offer, done)));
}

/** An offer, with what speaks for it and the way back. */
function card(offer, done) {
  const wider = offer.direction === "widen";
  const evidence = wider
    ? `Approved ${plural(offer.approved, "time")}, never denied or undone${offer.median_ms === null ? "" : `, half of the answers within ${span(offer.median_ms)}`}.`
    : `Since it was approved for longer: ${plural(offer.denied, "denial")}, ${plural(offer.undone, "change")} undone.`;
  const said = el("p", { className: "note", role: "status" });
  const act = wider
    ? el("a", { className: "button secondary small", href: `#/review?ask=${encodeURIComponent(offer.ask_id)}` }, "See how far it would reach")
    : taking(offer.ask_id, said, done);
  const back = wider ? "A longer approval is taken back with one tap under \u201cApproved for longer\u201d." : `For ${WAY_BACK / 1000} s one tap keeps the approval; later the next question of this kind can be approved for longer again.`;
  return el("div", { className: "offer", data: { offer: offer.direction, ask: offer.ask_id } },
    el("p", {}, el("strong", {}, wider ? "Be asked less? " : "Be asked again? "), offer.likeness),
    el("p", { className: "note" }, `${evidence} ${back}`),
    act, said);
}

/** The button that takes an approval back, and for a while keeps it after all. */
function taking(ask, said, done) {
  const button = el("button", { type: "button", className: "secondary small", data: { taking: ask } });
  const show = () => {
    button.textContent = leaving.has(ask) ? "Keep it after all" : "Ask me again";
  };
  button.addEventListener("click", () => {
    if (leaving.has(ask)) {
      clearTimeout(leaving.get(ask));
      leaving.delete(ask);
      announce("The approval stays");
    } else {
      leaving.set(ask, setTimeout(() => takeBack(ask, button, said, done), WAY_BACK));
      announce("The approval is taken back in a moment");
    }
    show();
  });
  show();
  return button;
}

async function takeBack(ask, button, said, done) {
  leaving.delete(ask);
  button.disabled = true;
  try {
    await request(`/api/v1/approvals/${encodeURIComponent(ask)}`, { method: "DELETE" });
    announce("The approval is taken back");
    done();
  } catch (error) {
    said.textContent = `Not taken back: ${error.message}`;
    button.textContent = "Ask me again";
    button.disabled = false;
  }
}
