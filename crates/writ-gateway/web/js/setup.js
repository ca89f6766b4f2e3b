// The first model: found on this machine or at a provider, tried, and used from then on.

import { announce } from "./announce.js";
import { request, sendText } from "./api.js";
import { byId, el } from "./dom.js";
import { oneLine } from "./foreign.js";

/** Providers with an address of their own, each with a model to begin with. */
const PROVIDERS = [
  ["anthropic", "Anthropic", "claude-sonnet-4-6"],
  ["openai", "OpenAI", "gpt-5.2"],
  ["gemini", "Google Gemini", "gemini-flash-latest"],
  ["openrouter", "OpenRouter", "openrouter/auto"],
];
const OTHER = "other";
const KINDS = [
  ["openai", "OpenAI Chat Completions, and what is compatible with it"],
  ["openai_responses", "OpenAI Responses"],
  ["anthropic", "Anthropic Messages"],
  ["gemini", "Gemini"],
  ["ollama", "Ollama"],
];
/** How long the trial may take, in milliseconds: a slow machine loads its model first, and answers five requests. */
const PATIENCE = 900_000;
const VERDICTS = { works: "works", limited: "works in part", fails: "fails" };

/** A text of the server as a sentence. */
const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;

const options = (rows) => rows.map(([value, text]) => el("option", { value }, text));

export class Setup {
  #done;
  #busy = false;

  /** `done` is called when a model is in use. */
  constructor(done) {
    this.#done = done;
    byId("setup-provider").append(...options([...PROVIDERS, [OTHER, "Another server"]]));
    byId("setup-kind").append(...options(KINDS));
    byId("setup-provider").addEventListener("change", () => this.#chosen());
    byId("setup-look").addEventListener("click", () => this.#find());
    byId("setup-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.#chosen();
  }

  /** The conversation goes on: what came of the choice was read. */
  dismiss() {
    byId("setup-done").hidden = true;
  }

  /** Shows the form where no model is set. */
  async look() {
    let state;
    try {
      state = await request("/api/v1/state");
    } catch {
      return;
    }
    const missing = state.model === false;
    if (missing && byId("setup").hidden) this.#find();
    this.#show(missing);
  }

  #show(missing) {
    byId("setup").hidden = !missing;
    document.body.dataset.model = missing ? "none" : "set";
  }

  #chosen() {
    const provider = byId("setup-provider").value;
    const isOther = provider === OTHER;
    byId("setup-other").hidden = !isOther;
    for (const id of ["setup-name", "setup-url"]) byId(id).required = isOther;
    byId("setup-model").value = PROVIDERS.find(([name]) => name === provider)?.[2] ?? "";
  }

  /** Asks for servers on this machine. */
  async #find() {
    let models = [];
    try {
      ({ models } = await request("/api/v1/models/local"));
      byId("setup-found").textContent = models.length === 0 ? "None answers on its usual port: Ollama, LM Studio, llama.cpp and vLLM are looked for." : "";
    } catch (error) {
      byId("setup-found").textContent = error.message;
    }
    byId("setup-servers").replaceChildren(...models.map((found) => el("li", { className: "setup-server", data: { provider: found.provider } },
      el("span", {}, `${oneLine(found.model, 80)} of ${found.provider}, port ${found.port}`),
      el("button", { type: "button", className: "secondary small", onclick: () => this.#use({ provider: found.provider, model: found.model }) }, "Use it"))));
  }

  #submit() {
    const provider = byId("setup-provider").value;
    const choice = { provider, model: byId("setup-model").value.trim() };
    if (provider === OTHER) {
      choice.provider = byId("setup-name").value.trim();
      choice.kind = byId("setup-kind").value;
      choice.base_url = byId("setup-url").value.trim();
    }
    const key = byId("setup-key").value.trim();
    // It leaves the page here, whatever comes of it.
    byId("setup-key").value = "";
    this.#use(choice, key);
  }

  async #use(choice, key = "") {
    if (this.#busy) return;
    this.#trying(true);
    byId("setup-problem").hidden = true;
    byId("setup-checks").hidden = true;
    announce("The model is being tried");
    try {
      if (key !== "") await sendText(`/secrets/model-key-${encodeURIComponent(choice.provider)}`, key);
      const answer = await request("/api/v1/models/setup", { method: "POST", body: { ...choice, has_key: key !== "" }, patience: PATIENCE });
      this.#tell(answer);
    } catch (error) {
      // Another page may have chosen one meanwhile.
      if (error.code === "models.configured") await this.look();
      this.#refuse([error.message, error.hint].filter(Boolean).map(sentence).join(" "));
    }
    this.#trying(false);
  }

  #trying(busy) {
    this.#busy = busy;
    byId("setup-use").disabled = busy;
    byId("setup-use").textContent = busy ? "Trying it" : "Try it and use it";
  }

  #refuse(text) {
    byId("setup-problem").textContent = text;
    byId("setup-problem").hidden = false;
    byId("setup-problem").scrollIntoView({ block: "nearest" });
  }

  #tell({ stored, trial }) {
    const checks = trial.checks.map((check) => el("li", { data: { verdict: check.verdict } },
      el("strong", {}, `${check.check} ${VERDICTS[check.verdict] ?? check.verdict}`), `: ${oneLine(check.text)}`,
      check.hint ? el("span", { className: "note" }, ` ${oneLine(check.hint)}`) : null));
    byId("setup-checks").replaceChildren(...checks);
    if (!stored) {
      byId("setup-checks").hidden = false;
      this.#refuse(`${oneLine(trial.model, 120)} does not answer, so it is not used.`);
      return;
    }
    const weak = trial.checks.filter((check) => check.verdict !== "works");
    const rest = weak.length === 0 ? "" : ` Not all of it works: ${weak.map((check) => `${check.check}: ${oneLine(check.text, 120)}`).join("; ")}.`;
    const said = `${oneLine(trial.model, 120)} at ${oneLine(trial.host, 120)} answers, and is used from now on.${rest}`;
    byId("setup-done").textContent = said;
    byId("setup-done").hidden = false;
    announce(said);
    this.#show(false);
    this.#done();
  }
}
