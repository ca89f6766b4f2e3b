// Attachments: images and PDF files that a message brings along, and texts that are quoted below it, as data of an unknown author.

import { announce } from "./announce.js";
import { request } from "./api.js";
import { byId, el } from "./dom.js";
import { oneLine } from "./foreign.js";
import { plural, size } from "./format.js";

/** The most files of one message, and the most bytes of one: what the server takes. */
const MAX_FILES = 20;
const MAX_BYTES = 2_900_000;
/** The most bytes of a text: the message has to fit into what the server takes. */
const MAX_TEXT = 24 * 1024;
/** Types that models read as they are. */
const MEDIA = /^(image\/(png|jpeg|gif|webp)|application\/pdf)$/;

export class Attachments {
  #session;
  #changed;
  /** By conversation: the files of the message that is being written there. */
  #files = new Map();

  /** `session()` answers with the conversation in view; `changed` is called when files came or went. */
  constructor(session, changed) {
    this.#session = session;
    this.#changed = changed;
    const input = byId("attach-input");
    byId("attach").addEventListener("click", () => input.click());
    input.addEventListener("change", () => {
      this.add([...input.files]);
      input.value = "";
    });
    byId("message").addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files];
      if (files.length === 0) return;
      event.preventDefault();
      this.add(files);
    });
    const place = byId("stream");
    place.addEventListener("dragover", (event) => {
      if ([...event.dataTransfer.types].includes("Files")) event.preventDefault();
    });
    place.addEventListener("drop", (event) => {
      if (event.dataTransfer.files.length === 0) return;
      event.preventDefault();
      this.add([...event.dataTransfer.files]);
    });
  }

  get #own() {
    return this.#files.get(this.#session()) ?? [];
  }

  /** The number of files, and whether all of them are stored. */
  get count() {
    return this.#own.length;
  }

  get ready() {
    return this.#own.every((file) => file.state === "stored");
  }

  /** A text with the lines of the files, and what is quoted below it. */
  joined(text) {
    const stored = this.#own.filter((file) => file.state === "stored");
    const lines = stored.map((file) => file.line).filter(Boolean);
    const quoted = stored.map((file) => file.quoted).filter(Boolean);
    return { text: [text, ...lines].filter(Boolean).join("\n"), quoted: quoted.join("\n\n") };
  }

  /** The message is sent: the next one begins without files. */
  clear() {
    this.#files.delete(this.#session());
    this.show();
  }

  /** Adds files to the message that is being written. */
  add(files) {
    const session = this.#session();
    if (!session) return;
    const own = this.#own;
    for (const file of files) {
      if (own.length >= MAX_FILES) {
        this.#say(`A message takes ${MAX_FILES} files: the others were left out.`);
        break;
      }
      const row = { name: file.name || "file", size: file.size, state: "storing", text: "", line: "", quoted: "" };
      own.push(row);
      this.#store(session, file, row);
    }
    this.#files.set(session, own);
    this.show();
  }

  async #store(session, file, row) {
    try {
      if (MEDIA.test(file.type)) {
        if (file.size > MAX_BYTES) throw new Error(`it has more than ${size(MAX_BYTES)}`);
        const content = await base64(file);
        const stored = await request("/api/v1/files", { method: "POST", body: { session, name: row.name, content } });
        row.line = stored.line;
      } else {
        row.quoted = await textOf(file, row.name);
      }
      row.state = "stored";
      announce(`${row.name} is attached`);
    } catch (error) {
      row.state = "refused";
      // The server names the file itself.
      const text = error.code ? error.message : `"${oneLine(row.name, 60)}" is not taken: ${error.message}`;
      row.text = [text, error.hint].filter(Boolean).join(". ");
      announce(row.text);
    }
    this.show();
  }

  #remove(row) {
    this.#files.set(this.#session(), this.#own.filter((other) => other !== row));
    this.show();
    byId("message").focus();
  }

  #say(text) {
    announce(text);
    byId("attach-note").textContent = text;
  }

  /** Shows the files of the conversation in view. */
  show() {
    const rows = this.#own.map((row) => el("li", { data: { state: row.state } },
      el("span", {}, oneLine(row.name, 60)),
      el("span", { className: "note" }, row.state === "refused" ? oneLine(row.text) : row.state === "storing" ? "is being stored" : size(row.size)),
      el("button", { type: "button", className: "quiet small", onclick: () => this.#remove(row) }, "Remove", el("span", { className: "visually-hidden" }, ` ${oneLine(row.name, 60)}`))));
    byId("attach-list").replaceChildren(...rows);
    byId("attach-list").hidden = rows.length === 0;
    byId("attach-list").setAttribute("aria-label", plural(rows.length, "file"));
    if (rows.length === 0) byId("attach-note").textContent = "";
    this.#changed();
  }
}

/** The bytes of a file as base64. */
function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => reject(new Error("it cannot be read")));
    reader.readAsDataURL(file);
  });
}

/** The text of a file, below its name. */
async function textOf(file, name) {
  if (file.size > MAX_TEXT) throw new Error(`a text of more than ${size(MAX_TEXT)} is too long for a message: put it into the folder of the conversation, and name it`);
  const wrong = new Error("it is neither text nor an image or PDF that models read");
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw wrong;
  }
  if (text.trim() === "" || text.includes("\0")) throw wrong;
  return `${oneLine(name, 120)}:\n${text.replace(/\n$/, "")}`;
}
