// A fleet beside the real answers: a router of cases needs a security proxy and deployed agents, which these homes have not.

const T0 = Date.UTC(2026, 10, 26, 9, 0, 0);
/** A moment as the server says it. */
export const at = (second) => T0 + second * 1_000;

export const agent = (name, more = {}) => ({ name, roles: [], version: "1", cases: 0, max_cases: 4, requests_per_minute: 0, refused: 0, tokens: 0, ...more });

export const fleetCase = (id, more = {}) => ({
  case: id, case_token: `case_tk_${id.slice(-4).toLowerCase()}`, capability: "refund", state: "held", holder: "refund-agent", since: at(60),
  reason: "chosen by capability and load", requests_per_minute: 0, refused: 0, tokens: 0, ...more,
});

export const said = (n, from, text) => ({ n, from, text, at: at(n) });

const holder = (name, key) => ({ name, key: null, base: key, task: key });

export const held = (name, since, until = null, more = {}) => ({
  holder: holder(name, name === "owner" ? null : "ab".repeat(32)), began: since, since: at(since), until: until === null ? null : at(until), ended_by: until === null ? null : "escalated", reason: "", ...more,
});

/** Answers of a fleet; a test changes them, and finds in `sent` what the page asked to be done. */
export class FleetAnswers {
  status = { agents: [], cases: [], open: [], anomalies: [] };
  /** By case: whether it is open, its messages and its holders. */
  cases = new Map();
  sent = [];
  /** What the next change is answered with, if it is refused. */
  refusal = null;
  /** Whether the router has been taken away. */
  gone = false;

  async serve(context) {
    await context.route("**/api/v1/state", async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: { ...(await response.json()), case_router: true } });
    });
    await context.route(/\/api\/v1\/fleet(\/|\?|$)/, (route) => this.#answer(route));
  }

  #answer(route) {
    const url = new URL(route.request().url());
    const what = url.pathname.split("/api/v1/fleet")[1].replace("/", "");
    if (route.request().method() === "POST") {
      this.sent.push([what, route.request().postDataJSON()]);
      const refused = this.refusal;
      this.refusal = null;
      if (refused) return route.fulfill({ status: 409, json: { error: { code: "case.state", exit: 10, text: refused, hint: "look again" } } });
      return route.fulfill({ json: {} });
    }
    const one = this.cases.get(url.searchParams.get("case")) ?? { is_open: true, messages: [], holders: [] };
    if (what === "messages") {
      const after = Number(url.searchParams.get("after") ?? 0);
      return route.fulfill({ json: { is_open: one.is_open, messages: one.messages.filter(({ n }) => n > after).slice(0, 200) } });
    }
    if (what === "access") return route.fulfill({ json: { holders: one.holders, contradictions: one.contradictions ?? [] } });
    return route.fulfill({ json: this.status });
  }
}
