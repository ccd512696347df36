"""A model behind HTTP: predictions, its domains, health, metrics, and a page to try it."""

import asyncio
import hmac
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request, Response, Security
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from fastapi.security import APIKeyHeader
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from bne import __version__
from bne.data.entries import printable
from bne.data.images import MAX_PIXELS
from bne.errors import did_you_mean
from bne.server.batching import Batcher, FullError, Work
from bne.server.live import Live, Model
from bne.server.metrics import Metrics
from bne.server.told import Asked, map_of
from bne.server.uploads import RefusedError, Uploads, busy, images_of

LOG = logging.getLogger(__name__)
OPEN = ("/", "/favicon.ico", "/healthz", "/readyz", "/openapi.json")
"""Paths that need no key."""
BODIES = 8  # of the largest size, that may be in memory together
CSP = "default-src 'self' 'unsafe-inline'"

Asgi = Callable[[Any, Any, Any], Awaitable[None]]


@dataclass(frozen=True)
class Limits:
    """What a server takes.

    Attributes:
        body: bytes of a request.
        pixels: of an image.
        images: of a request.
        queue: images that may be decoded, wait or be looked at.
        seconds: in which a request must arrive, and then be answered.
        batch: images that the network is shown together; None for what suits the device.
        delay: seconds that an image may wait for others.
        threads: to decode with; None for one per core.
    """

    body: int = 32_000_000
    pixels: int = MAX_PIXELS
    images: int = 64
    queue: int = 512
    seconds: float = 30.0
    batch: int | None = None
    delay: float = 0.005
    threads: int | None = None


class Class(BaseModel):
    """A class and its calibrated probability."""

    name: str = Field(alias="class")
    probability: float


class Answer(BaseModel):
    """What the model says of one image."""

    name: str
    most_probable: str | None = Field(alias="class", description="null below `abstain`")
    probability: float
    top: list[Class]
    nearest: str | None = Field(None, description="domain, if the model weighs domains")
    weights: dict[str, float] | None = None
    distances: dict[str, float] | None = None
    unusual: float | None = Field(
        None, description="how many of 100 held-out source images lie nearer to a domain"
    )
    place: tuple[float, float] | None = Field(None, description="on the map of /domains")


class Answers(BaseModel):
    """What the model of that id says of all images of a request, in their order."""

    model: str
    images: list[Answer]


class Problem(BaseModel):
    """An image that cannot be read."""

    image: int = Field(description="its number in the request, from 0")
    name: str
    reason: str


class Refusal(BaseModel):
    """Why a request was not carried out."""

    model: str
    detail: str
    images: list[Problem] | None = None


class State(BaseModel):
    """Whether all is well."""

    model: str
    status: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": Refusal, "description": "The API key is missing or wrong"},
    503: {"model": Refusal, "description": "No room now; try again after `Retry-After` seconds"},
}
PREDICT_REFUSALS: dict[int | str, dict[str, Any]] = REFUSALS | {
    408: {"model": Refusal, "description": "The request took too long to arrive"},
    413: {"model": Refusal, "description": "Too many bytes or images"},
    422: {"model": Refusal, "description": "Images that cannot be read, or a bad parameter"},
}
BYTES = {"schema": {"type": "string", "format": "binary"}}
FILES = {
    "type": "object",
    "properties": {
        "images": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "format": "binary"},
        }
    },
    "required": ["images"],
}
PARAMETERS = {
    "top": ("classes per image", {"type": "integer", "minimum": 1, "maximum": 1000}),
    "abstain": (
        "probability below which the class is left open",
        {"type": "number", "minimum": 0, "maximum": 1},
    ),
    "places": ("weights and distances too, which may cost another pass", {"type": "boolean"}),
}
PREDICT = {
    "parameters": [
        {"name": name, "in": "query", "description": text, "schema": schema}
        for name, (text, schema) in PARAMETERS.items()
    ],
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": FILES},
            "application/octet-stream": BYTES,
            "image/*": BYTES,
        },
    },
}


def parameters(request: Request) -> Asked:
    """Those of a request.

    Raises:
        RefusedError: One is not as `PARAMETERS` says.
    """
    if not request.scope["query_string"]:
        return Asked()
    given = request.query_params
    for name in given:
        if name not in PARAMETERS:
            raise RefusedError(
                422, f"{printable(name)}: is no parameter; {did_you_mean(name, PARAMETERS)}."
            )
    top, abstain = (_number(given.get(name, d)) for name, d in (("top", "1"), ("abstain", "0")))
    places = given.get("places", "true").lower()
    if not (1 <= top <= 1000 and top == int(top)):
        raise RefusedError(422, "top: must be a whole number from 1 to 1000.")
    if not 0 <= abstain <= 1:
        raise RefusedError(422, "abstain: must be a number from 0 to 1.")
    if places not in ("true", "false"):
        raise RefusedError(422, "places: must be true or false.")
    return Asked(int(top), abstain, places == "true")


