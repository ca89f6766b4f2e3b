// The official client for Node against /v1: prints its results as one line of JSON.
import { createRequire } from "node:module";

const require = createRequire(`${process.env.WRIT_TEST_MODULES}/`);
const { OpenAI } = require("openai");
const baseURL = process.env.WRIT_TEST_URL;
const options = { baseURL, maxRetries: 0, timeout: 60_000 };
const client = new OpenAI({ ...options, apiKey: process.env.WRIT_TEST_TOKEN });
const hello = [
  { role: "developer", content: "Be brief." },
  { role: "user", content: [{ type: "text", text: "hello" }] },
];
const said = { models: [] };

for await (const model of client.models.list()) said.models.push(model.id);
said.model = (await client.models.retrieve("writ")).id;

const ask = (more) => client.chat.completions.create({ model: "writ", messages: hello, ...more });
const choice = (answer) => [answer.choices[0].message.content, answer.choices[0].finish_reason];
said.chat = choice(await ask({ temperature: 0, seed: 1, store: false, max_completion_tokens: 1000 }));
said.stop = choice(await ask({ stop: [" Then"] }));

let [text, reason, tokens] = ["", null, null];
for await (const chunk of await ask({ stream: true, stream_options: { include_usage: true } })) {
  text += chunk.choices[0]?.delta.content ?? "";
  reason = chunk.choices[0]?.finish_reason ?? reason;
  tokens = chunk.usage?.total_tokens ?? tokens;
}
said.stream = [text, reason, tokens];

const response = await client.responses.create({ model: "writ", input: "hello" });
said.response = [response.status, response.output_text];
let [last, delta] = ["", ""];
for await (const event of await client.responses.create({ model: "writ", input: "hello", stream: true })) {
  last = event.type;
  if (event.type === "response.output_text.delta") delta += event.delta;
}
said.events = [last, delta];

const error = (answer) => answer.then(() => null, (failure) => [failure.status, failure.param ?? null]);
const stranger = new OpenAI({ ...options, apiKey: "0".repeat(64) });
said.stranger = await error(stranger.models.list());
const look = { type: "function", function: { name: "look", parameters: { type: "object", properties: {} } } };
said.tools = await error(ask({ tools: [look] }));
said.format = await error(ask({ response_format: { type: "json_object" } }));
console.log(JSON.stringify(said));
