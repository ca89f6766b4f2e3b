// One polite live region for everything that is told to a screen reader.

import { byId } from "./dom.js";

/** The least time between two announcements, in milliseconds: what comes faster is said together. */
const PAUSE = 1200;
/** The longest text that is read out; the rest is on the page. */
const LONGEST = 400;

let waiting = [];
let timer = null;

function say() {
  timer = null;
  if (waiting.length === 0) return;
  byId("announcer").textContent = waiting.join(". ").slice(0, LONGEST);
  waiting = [];
  timer = setTimeout(say, PAUSE);
}

/** Says something as soon as it does not interrupt. The same text is not said twice in a row. */
export function announce(text) {
  if (waiting.at(-1) === text) return;
  waiting.push(text);
  if (timer === null) timer = setTimeout(say, 150);
}