class Server:
    """One model, its queue and its counters; `app` is what uvicorn runs.

    Args:
        live: the model.
        limits: what is taken.
        key: that clients must send, if any.
    """

    def __init__(
        self,
        live: Live,
        limits: Limits = Limits(),  # noqa: B008 - frozen
        key: str | None = None,
    ) -> None:
        self.live, self.limits, self._key = live, limits, key
        self.metrics = Metrics(
            pending=lambda: self._batcher.pending if self._batcher else 0,
            network=lambda: getattr(live.model, "pid", "self"),
        )
        self.metrics.model(live.model)
        live.changed = self._changed
        self._batcher: Batcher | None = None
        self._uploads = Uploads(limits.body, BODIES * limits.body, limits.seconds)
        self._page = (resources.files("bne.server") / "page.html").read_text("utf-8")
        inner = FastAPI(
            title="BNE",
            version=__version__,
            description="A trained model that classifies images.",
            docs_url=None,  # its page would load scripts from elsewhere
            redoc_url=None,
            redirect_slashes=False,  # to where the client says that this is
            lifespan=self._lifespan,
        )
        self._add_routes(inner)
        self.openapi = inner.openapi
        self.app: Asgi = _Guard(inner, self)

    def _add_routes(self, app: FastAPI) -> None:
        app.add_exception_handler(RefusedError, self._refused)
        app.add_exception_handler(HTTPException, self._no_route)
        app.add_exception_handler(Exception, self._failed)
        # Told in the schema; `_Guard` compares it.
        key = [Security(APIKeyHeader(name="X-API-Key", auto_error=False))] if self._key else []
        app.get("/", response_class=HTMLResponse, include_in_schema=False)(self.page)
        app.get("/favicon.ico", include_in_schema=False)(self.icon)
        app.post(
            "/predict",
            response_model=Answers,
            responses=PREDICT_REFUSALS,
            openapi_extra=PREDICT,
            dependencies=key,
        )(self.predict)
        app.get("/domains", responses=REFUSALS, dependencies=key)(self.domains)
        app.get("/healthz", response_model=State)(self.health)
        app.get("/readyz", response_model=State, responses={503: REFUSALS[503]})(self.ready)
        app.get(
            "/metrics",
            response_class=PlainTextResponse,
            responses=REFUSALS,
            dependencies=key,
        )(self.scrape)

    @asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        loop, limits = asyncio.get_running_loop(), self.limits
        self._batcher = Batcher(
            batch=limits.batch or self.live.model.batch,
            delay=limits.delay,
            capacity=limits.queue,
            pixels=limits.pixels,
            threads=limits.threads,
            done=lambda works: _call(loop, works),
            seen=self.metrics.seen,
        )
        self.live.watch()
        yield
        await asyncio.to_thread(self._batcher.close)
        await asyncio.to_thread(self.live.close)

    async def predict(self, request: Request) -> Response:
        """Classify one image, or all files of a form."""
        model, headers, asked = self._model(), request.headers, parameters(request)
        with self._uploads.room() as own:
            announced = headers.get("content-length")
            body = await self._uploads.read(request.receive, announced, own)
            images = images_of(body, headers.get("content-type", ""), self.limits.images)
            del body
            work = Work(model, images, asked, asyncio.get_running_loop().create_future())
            await self._answered(work)
        if problems := work.problems:
            self.metrics.bad.inc(len(problems))
            told = [
                {"image": n, "name": images[n].name, "reason": reason} for n, reason in problems
            ]
            detail = told[0]["reason"] if len(images) == 1 else _of(len(told), len(images))
            return self._json({"detail": detail, "images": told}, 422, model)
        if work.failed:
            raise busy("The network failed at an image; try again.")
        text = ",".join(row for row in work.rows if row)
        return Response(
            f'{{"model":"{model.id}","images":[{text}]}}',
            headers={"X-Model-Id": model.id},
            media_type="application/json",
        )

    def _model(self) -> Model:
        """The one that answers now.

        Raises:
            RefusedError: It cannot.
        """
        model = self.live.model
        if not model.alive:
            raise busy("The network has failed and is being loaded again; try again.")
        return model

    async def _answered(self, work: Work) -> None:
        assert self._batcher
        # A timer, since the timeouts of asyncio cost three times as much.
        limit = asyncio.get_running_loop().call_later(self.limits.seconds, _end, work, False)
        answered = False
        try:
            self._batcher.submit(work)
            answered = await work.waiter
        except FullError:
            raise busy("Too many images are waiting; try again.") from None
        finally:
            limit.cancel()
            work.dropped = not answered
        if not answered:
            raise busy("The answer took too long; try again.")

    async def domains(self) -> dict[str, Any]:
        """What the model knows: its classes and domains, and a map of them."""
        model = self.live.model
        info, shown = model.info, map_of(model.info)
        return {
            "model": model.id,
            "method": info.method,
            "backbone": info.backbone,
            "classes": info.classes,
            "domains": info.branches or info.domains,
            "weighs": bool(info.branches),
            "mix": info.mix,
            "calibrated_on": info.calibration.images,
            "expected": info.expected["sentence"] if info.expected else None,
            "map": shown
            and {
                "kind": "images" if shown["images"] else "weights",
                "domains": shown["branches"],
                "images": [
                    {key: one[key] for key in ("place", "domain", "class")}
                    for one in shown["images"]
                ],
            },
            "limits": {
                "bytes": self.limits.body,
                "images": self.limits.images,
                "pixels": self.limits.pixels,
            },
        }

    async def health(self) -> dict[str, str]:
        """Whether the process answers."""
        return {"model": self.live.model.id, "status": "alive"}

    async def ready(self) -> dict[str, str]:
        """Whether images are taken."""
        if self._batcher is None or not self._batcher.open:
            raise busy("The server is stopping.")
        return {"model": self._model().id, "status": "ready"}

    async def scrape(self) -> Response:
        """Counters for Prometheus."""
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def page(self) -> HTMLResponse:
        """A page to try the model."""
        return HTMLResponse(self._page, headers={"Content-Security-Policy": CSP})

    async def icon(self) -> Response:
        """Nothing, which browsers ask for."""
        return Response(status_code=204)

    def permits(self, path: str, headers: list[tuple[bytes, bytes]]) -> bool:
        """Whether a request has the key, or needs none."""
        if self._key is None or path in OPEN:
            return True
        sent = {name: value for name, value in headers if name in (b"authorization", b"x-api-key")}
        scheme, _, bearer = sent.get(b"authorization", b"").partition(b" ")
        given = sent.get(b"x-api-key", bearer if scheme.lower() == b"bearer" else b"")
        return hmac.compare_digest(given, self._key.encode())

    def refusal(self, error: RefusedError) -> Response:
        """The answer that says it."""
        return self._json({"detail": error.detail}, error.status, headers=error.headers)

    def _json(
        self,
        content: dict[str, Any],
        status: int,
        model: Model | None = None,
        headers: dict[str, str] | None = None,
    ) -> JSONResponse:
        own = (model or self.live.model).id
        return JSONResponse(
            {"model": own, **content}, status, {"X-Model-Id": own, **(headers or {})}
        )

    async def _refused(self, request: Request, error: Any) -> Response:
        return self.refusal(error)

    async def _no_route(self, request: Request, error: Any) -> Response:
        headers = error.headers or {}
        detail = "There is nothing at this address; /openapi.json names those that there are."
        if "Allow" in headers:
            detail = f"This address takes {headers['Allow']} alone."
        return self._json({"detail": detail}, error.status_code, headers=headers)

    async def _failed(self, request: Request, error: Exception) -> Response:
        return self.refusal(busy("The request failed; try again."))

    def _changed(self, found: Model | Exception) -> None:
        if isinstance(found, Exception):
            self.metrics.swap_failures.inc()
            LOG.error("The model %s stays: %s", self.live.model.id, found)
        else:
            self.metrics.model(found)
            self.metrics.swaps.inc()
            LOG.warning("The model %s answers from now on.", found.id)


