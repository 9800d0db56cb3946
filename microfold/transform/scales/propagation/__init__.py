"""Propagation of scales and shifts through a graph.

Module `message` defines the data, `rule` the interface of an operator's rule, and `kinds` the nodes that
start a message. `backward` and `forward` propagate messages. All other modules define rules, one family of
operators each. They are discovered automatically. An operator without a rule stops every message.
"""

from importlib import import_module
from pkgutil import iter_modules

for module in iter_modules(__path__):
    import_module(f"{__name__}.{module.name}")
