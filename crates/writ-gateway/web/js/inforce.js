// What was approved for a task or stands, and is in force: said in full, and taken back with one tap.

import { announce } from "./announce.js";
import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { moment, plural, until } from "./format.js";

/** What is in view, as it came: rows stay as they are while nothing has changed. */
let seen = "";

/** Reads what is in force, and shows it. */
export async function showInForce() {
  let list;
  try {
    ({ approvals: list } = await request("/api/v1/approvals/in-force"));
  } catch {
    return;
  }
  const now = JSON.stringify(list);
  if (now === seen) return;
  seen = now;
  byId("in-force").hidden = list.length === 0;
  byId("in-force-list").replaceChildren(...list.map(row));
}

function row(approval) {
  const said = el("span", { className: "note", role: "status" });
  const ends = moment(approval.expires_at);
  const whole = approval.scope === "host" ? "Until you take it back" : "As long as its conversation";
  const times = approval.uses_left === null ? whole : plural(approval.uses_left, "more time", "more times");
  const left = approval.total_left ? `${times}, ${approval.total_left} of the total` : times;
  const button = el("button", { type: "button", className: "quiet small", data: { revoke: approval.ask_id } }, "Take back");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await request(`/api/v1/approvals/${encodeURIComponent(approval.ask_id)}`, { method: "DELETE" });
      announce("The approval is taken back");
      await showInForce();
    } catch (error) {
      said.textContent = ` Not taken back: ${error.message}`;
      button.disabled = false;
    }
  });
  return el("li", { className: "in-force-row" },
    el("p", { className: "covers" }, approval.covers),
    el("p", { className: "note" }, `${left}${ends ? `, ends ${until(ends)}` : ""}`, said),
    button);
}
