"""The method, which needs only torch, in reading order.

`moments`, `activations`, `norm`: statistics and the layer. `passes`: how one network runs under
several rules. `surgery`: exchanging layers. `embedding`, `distances`, `prediction`, `ensemble`: the
space of domains and the mixture. `options`, `convert`: the way in. `shortcuts`, `kernels`: the
same, faster. `points`: training past the paper. `statistics`: measured after training, put back
after a skipped step. `head`: the last layer again. `together`: images of one domain.
"""