class _Guard:
    """Around all routes: the key, headers and counters; what fails is a 503, never a 500."""

    def __init__(self, app: Asgi, server: Server) -> None:
        self._app, self._server = app, server

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start, server, code = time.perf_counter(), self._server, 0
        path = "/predict" if scope["path"] == "/predict" else "other"

        async def sent(message: Any) -> None:
            nonlocal code
            if message["type"] == "http.response.start":
                code, own = message["status"], message["headers"]
                if not any(name == b"x-model-id" for name, _ in own):
                    own.append((b"x-model-id", server.live.model.id.encode()))
                own.append((b"x-content-type-options", b"nosniff"))
            await send(message)

        try:
            if not server.permits(scope["path"], scope["headers"]):
                needed = {"WWW-Authenticate": "Bearer"}
                raise RefusedError(401, "The API key is missing or wrong.", needed)
            if (scope["method"], path) == ("POST", "/predict"):
                # Past FastAPI's layers, which take nearly half of the event loop's time.
                answer = await server.predict(Request(scope, receive))
                await answer(scope, receive, sent)
            else:
                # Health checks and `curl -I` ask for the header alone, which uvicorn then sends.
                asked = {**scope, "method": "GET"} if scope["method"] == "HEAD" else scope
                await self._app(asked, receive, sent)
                path = getattr(asked.get("route"), "path", "other")
        except RefusedError as error:
            await server.refusal(error)(scope, receive, sent)
        except Exception:
            LOG.exception("A request failed.")
            if not code:
                await server.refusal(busy("The request failed; try again."))(scope, receive, sent)
        finally:
            server.metrics.answered(path, code, time.perf_counter() - start)


def _number(text: str) -> float:
    """The number in a text; below all that makes sense if there is none."""
    try:
        return float(text)
    except ValueError:
        return -1.0


def _call(loop: asyncio.AbstractEventLoop, works: list[Work]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(_finish, works)


def _finish(works: list[Work]) -> None:
    for work in works:
        _end(work, answered=True)


def _end(work: Work, answered: bool) -> None:
    if not work.waiter.done():
        work.waiter.set_result(answered)


def _of(bad: int, all_images: int) -> str:
    return f"{bad} of {all_images} images cannot be read; none was classified."
