"""Parser of pass lists on the command line: ``fold_constant,fuse_ops{option=1}``."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from typing import Any, get_type_hints

from microfold.errors import InputError
from microfold.ir.literals import LiteralCursor, has_text_form
from microfold.passes.decorators import PassFactory
from microfold.passes.kinds import Pass, Section, Sequential
from microfold.passes.registry import registered_passes
from microfold.pipeline import default_pipeline

DEFAULT = "default"


def known_passes() -> set[str]:
    """Return every name of a pass or a section that an option may contain."""
    return default_pipeline().names() | registered_passes().keys()


def check_pass(name: str, known: Collection[str]) -> None:
    """Reject an unknown pass name, and suggest the most similar known one.

    Raises:
        InputError: the name is unknown.
    """
    if name not in known:
        close = get_close_matches(name, known, 1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise InputError(f"unknown pass {name!r}{meant}; passes: {', '.join(sorted(known))}")


def check_section(name: str) -> None:
    """Reject the name of an unknown section of the default pipeline; an empty name stands for all sections.

    Raises:
        InputError: the name is unknown.
    """
    sections = default_pipeline().sections
    if name and name not in sections:
        close = get_close_matches(name, sections, 1)
        meant = f" (did you mean {close[0]}?)" if close else ""
        raise InputError(f"unknown section {name!r}{meant}; sections: {', '.join(sections)}")


def parse_passes(text: str) -> list[Pass]:
    """Parse a list of passes and sections, in which ``default`` is the default pipeline.

    Raises:
        InputError: a pass or an option is unknown, or an option is missing.
        TextFormError: the list is malformed, or a value does not have its option's type.
    """
    return _Parser(text, "passes").passes()


def listed_names(step: Pass) -> set[str]:
    """Return the passes that a list element names; none for a section or the default pipeline."""
    if not isinstance(step, Sequential):
        return {step.name}
    default = isinstance(step, Section) or step.name == default_pipeline().name
    return set() if default else {step.name, *step.names()}


def edited_pipeline(before: Sequence[str], after: Sequence[str]) -> Pass | None:
    """Return the default pipeline with the passes of --pass-before and --pass-after; None without any.

    Args:
        before, after: values of the options, each ``NAME=PASS,…``; NAME is a section or a pass.

    Raises:
        InputError, TextFormError: a value is malformed, or names an unknown section or pass.
    """
    pipeline = default_pipeline()
    for option, values in (("before", before), ("after", after)):
        for value in values:
            where, equals, text = value.partition("=")
            if not equals:
                raise InputError(
                    f"--pass-{option} must be NAME=PASS, with a section or a pass of the pipeline as NAME; "
                    f"it is {value!r}; `microfold passes` lists them"
                )
            steps = parse_passes(text)
            # A later pass is inserted next to the place, so that the given order results.
            for step in steps if option == "before" else reversed(steps):
                pipeline = pipeline.with_pass(step, **{option: where.strip()})
    return pipeline if before or after else None


def options_of(item: Pass | PassFactory[Any]) -> dict[str, Any]:
    """Return the options of a pass, each with its type."""
    if isinstance(item, Pass):
        return {}
    form: Any = item.form
    hints = get_type_hints(form)
    return {name: hints[name] for name in inspect.signature(form).parameters}


def describe_options(item: Pass | PassFactory[Any]) -> str:
    """Return names and types of a pass's options as text, e.g. ``size: int, layout: str``."""
    return ", ".join(f"{name}: {_type_name(hint)}" for name, hint in options_of(item).items())


def explained_by(name: str, passes: Iterable[Pass]) -> set[str]:
    """Return the passes whose decisions explain a pass: itself, or all passes of a sequence of this name.

    Raises:
        InputError: `passes` do not run it.
    """
    pending = list(passes)
    ran: set[str] = set()
    while pending:
        step = pending.pop()
        if step.name == name:
            return {name} | (step.names() if isinstance(step, Sequential) else set())
        ran.add(step.name)
        pending += [*step.required_passes(), *(step.passes if isinstance(step, Sequential) else ())]
    check_pass(name, known_passes())
    raise InputError(f"pass {name} does not run here; passes that run: {', '.join(sorted(ran))}")


class _Parser(LiteralCursor):
    def passes(self) -> list[Pass]:
        found = [self.single_pass()]
        while self.accept(","):
            found.append(self.single_pass())
        self.expect_end()
        return found

    def single_pass(self) -> Pass:
        name = self.expect_kind("word").text
        if name == DEFAULT:
            return default_pipeline()
        sections = default_pipeline().sections
        if name in sections:
            return sections[name]
        known = registered_passes()
        check_pass(name, {DEFAULT, *sections, *known})
        item: Pass | PassFactory[...] = known[name]
        options = self.options(item) if self.sees("{") else {}
        if isinstance(item, Pass):
            return item
        parameters = inspect.signature(item.form).parameters
        missing = [name for name, p in parameters.items() if name not in options and p.default is p.empty]
        if missing:
            raise InputError(f"{name} requires {', '.join(missing)}: {name}{{{missing[0]}=…}}")
        return item(**options)

    def options(self, item: Pass | PassFactory[Any]) -> dict[str, Any]:
        declared = options_of(item)
        given: dict[str, Any] = {}

        def option() -> None:
            token = self.expect_kind("word")
            if token.text not in declared:
                has = f"its options are {describe_options(item)}" if declared else "it has none"
                self.fail(token, f"{item.name} has no option {token.text!r}; {has}")
            if token.text in given:
                self.fail(token, f"{token.text} is given twice")
            self.expect("=")
            given[token.text] = self.literal(declared[token.text], token.text)

        self.separated(option, "{", "}")
        return given

    def text_literal(self) -> str:
        # A shell removes quotes, so accept a plain word without them.
        return self.take().text if self.next.kind == "word" else super().text_literal()


def _type_name(hint: Any) -> str:
    if not has_text_form(hint):
        return "from Python only"
    return hint.__name__ if isinstance(hint, type) else str(hint).replace("typing.", "")
