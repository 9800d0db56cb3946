"""Values under another order of elements: what operators let through, and how such values travel.

`arrangement` is the algebra of orders, `message` a value that exists in another one, `frame` what a rule
needs to compute there, `rule` the interface of an operator's behaviour; `sweep` lets messages travel through
a graph. `elementwise`, `axes`, `images` and `matmul` hold the rules: agnostic, lightly sensitive and heavily
sensitive operators. An operator without a rule stops every message.
"""
