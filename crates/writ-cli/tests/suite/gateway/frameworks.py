"""LangChain and LiteLLM against /v1: prints their results as one line of JSON."""

import json
import os

import litellm
from langchain_openai import ChatOpenAI

URL, TOKEN = os.environ["WRIT_TEST_URL"], os.environ["WRIT_TEST_TOKEN"]
LOOK = {"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": {"type": "object", "properties": {}}}}
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]


def refusal(ask):
    try:
        ask()
    except Exception as failure:  # each library has errors of its own
        return str(failure)
    return None


def langchain():
    options = {"model": "writ", "base_url": URL, "api_key": TOKEN, "max_retries": 0, "timeout": 60}
    model = ChatOpenAI(temperature=0, max_tokens=1000, stream_usage=True, **options)
    whole = model.invoke([("system", "Be brief."), ("human", "hello")])
    return {
        "chat": whole.content,
        "usage": whole.usage_metadata["total_tokens"],
        "stream": "".join(chunk.content for chunk in model.stream("hello")),
        "tools": refusal(lambda: model.bind_tools([LOOK]).invoke("hello")),
        "responses": ChatOpenAI(use_responses_api=True, **options).invoke("hello").text,
    }


def by_litellm():
    options = {"model": "openai/writ", "api_base": URL, "api_key": TOKEN, "max_retries": 0, "timeout": 60}
    whole = litellm.completion(messages=MESSAGES, temperature=0, max_tokens=1000, **options)
    stream = litellm.completion(messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **options)
    return {
        "chat": whole.choices[0].message.content,
        "usage": whole.usage.total_tokens,
        "stream": "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices),
        "tools": refusal(lambda: litellm.completion(messages=MESSAGES, tools=[LOOK], **options)),
    }


print(json.dumps({"langchain": langchain(), "litellm": by_litellm()}))
