"""A model that calls tools: tools are actors, conversations are tasks; a tool that dies is one more thing to be told.

python examples/tool_calls.py

The model here is a few rules that stand for a language model: give `converse` another function from messages to a
reply, and the rest stays. Calls of one turn run at the same time; each has a deadline.
"""

from __future__ import annotations

import os
import re
from typing import Any

import weft

Message = dict[str, Any]
HEIGHTS_M = {"eiffel tower": 330, "big ben": 96, "fernsehturm": 368}


@weft.remote(num_cpus=0)
class Encyclopedia:
    async def run(self, name: str) -> str:
        if name.lower() not in HEIGHTS_M:
            raise LookupError(f"no article on {name!r}; there are {', '.join(HEIGHTS_M)}")
        return f"{name} is {HEIGHTS_M[name.lower()]} m high"


@weft.remote(num_cpus=0, max_restarts=-1)
class Calculator:
    """Runs what a model wrote, so each conversation has its own, in a process that may die of it."""

    def run(self, expression: str) -> str:
        if expression == "exit()":
            os._exit(1)
        if not re.fullmatch(r"[\d\s+*/().-]+", expression):
            raise ValueError(f"only numbers and + - * / ( ), but got {expression!r}")
        return str(eval(expression))


def rules(messages: list[Message]) -> Message:
    """Stands for a language model: look both up, then subtract; say so when something failed."""
    question, observations = messages[0]["content"], [m["content"] for m in messages if m["role"] == "tool"]
    if "exit" in question:
        calls = [] if observations else [("calculator", {"expression": "exit()"})]
        return {"role": "assistant", "content": "; ".join(observations), "calls": calls}
    if not observations:
        names = re.findall(r"(?:the )([A-Z][\w ]*?)(?= than|\?)", question)
        return {"role": "assistant", "content": "", "calls": [("encyclopedia", {"name": name}) for name in names]}
    heights = [re.search(r"is (\d+) m", text) for text in observations[:2]]
    if not all(heights):
        return {"role": "assistant", "content": "I cannot tell: " + "; ".join(observations), "calls": []}
    if len(observations) == 2:
        expression = " - ".join(match[1] for match in heights if match)
        return {"role": "assistant", "content": "", "calls": [("calculator", {"expression": expression})]}
    return {"role": "assistant", "content": f"{observations[-1]} m higher.", "calls": []}


def outcome(call: weft.ObjectRef[str], deadline_s: float = 30) -> str:
    try:
        return weft.get(call, timeout=deadline_s)
    except weft.exceptions.GetTimeoutError:
        weft.cancel(call)
        return f"error: no answer in {deadline_s} s"
    except (weft.exceptions.ActorDiedError, weft.exceptions.ActorUnavailableError):
        return "error: the tool crashed"
    except weft.exceptions.TaskError as error:
        return f"error: {error.cause}"


@weft.remote(num_cpus=0)
def converse(question: str, encyclopedia: weft.ActorHandle, model: Any = rules) -> list[Message]:
    tools = {"encyclopedia": encyclopedia, "calculator": Calculator.remote()}
    messages: list[Message] = [{"role": "user", "content": question}]
    for _ in range(5):
        messages.append(model(messages))
        if not messages[-1]["calls"]:
            break
        calls = [tools[name].run.remote(**arguments) for name, arguments in messages[-1]["calls"]]
        messages += [{"role": "tool", "content": outcome(call)} for call in calls]
    return messages


def main() -> list[str]:
    encyclopedia = Encyclopedia.remote()
    questions = [
        "How much higher is the Fernsehturm than the Eiffel Tower?",
        "How much higher is the Eiffel Tower than the Tower of Babel?",
        "What happens at exit()?",
        "How much higher is the Eiffel Tower than the Big Ben?",
    ]
    conversations = weft.get([converse.remote(question, encyclopedia) for question in questions])
    for conversation in conversations:
        print(f"{conversation[0]['content']}\n    {conversation[-1]['content']}  ({len(conversation)} messages)")
    return [conversation[-1]["content"] for conversation in conversations]


if __name__ == "__main__":
    main()
