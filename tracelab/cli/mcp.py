"""``tracelab mcp``: read-only tools for an agent, over stdin and stdout."""

from __future__ import annotations

import base64
import inspect
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracelab.base import __version__
from tracelab.base.errors import MissingSupportError
from tracelab.cli.options import Analyzed, analyzes, sentence_and_code
from tracelab.system.console import tell

if TYPE_CHECKING:
    from tracelab.cli.answers import Traces

_INSTRUCTIONS = (
    "tracelab tells from traces of torch.profiler why GPUs are not busy. Call analyze; change the "
    "line that the first finding names as its fix says; ask whatif what that saves before, and "
    "diff of a new recording afterwards."
)


@analyzes("step_on", "comm_pattern", "no_cache")
def mcp(
    analyzed: Analyzed,
    folders: Annotated[
        list[str] | None,
        typer.Argument(metavar="FOLDER", help="Folders that may be read; by default this one."),
    ] = None,
) -> None:
    """Serve read-only tools to an agent (Model Context Protocol).

    It speaks the protocol on stdin and stdout, so that a client starts it. Nothing outside of the
    folders is read.
    """
    if find_spec("mcp_types") is None:
        raise MissingSupportError("serving an agent needs the MCP SDK", extra="mcp")
    import asyncio

    from tracelab.cli.answers import Traces

    traces = Traces(folders or ["."], analyzed.options(files=2))
    tell(f"serving an agent about traces in {' and '.join(traces.folders)} until stdin ends")
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(traces))


async def _serve(traces: Traces) -> None:
    import asyncio

    from mcp.server.lowlevel import Server
    from mcp.server.stdio import stdio_server
    from mcp_types import ListToolsResult

    one_at_a_time = asyncio.Lock()

    async def list_tools(*_: Any) -> Any:
        return ListToolsResult(tools=_tools())

    async def call_tool(_: Any, request: Any) -> Any:
        async with one_at_a_time:
            return await asyncio.to_thread(_answer, request.name, request.arguments or {}, traces)

    server = Server(
        "tracelab",
        version=__version__,
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    async with stdio_server() as streams:
        await server.run(*streams, server.create_initialization_options())


def _tools() -> list[Any]:
    from mcp_types import Tool, ToolAnnotations

    from tracelab.cli.answers import QUESTIONS, schema_of

    hints = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
    return [
        Tool(
            name=name,
            description=inspect.getdoc(question),
            input_schema=schema_of(question),
            annotations=hints,
        )
        for name, question in QUESTIONS.items()
    ]


def _answer(name: str, arguments: dict[str, Any], traces: Traces) -> Any:
    from mcp_types import CallToolResult, ImageContent, TextContent

    from tracelab.cli.answers import answer_to

    try:
        answer = answer_to(name, arguments, traces)
    except Exception as error:
        sentence, _ = sentence_and_code(error)
        return CallToolResult(content=[TextContent(type="text", text=sentence)], is_error=True)
    if isinstance(answer, str):
        return CallToolResult(content=[TextContent(type="text", text=answer)])
    data = base64.b64encode(answer).decode()
    return CallToolResult(content=[ImageContent(type="image", data=data, mime_type="image/png")])
