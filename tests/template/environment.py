"""jinja2 in transformers' environment for chat templates (5.x): the oracle of the interpreter's tests."""
import json
from contextlib import contextmanager
from datetime import datetime

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime(2024, 7, 26, 15, 4, 5)


class GenerationTracker(jinja2.ext.Extension):
    """{% generation %}: records which characters of the output its body wrote."""

    tags = {"generation"}

    def __init__(self, environment):
        super().__init__(environment)
        environment.extend(tracker=self)
        self.blocks = self.spans = None

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(lineno)

    @jinja2.pass_eval_context
    def _note(self, context, caller):
        text = caller()
        if self.blocks is not None:
            start = len("".join(self.blocks))
            self.spans.append((start, start + len(text)))
        return text

    @contextmanager
    def active(self, blocks, spans):
        self.blocks, self.spans = blocks, spans
        yield
        self.blocks = self.spans = None


def make_environment():
    env = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationTracker, jinja2.ext.loopcontrols]
    )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    class Namespace(jinja2.utils.Namespace):
        def __init__(*args, **kwargs):
            self, args = args[0], args[1:]
            attrs = dict(*args, **kwargs)
            for name in attrs:
                Namespace._check_name(name)
            jinja2.utils.Namespace.__init__(self, attrs)

        def __setitem__(self, name, value):
            Namespace._check_name(name)
            jinja2.utils.Namespace.__setitem__(self, name, value)

        @staticmethod
        def _check_name(name):
            if isinstance(name, str) and name.startswith("_"):
                raise jinja2.exceptions.SecurityError(f"private name {name!r}")

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: NOW.strftime(fmt)
    env.globals["namespace"] = Namespace
    return env


def render(source, context):
    return make_environment().from_string(source).render(**context)


def render_with_spans(source, context):
    """The text and the byte spans of its generation blocks."""
    env = make_environment()
    template = env.from_string(source)
    blocks, spans = [], []
    with env.tracker.active(blocks, spans):
        for block in template.generate(**context):
            blocks.append(block)
    text = "".join(blocks)
    return text, [[len(text[:a].encode()), len(text[:b].encode())] for a, b in spans]
