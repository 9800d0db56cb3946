"""Post-training quantisation of float models with ai-edge-quantizer, and checks of the result.

::

    float model --normalise--> engine (ai-edge-quantizer, in a process of its own) --> quantised model
                                  ^                                                         |
    data --sources, arrays, media--'--> held-back samples --compare--> report, advice <-----'
"""
