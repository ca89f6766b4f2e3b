// What was approved for a task and is in force: said in full, and taken back with one tap.

import { announce } from "./announce.js";
import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { moment, plural, until } from "./format.js";

/** Reads what is in force, and shows it. */
export async function showInForce() {
  let list;
  try {
    ({ approvals: list } = await request("/api/v1/approvals/in-force"));
  } catch {
    return;
  }
  byId("in-force").hidden = list.length === 0;
  byId("in-force-list").replaceChildren(...list.map(row));
}

function row(approval) {
  const said = el("span", { className: "note", role: "status" });
  const ends = moment(approval.expires_at);
  const left = plural(approval.uses_left, "more time", "more times");
  const button = el("button", { type: "button", className: "quiet small", data: { revoke: approval.ask_id } }, "Take back");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await request(`/api/v1/approvals/${encodeURIComponent(approval.ask_id)}`, { method: "DELETE" });
      announce("The approval is taken back");
    } catch (error) {
      said.textContent = error.message;
    }
    button.disabled = false;
    await showInForce();
  });
  return el("li", { className: "in-force-row" },
    el("p", { className: "covers" }, approval.covers),
    el("p", { className: "note" }, `${left}${ends ? `, ends ${until(ends)}` : ""}`, said),
    button);
}
