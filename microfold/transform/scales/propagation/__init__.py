"""Scales and shifts on their way through a graph: what they are, how operators take them, how they travel.

`message` is the data, `rule` the interface of an operator's behaviour, `kinds` says what starts a message;
`backward` and `forward` let messages travel. All other modules hold rules, by families of operators: a module
dropped in here is found by itself, and an operator without a rule stops every message.
"""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")
