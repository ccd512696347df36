"""The method, which needs only torch, in reading order.

`moments`, `norm`: statistics and the layer. `passes`: how a network runs under several rules.
`surgery`: exchanging layers. `embedding`, `distances`, `ensemble`: the space of domains and the
mixture. `shortcuts`, `pooling`, `kernels`: the same, faster.
"""
