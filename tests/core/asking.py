"""A stage that asks a model, driven with replies written by hand."""

import json
import re

from hgmem_core.chat import Reply
from hgmem_core.passes import Terms

TERMS = Terms("off", 512, 100_000, len)
_QUOTATION = re.compile(r'"(?:[^"\\]|\\.)*"')


def drive(stage, model):
    """Run a stage to its end; return what it makes and the requests.

    `model` gives for each request the values of an answer, the text of a reply, or a Reply.
    """
    asked = []
    try:
        requests = next(stage)
        while True:
            asked += requests
            requests = stage.send([_reply(model(request)) for request in requests])
    except StopIteration as end:
        return end.value, asked


def _reply(given):
    if isinstance(given, Reply):
        return given
    return Reply(given if isinstance(given, str) else json.dumps(given), None, "stop")


def outside_quotations(request):
    """What of a request's user part is not quoted."""
    return _QUOTATION.sub('""', request.user)


def quotations(request):
    """What its user part quotes, in order."""
    return [json.loads(text) for text in _QUOTATION.findall(request.user)]
