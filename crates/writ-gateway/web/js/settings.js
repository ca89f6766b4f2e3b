// Settings: what is in force, where it was set, and what each setting does, in the words of the configuration itself.

import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { oneLine } from "./foreign.js";
import { plural } from "./format.js";

/** Where settings are changed: what security rests on is not changed by a page. */
const NOTE = "These are the settings with which Writ was started. They are changed in config.toml in the home, and count from the next start; \u201cwrit config check\u201d says what is wrong with them.";

export class Settings {
  #rows = [];

  constructor() {
    byId("settings-text").addEventListener("input", () => this.#fill());
    byId("settings-form").addEventListener("submit", (event) => event.preventDefault());
  }

  async show() {
    try {
      ({ settings: this.#rows } = await request("/api/v1/settings"));
    } catch (error) {
      byId("settings-note").textContent = [error.message, error.hint].filter(Boolean).join(" ");
      return;
    }
    byId("settings-note").textContent = NOTE;
    this.#fill();
  }

  #fill() {
    const words = byId("settings-text").value.toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => words.every((word) => `${row.name} ${row.about}`.toLowerCase().includes(word));
    const rows = this.#rows.filter(fits);
    byId("settings-size").textContent = plural(rows.length, "setting");
    byId("settings-list").replaceChildren(...rows.map((row) => el("div", { className: "setting", data: { setting: row.name, own: String(row.origin !== null) } },
      el("dt", {}, el("code", {}, row.name)),
      el("dd", {}, el("code", { className: "setting-value" }, oneLine(row.value, 300)), row.origin === null ? el("span", { className: "note" }, "default") : el("span", { className: "note" }, `set in ${oneLine(row.origin, 200)}`)),
      row.about === "" ? null : el("dd", { className: "note" }, row.about))));
  }
}
