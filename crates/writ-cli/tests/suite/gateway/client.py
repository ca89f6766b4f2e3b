"""The official client against /v1: says what it got, as one line of JSON."""

import json
import os

import openai

URL, TOKEN = os.environ["WRIT_TEST_URL"], os.environ["WRIT_TEST_TOKEN"]
client = openai.OpenAI(base_url=URL, api_key=TOKEN, max_retries=0, timeout=60)
said = {}


def hello(text):
    return [{"role": "user", "content": text}]


said["models"] = [model.id for model in client.models.list()]

whole = client.chat.completions.create(model="writ", messages=hello("one"), user="chat")
said["chat"] = [whole.choices[0].message.role, whole.choices[0].message.content, whole.choices[0].finish_reason]
said["usage"] = whole.usage.total_tokens

parts, ends = [], []
for chunk in client.chat.completions.create(model="writ", messages=hello("two"), user="stream", stream=True):
    for choice in chunk.choices:
        parts.append(choice.delta.content or "")
        ends.append(choice.finish_reason)
said["stream"] = ["".join(parts), len([part for part in parts if part]), [end for end in ends if end]]

first = client.responses.create(model="writ", input="three")
said["response"] = [first.status, first.output_text]
second = client.responses.create(model="writ", input="four", previous_response_id=first.id)
said["next"] = [second.status, second.output_text, second.previous_response_id == first.id]

events, text = [], ""
for event in client.responses.create(model="writ", input="five", stream=True):
    events.append(event.type)
    if event.type == "response.output_text.delta":
        text += event.delta
said["events"] = [events[0], events[-1], text]


def error(ask):
    try:
        ask()
    except openai.APIStatusError as failure:
        return [type(failure).__name__, failure.status_code, failure.param]
    return None


stranger = openai.OpenAI(base_url=URL, api_key="0" * 64, max_retries=0, timeout=60)
said["stranger"] = error(lambda: stranger.models.list())
said["model"] = error(lambda: client.chat.completions.create(model="another", messages=hello("six")))
said["empty"] = error(lambda: client.chat.completions.create(model="writ", messages=[]))
look = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
said["tools"] = error(lambda: client.chat.completions.create(model="writ", messages=hello("x"), tools=[look]))
form = {"type": "json_object"}
said["format"] = error(lambda: client.chat.completions.create(model="writ", messages=hello("x"), response_format=form))
said["retrieved"] = client.models.retrieve("writ").id
parts = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "seven"}]}]
cut = client.chat.completions.create(model="writ", messages=parts, stop=[" Then"], max_completion_tokens=1000, seed=1)
said["stop"] = [cut.choices[0].message.content, cut.choices[0].finish_reason]
usage = {"include_usage": True}
stream = client.chat.completions.create(model="writ", messages=parts, stream=True, stream_options=usage)
said["streamed_usage"] = list(stream)[-1].usage.total_tokens
print(json.dumps(said))
