"""A jinja2 sandbox that ends: time, output and every value that could grow have bounds.

Chat templates come with models, so they are as trustworthy as the place a model was downloaded
from. jinja2's sandbox keeps them from Python's internals; it does not keep them from looping for
ever or from asking for terabytes. Here a deadline is checked at every template line and every
Python call (`sys.settrace`, which also reaches loops that print nothing), and each operation whose
result can be larger than its operands pays from a budget before it runs.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import FrameType
from typing import Any, TypeVar

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_indent, make_attrgetter
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

Result = TypeVar("Result")

TEMPLATE_FILE = "<chat template>"
MAX_SOURCE_CHARS = 2**19  # the longest templates known have 30,000
# Characters made on the way to one rendering. A template that appends each of 100 messages to a
# growing text makes 50 times the conversation.
_BUDGET_CHARS = 16 * 2**20
_BUDGET_FACTOR = 64
_ITEM_COST = 16  # an entry of a list takes about as much memory as this many characters
_MAX_ITEMS = 2**15  # entries in one value, five a turn of a chat
_MAX_INT_BITS = 4096
_MAX_INDENT = 64

# Filters that lay text out in columns, escape it for web pages or pick at random: no use in a
# prompt, and each can make much out of little.
_REMOVED_FILTERS = (
    "batch",
    "center",
    "filesizeformat",
    "format",
    "pprint",
    "random",
    "slice",
    "urlize",
    "wordwrap",
    "xmlattr",
)
_REMOVED_METHODS = frozenset(
    {"center", "expandtabs", "format_map", "ljust", "rjust", "translate", "zfill"}
)
# A width of five digits, a width from an argument (%*d), a width from a nested field ({:{w}}).
_WIDE_LAYOUT = re.compile(r"\d{5}|%[^%a-zA-Z]*\*|\{[^}]*\{")


class TemplateTimeout(BaseException):
    """The deadline has passed. Not an Exception, so that nothing on the way swallows it."""


class TemplateTooLarge(Exception):
    """The template asks for more text than any prompt has."""


class TemplateRefusal(jinja2.TemplateError):
    """The template called raise_exception: it does not take this conversation."""


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """The environment Hugging Face gives chat templates, with bounds on all that can grow."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[loopcontrols, _GenerationMark],
            finalize=self._bounded,
        )
        self._budget = 0
        for name in _REMOVED_FILTERS:
            del self.filters[name]
        for name in ("list", "sort", "reverse", "unique"):
            self.filters[name] = self._paying_by_item(self.filters[name])
        self.filters.update(
            tojson=self._tojson,
            sum=_sum,
            string=lambda value: str(self._bounded(value)),
            replace=self._replace,
            join=self._join_filter,
            indent=self._indent,
            bounded=self._bounded,
            bounded_concat=self._concat,
        )
        del self.globals["lipsum"]
        self.globals.update(raise_exception=_raise_exception, strftime_now=_strftime_now)

    def start_budget(self, num_input_chars: int) -> None:
        """Grant a rendering of a conversation of so many characters its budget."""
        self._budget = _BUDGET_CHARS + _BUDGET_FACTOR * num_input_chars

    def _spend(self, amount: int) -> None:
        self._budget -= amount
        if self._budget < 0:
            raise TemplateTooLarge

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        template: nodes.Template = _BoundGrowth().visit(super()._parse(source, name, filename))
        return template

    def concat(self, pieces: Iterable[str], /) -> str:
        """Join what a block or a macro printed; compiled templates call it."""
        return self._join(pieces)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        """An intercepted operator, once its result is known to be of a sane size."""
        if isinstance(left, int) and isinstance(right, int):
            _require_small_result(operator, left, right)
        elif operator == "*":
            number, value = (left, right) if isinstance(left, int) else (right, left)
            self._spend(_deep_size(value) * (max(number, 0) if isinstance(number, int) else 1))
        elif operator == "+":
            self._spend(_deep_size(left) + _deep_size(right))
        elif isinstance(left, str):
            self._spend_on_layout(left, right)
        return super().call_binop(context, operator, left, right)

    def call(self, context: Any, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call `obj`; text methods that can make much of little pay first or are refused."""
        self._spend(_deep_size(args) + _deep_size(kwargs))
        method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            self._spend_on_method(owner, getattr(method, "__name__", ""), args, kwargs)
        return super().call(context, obj, *args, **kwargs)

    def _spend_on_method(
        self, text: str, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> None:
        if name in _REMOVED_METHODS:
            raise SecurityError(f"the text method {name} is not available")
        if name == "replace" and len(args) >= 2:
            self._spend(_replaced_size(text, str(args[0]), str(args[1])))
        elif name == "join" and args and isinstance(args[0], list | tuple | str):
            self._spend(len(text) * len(args[0]))
        elif name == "join":
            raise SecurityError("join takes a list")
        elif name == "format":
            self._spend_on_layout(text, [*args, *kwargs.values()])
        elif name in ("split", "rsplit", "splitlines"):
            self._spend(len(text) * _ITEM_COST)

    def _spend_on_layout(self, layout: str, values: Any) -> None:
        if _WIDE_LAYOUT.search(layout):
            raise TemplateTooLarge
        # One value can be asked for at every second character.
        self._spend(len(layout) * (1 + _deep_size(values)))

    def _bounded(self, value: Any) -> Any:
        """`value`, once it is known that nothing that walks it will walk for ever.

        A list that holds another twice, which holds another twice, is small in memory and
        without end to print or to compare.
        """
        if isinstance(value, list | tuple | dict):
            self._spend(_deep_size(value))
        return value

    def _text(self, value: Any) -> str:
        return value if isinstance(value, str) else str(self._bounded(value))

    def _join(self, pieces: Iterable[Any], separator: str = "") -> str:
        texts: list[str] = []
        for piece in pieces:
            texts.append(self._text(piece))
            self._spend(len(texts[-1]) + len(separator) + 1)
        return separator.join(texts)

    def _concat(self, pieces: list[Any]) -> str:
        return self._join(pieces)

    def _join_filter(self, values: Any, d: Any = "", attribute: str | int | None = None) -> str:
        if attribute is not None:
            values = map(make_attrgetter(self, attribute), values)
        return self._join(values, self._text(d))

    def _replace(self, s: Any, old: str, new: str, count: int = -1) -> str:
        text, old, new = self._text(s), self._text(old), self._text(new)
        self._spend(_replaced_size(text, old, new))
        return text.replace(old, new, count)

    def _indent(
        self, s: Any, width: int | str = 4, first: bool = False, blank: bool = False
    ) -> str:
        size = width if isinstance(width, int) else len(width)
        if size > _MAX_INDENT:
            raise TemplateTooLarge
        text = self._text(s)
        self._spend(len(text) + size * (1 + text.count("\n")))
        return do_indent(text, width, first, blank)

    def _tojson(
        self,
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        """JSON as it is, where jinja2's own filter escapes it for web pages."""
        if indent is not None and not 0 <= indent <= _MAX_INDENT:
            raise TemplateTooLarge
        return json.dumps(
            self._bounded(value),
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def _paying_by_item(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The filter, once its input is counted; what jinja2 passes first (context) is kept."""
        position = 1 if hasattr(function, "jinja_pass_arg") else 0

        def paying(*args: Any, **kwargs: Any) -> Any:
            values = args[position]
            if hasattr(values, "__len__"):
                self._spend(len(values) * _ITEM_COST)
            return function(*args, **kwargs)

        if position:
            paying.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
        return paying


class _BoundGrowth(NodeTransformer):
    """Turns what jinja2 offers no hook for (`~`, lists, tuples, dicts) into bounded filters."""

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._filter("bounded_concat", nodes.List(node.nodes, lineno=node.lineno), node)

    def visit_List(self, node: nodes.List) -> nodes.Node:
        self.generic_visit(node)
        if all(isinstance(item, nodes.Const) for item in node.items):
            return node
        return self._filter("bounded", node, node)

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Node:
        self.generic_visit(node)
        if node.ctx != "load" or all(isinstance(item, nodes.Const) for item in node.items):
            return node
        return self._filter("bounded", node, node)

    def visit_Dict(self, node: nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        return self._filter("bounded", node, node)

    @staticmethod
    def _filter(name: str, value: nodes.Expr, origin: nodes.Expr) -> nodes.Filter:
        result = nodes.Filter(value, name, [], [], None, None, lineno=origin.lineno)
        assert origin.environment is not None, "the parser sets it on every node"
        result.set_environment(origin.environment)
        return result


class _GenerationMark(Extension):
    """`{% generation %}`, which marks the model's part for training: here only its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The nodes between the marks."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def run_with_deadline(
    function: Callable[[], Result], deadline_s: float, clock: Callable[[], float]
) -> Result:
    """`function()`, unless it takes longer than `deadline_s`: then TemplateTimeout.

    Works on any thread, and only on Python code: a single call into C is not interrupted.
    """
    end = clock() + deadline_s

    def on_event(frame: FrameType, event: str, argument: Any) -> Any:
        if clock() > end:
            raise TemplateTimeout
        return on_event if frame.f_code.co_filename == TEMPLATE_FILE else None

    previous = sys.gettrace()
    sys.settrace(on_event)
    try:
        return function()
    finally:
        sys.settrace(previous)


def render_bounded(template: jinja2.Template, max_chars: int, variables: Mapping[str, Any]) -> str:
    """The rendering, given up as soon as it is longer than `max_chars`: TemplateTooLarge."""
    pieces: list[str] = []
    length = 0
    for piece in template.generate(variables):
        pieces.append(piece)
        length += len(piece)
        if length > max_chars:
            raise TemplateTooLarge
    return "".join(pieces)


def _sum(iterable: Any, attribute: str | None = None, start: float = 0) -> float:
    """The sum of numbers; jinja2's own also appends lists to each other."""
    numbers = [value if attribute is None else value[attribute] for value in iterable]
    if not all(isinstance(number, int | float) for number in [*numbers, start]):
        raise jinja2.TemplateRuntimeError("only numbers can be summed")
    return sum(numbers, start)


def _raise_exception(message: object) -> None:
    raise TemplateRefusal(str(message)[:500])


def _strftime_now(layout: str) -> str:
    if _WIDE_LAYOUT.search(layout):
        raise TemplateTooLarge
    return datetime.now().strftime(layout)


def _require_small_result(operator: str, left: int, right: int) -> None:
    grow = max(right, 1) if operator == "**" else 1
    if left.bit_length() * grow + right.bit_length() > _MAX_INT_BITS:
        raise TemplateTooLarge


def _replaced_size(text: str, old: str, new: str) -> int:
    return len(text) + text.count(old) * len(new)


def _deep_size(value: Any) -> int:
    """Characters and entries that a walk through `value` meets, shared ones each time."""
    if isinstance(value, str):
        return len(value)
    total = num_items = 0
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, str | bytes):
            total += len(item)
        elif isinstance(item, dict):
            pending += [*item.keys(), *item.values()]
            num_items += 2 * len(item)
        elif isinstance(item, list | tuple | set | frozenset):
            pending += item
            num_items += len(item)
        if num_items > _MAX_ITEMS:
            raise TemplateTooLarge
    return total + num_items
