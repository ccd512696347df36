"""The method, which needs torch alone, in the order one reads it.

`moments`, `norm`: statistics and the layer. `passes`: how a network runs under several rules.
`surgery`: exchanging layers. `embedding`, `distances`, `ensemble`: the space of domains and the
mixture. `shortcuts`, `pooling`, `kernels`: the same, faster.
"""
