"""Propagation of values whose elements are in another order.

`arrangement` is the algebra of orders, and `message` a value in another order. `frame` describes the axes
that a rule computes on, and `rule` is the interface of an operator's rule. `sweep` propagates messages
through a graph. `elementwise`, `axes`, `images` and `matmul` contain the rules: of agnostic, lightly
sensitive and heavily sensitive operators. An operator without a rule stops every message.
"""
