# Asks the model router with the packages of both vendors. Locked in there are no arguments: the router has its name, and the
# launcher adds the keys. Elsewhere socket, base key and task key are the arguments.
import json
import sys

import anthropic
import httpx2
import openai

socket, base, task = sys.argv[1:4] or (None, None, None)
keys = {"writ-base-key": base, "writ-task-key": task} if socket else {}
root = "http://llm-router.silo.internal"


def way():
    return httpx2.Client(transport=httpx2.HTTPTransport(uds=socket)) if socket else None


chat = openai.OpenAI(api_key="none", base_url=root + "/v1", default_headers=keys, http_client=way())
claude = anthropic.Anthropic(api_key="none", base_url=root, default_headers=keys, http_client=way())
said, wanted = [{"role": "user", "content": "hi"}], [{"role": "user", "content": "call"}]
schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
functions = [{"type": "function", "function": {"name": "add", "parameters": schema}}]

answer = chat.chat.completions.create(model="default", messages=said, temperature=0.1)
assert answer.choices[0].message.content == "Hello there.", answer
options = {"include_usage": True}
chunks = list(chat.chat.completions.create(model="default", messages=said, stream=True, stream_options=options))
text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
assert text == "Hello there.", chunks
assert chunks[-1].choices == [] and chunks[-1].usage.total_tokens > 0, chunks[-1]
with chat.chat.completions.stream(model="default", messages=wanted, tools=functions) as stream:
    final = stream.get_final_completion()
call = final.choices[0].message.tool_calls[0].function
assert call.name == "add" and json.loads(call.arguments) == {"a": 1}, call

answer = claude.messages.create(model="default", max_tokens=50, messages=said)
assert answer.content[0].text == "Hello there." and answer.stop_reason == "end_turn", answer
with claude.messages.stream(model="default", max_tokens=50, messages=said) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == "Hello there." and final.usage.output_tokens > 0, final
tools = [{"name": "add", "input_schema": schema}]
with claude.messages.stream(model="default", max_tokens=50, messages=wanted, tools=tools) as stream:
    final = stream.get_final_message()
calls = [block for block in final.content if block.type == "tool_use"]
assert calls[0].name == "add" and calls[0].input == {"a": 1}, final

assert "default" in [model.id for model in chat.models.list()]
assert "default" in [model.id for model in claude.models.list()]
try:
    chat.chat.completions.create(model="nope", messages=said)
    raise SystemExit("an unknown model was served")
except openai.NotFoundError as error:
    assert "nope" in str(error)
try:
    claude.messages.create(model="nope", max_tokens=5, messages=said)
    raise SystemExit("an unknown model was served")
except anthropic.NotFoundError as error:
    assert "nope" in str(error)
print("served")
