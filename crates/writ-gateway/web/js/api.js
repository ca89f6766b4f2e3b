// Requests to the server that the page came from, and to no other.

/** Why a request failed, in the server's words. */
export class Refused extends Error {
  constructor(status, code, text, hint) {
    super(text);
    this.status = status;
    this.code = code;
    this.hint = hint;
  }
}

/** How long an answer may take, in milliseconds. What was approved is told over the socket when it is done. */
const PATIENCE = 120_000;

/** The address of a path of this server, which a proxy may show below a path of its own. */
export function address(path) {
  const at = new URL(path.slice(1), document.baseURI);
  at.hash = "";
  return at;
}

/** Sends a request; answers with the JSON that came back, or `null`. Throws {@link Refused}. */
export async function request(path, { method = "GET", body, patience = PATIENCE } = {}) {
  const headers = { Accept: "application/json" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address(path), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(patience),
    });
  } catch {
    throw new Refused(0, "page.offline", "Writ does not answer.", "Check that `writ start` runs.");
  }
  const text = await response.text();
  let answer = null;
  try {
    answer = text === "" ? null : JSON.parse(text);
  } catch {
    throw new Refused(response.status, "page.answer", "The answer could not be read.", "");
  }
  if (response.ok) return answer;
  const error = answer?.error ?? {};
  throw new Refused(response.status, error.code ?? "", error.text ?? `The server answered ${response.status}.`, error.hint ?? "");
}

/** Sends a text to a path that answers with nothing. Throws {@link Refused}. */
export async function sendText(path, text) {
  let response;
  try {
    response = await fetch(address(path), {
      method: "POST",
      headers: { "Content-Type": "text/plain" },
      body: text,
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal: AbortSignal.timeout(PATIENCE),
    });
  } catch {
    throw new Refused(0, "page.offline", "Writ does not answer.", "Check that `writ start` runs.");
  }
  if (response.ok) return;
  const { error = {} } = await response.json().catch(() => ({}));
  throw new Refused(response.status, error.code ?? "", error.text ?? `The server answered ${response.status}.`, error.hint ?? "");
}

/** A path with a query; empty values are left out. */
export function withQuery(path, query) {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") search.set(name, value);
  }
  const text = search.toString();
  return text === "" ? path : `${path}?${text}`;
}
