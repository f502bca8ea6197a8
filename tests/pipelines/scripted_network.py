"""A network for clients of the endpoint, on which each request gets the next of some answers."""

import httpx2


class ScriptedNetwork(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Answers with responses, or with (status, part, part, ...) whose body comes in parts; an exception is raised.

    `requests` holds what was asked.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []

    def handle_request(self, request):
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, httpx2.Response):
            return httpx2.Response(answer.status_code, headers=answer.headers, content=answer.content)
        status, *parts = answer
        return httpx2.Response(status, stream=_Parts(parts))

    async def handle_async_request(self, request):
        return self.handle_request(request)


class _Parts(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body in parts; an exception among them is raised."""

    def __init__(self, parts):
        self._parts = parts

    def __iter__(self):
        for part in self._parts:
            if isinstance(part, Exception):
                raise part
            yield part

    async def __aiter__(self):
        for part in self:
            yield part
